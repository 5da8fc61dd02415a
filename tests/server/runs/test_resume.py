"""A sum is begun with the clients that its run can ask: the same again, or nobody twice."""

import pytest

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import EncodingSpec, PrivacySpec, SecAggSpec
from zerosum.server.config import ConfigError
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.runs.resume import check_cohort
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.sampling import CohortSampler, Planned
from zerosum.server.spec import SamplingSpec

OPEN = PrivacySpec(model="none", clip=None)
PROTECTION = Protection.build(
    OPEN, EncodingSpec(range=1.0), cohort=8, dimension=5, rotation_seed=bytes(32)
)


def once(order_seed=None):
    return CohortSampler(SamplingSpec(kind="once", cohort=8), 80, SeededEntropy(0), order_seed)


def planned(sampler, number):
    return Planned("train", number, 0, (sampler.draw(number),))


def spent(sampler, rounds, kind="once"):
    ledger = RunLedger(
        None,
        privacy=OPEN,
        secagg=SecAggSpec(),
        sampling=SamplingSpec(kind=kind, cohort=8),
        population=80,
        protections={"train": PROTECTION},
    )
    for number in range(1, rounds + 1):
        charge = ledger.charging(number, 0, "train", planned(sampler, number).groups)
        charge("contributions", 0, sampler.draw(number))
    return ledger


def test_a_run_that_goes_on_spends_the_clients_that_are_left(tmp_path):
    sampler = once()
    ledger = spent(sampler, 4)
    for number in range(4, 11):  # the fourth is begun again
        check_cohort(ledger, planned(sampler, number), RunFolder(tmp_path))


def test_another_order_of_once_is_refused_before_it_asks_anybody_twice(tmp_path):
    other = once(bytes(32))
    assert set(other.draw(6)) & {i for r in range(1, 5) for i in once().draw(r)}
    with pytest.raises(ConfigError, match=r'"once": round 6 would ask client .* a second time'):
        check_cohort(spent(once(), 4), planned(other, 6), RunFolder(tmp_path))


def test_other_samplers_ask_as_often_as_they_draw(tmp_path):
    ledger = spent(once(), 4, kind="fixed")
    check_cohort(ledger, planned(once(bytes(32)), 6), RunFolder(tmp_path))


def test_a_round_that_was_begun_is_not_done_again_with_other_clients(tmp_path):
    for kind in ("fixed", "once"):
        with pytest.raises(ConfigError, match=r"round 4 (was begun|would ask)"):
            check_cohort(spent(once(), 4, kind), planned(once(bytes(32)), 4), RunFolder(tmp_path))
