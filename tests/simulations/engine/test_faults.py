"""Faults are decided before a round: by seed, session, client and stage."""

from zerosum.client.protocol.flower_messages import STAGE_TYPES
from zerosum.server.spec import FaultSpec
from zerosum.simulations.engine.faults import FaultPlan


def vanished(plan, stage, sessions=50, clients=40):
    kind = STAGE_TYPES[stage]
    return {(s, c) for s in range(sessions) for c in range(clients) if plan.vanishes(s, c, kind)}


def test_each_stage_loses_its_own_share_of_clients():
    plan = FaultPlan(FaultSpec(advertise=0.1, share=0.2, contribute=0.0, unmask=0.5), seed=1)
    for stage, expected in [
        ("advertise", 200),
        ("share", 400),
        ("contribute", 0),
        ("unmask", 1000),
    ]:
        # 2,000 coins: five standard deviations are at most 112.
        assert abs(len(vanished(plan, stage)) - expected) <= 112


def test_the_same_seed_loses_the_same_clients_and_another_others():
    spec = FaultSpec(contribute=0.3)
    first = vanished(FaultPlan(spec, 7), "contribute")
    assert first == vanished(FaultPlan(spec, 7), "contribute")
    assert first != vanished(FaultPlan(spec, 8), "contribute")


def test_losing_more_at_one_stage_leaves_the_others_as_they_were():
    light = FaultPlan(FaultSpec(contribute=0.3), 3)
    heavy = FaultPlan(FaultSpec(contribute=0.3, advertise=0.9), 3)
    assert vanished(light, "contribute") == vanished(heavy, "contribute")


def test_without_faults_nobody_vanishes():
    assert not vanished(FaultPlan(FaultSpec(), 0), "unmask")
