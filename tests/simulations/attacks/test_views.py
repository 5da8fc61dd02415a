"""Views of every built-in attack hold no client, no truth, nothing beyond its role."""

import gc
import types

import numpy as np
import pytest
from narrowed import present, view_of
from pydantic import BaseModel
from view_parts import parts

from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Masking,
    NotApplicable,
    ThreatModel,
    View,
)
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.harness.registry import built_in
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.settings.rounds import RoundsSetting

ALLOWED = (
    *(str, bytes, bool, int, float, complex, type(None), tuple, frozenset, dict),
    *(types.MappingProxyType, np.ndarray, np.generic, np.dtype, View, BaseModel, set, list),
)
"""What may be reached from a view; lists and sets are inside frozen specs alone."""


def reachable(start):
    """Return every object that the garbage collector reaches, classes and their parts aside."""
    seen, left, found = set(), [start], []
    while left:
        item = left.pop()
        if id(item) in seen or isinstance(item, type | types.ModuleType):
            continue
        seen.add(id(item))
        found.append(item)
        left += gc.get_referents(item)
        left += [item.base] if isinstance(item, np.ndarray) and item.base is not None else []
    return found


def plainly(item):
    frozen = getattr(type(item), "__dataclass_params__", None)
    return isinstance(item, ALLOWED) or (frozen is not None and frozen.frozen)


def not_refused(case):
    """Return whether there is a view: under masks every rule but the mean is refused."""
    return case.protection.rule == "mean"


def cheapest_cases():
    for attack in built_in():
        cases = list(attack.cases("quick"))
        masked = [case for case in cases if case.protection.masked and not_refused(case)]
        for case in [cases[0], *masked[:1]]:
            yield pytest.param(attack, case, id=f"{attack.name}, {case.protection.name}")


@pytest.fixture(scope="module")
def scenes():
    return {}


def scene_of(scenes, attack, case):
    key = (repr(attack), repr(case))
    if key not in scenes:
        scenes[key] = case.setting.play(attack, case.protection, 0)
    return scenes[key]


@pytest.mark.slow
@pytest.mark.parametrize(("attack", "case"), list(cheapest_cases()))
def test_neither_a_client_nor_the_truth_can_be_reached(scenes, attack, case, one_thread):
    scene = scene_of(scenes, attack, case)
    view = sealed(scene.view)
    strange = {type(item) for item in reachable(view) if not plainly(item)}
    assert not strange
    arrays = [part for part in parts(view) if isinstance(part, np.ndarray)]
    for name, truth in scene.truth.items():
        if name in attack.threat.knows:
            continue
        flat = np.ravel(truth)
        held = [
            array.size == flat.size and np.array_equal(np.ravel(array), flat) for array in arrays
        ]
        assert not any(held), name


class Played:
    """A setting that was played before."""

    name = "played"

    def __init__(self, scene):
        self.scene = scene

    def play(self, attack, protection, seed):
        return self.scene


@pytest.mark.slow
@pytest.mark.parametrize(("attack", "case"), list(cheapest_cases()))
def test_a_cell_has_a_figure_or_says_why_not(scenes, attack, case, one_thread):
    scene = scene_of(scenes, attack, case)
    outcome = play(0, Cell(attack, Case(Played(scene), case.protection)), 0)
    missing = scene.view.lacks(attack.requires)
    wanted = "value" if not missing else "stopped" if scene.view.stopped else "not applicable"
    assert outcome.status == wanted, outcome.note
    metrics = {metric.name for metric in attack.metrics}
    scored = set() if wanted == "not applicable" else metrics
    assert outcome.units.keys() == outcome.baseline.keys() == scored
    for name in scored:
        figures = [of[name].figure() for of in _scored(outcome)]
        assert all(
            np.isfinite(each.value) and each.low <= each.value <= each.high for each in figures
        )
    if wanted == "stopped":
        assert all(_alike(outcome.units[name], outcome.baseline[name]) for name in scored)
    if wanted != "value":
        assert outcome.note == scene.view.stopped or missing[0] in outcome.note


def _scored(outcome):
    return outcome.units, outcome.baseline


def _alike(one, other):
    rng = np.random.default_rng
    return one.figure(rng(0)) == other.figure(rng(0))


def test_the_crawl_finds_what_it_should():
    class Client:
        pass

    client = Client()
    held = (1, {"a": types.MappingProxyType({"b": client})})
    assert any(item is client for item in reachable(held))
    window = np.arange(10)[:2]
    assert any(isinstance(item, np.ndarray) and item.size == 10 for item in reachable(window))


class Curious:
    threat = ThreatModel("curious server")


@pytest.mark.parametrize(
    ("protection", "seen"),
    [
        (Defense("plain"), True),
        (Defense("masked", masking="double"), False),
        (Defense("semi-honest", masking="double", confirm=False), False),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_server_sees_contributions_where_nobody_masks(protection, seen, one_thread):
    setting = RoundsSetting(clients=3, records=2, task="digits")
    scene = setting.play(Curious(), protection, 0)
    view = view_of(scene)
    assert view.stopped == ""
    assert (view.contributions is not None) == seen
    assert view.labels is None
    assert view.auxiliary_inputs is None
    if seen:
        np.testing.assert_allclose(view.contributions[0].sum(0), view.totals[0], atol=1e-8)
    assert scene.epsilon == np.inf


def test_the_threat_model_says_what_else_is_known(one_thread):
    class Knowing:
        threat = ThreatModel("curious server", knows=frozenset({"labels", "auxiliary data"}))

    setting = RoundsSetting(clients=3, records=2, task="digits")
    scene = setting.play(Knowing(), Defense("plain"), 0)
    view = view_of(scene)
    np.testing.assert_array_equal(view.labels, scene.truth["labels"])
    spare = view.auxiliary_inputs.reshape(len(view.auxiliary_inputs), -1)
    held = scene.truth["inputs"].reshape(-1, spare.shape[1])
    assert not (spare[:, None] == held[None]).all(2).any()


@pytest.mark.parametrize("noise", ["local", "distributed"])
def test_noise_is_as_large_as_the_protection_says(noise, one_thread):
    setting = RoundsSetting(clients=4, records=1, task="digits", rounds=2)
    masking: Masking = "none" if noise == "local" else "double"
    protection = Defense("noised", masking=masking, noise=noise, clip=1.0, sigma=0.5)
    scene = setting.play(Curious(), protection, 0)
    view = view_of(scene)
    std = np.std(view.totals[1] - view.totals[0]) / 2**0.5
    wanted = 0.5 * (4**0.5 if noise == "local" else 1)
    assert std == pytest.approx(wanted, rel=0.05)
    assert view.noise_std == pytest.approx(wanted, rel=1e-3)
    assert 0 < present(scene.epsilon) < np.inf


@pytest.mark.slow
def test_epsilon_is_what_the_ledger_of_a_run_says(tmp_path, one_thread):
    from zerosum.simulations import api

    protection = Defense("noised", masking="double", noise="distributed", clip=1.0, sigma=2.0)
    setting = RoundsSetting(clients=5, records=1, task="digits", rounds=3)
    scene = setting.play(Curious(), protection, 0)
    multiplier = _multiplier(protection, setting)
    run = api.run(
        {
            "task": "digits",
            "rounds": 3,
            "data": {"clients": 5},
            "training": {"epochs": None, "steps": 1},
            "privacy": {
                "noise_multiplier": multiplier,
                "clip": 1.0,
                "delta": 1e-5,
                "honest_fraction": 1.0,
            },
            "encoding": {"bits": 24},
            "secagg": {"dropout": 0.0},
            "sampling": {"kind": "everyone"},
        },
        out=tmp_path / "run",
        report=False,
    )
    assert scene.epsilon == pytest.approx(run.summary["epsilon"]["sum"]["value"], rel=1e-9)


def _multiplier(protection, setting):
    from zerosum.simulations.attacks.harness.to_specs import privacy_of

    dimension = 64 * 64 + 64 + 64 * 10 + 10
    return privacy_of(protection, setting.clients, dimension).noise_multiplier


def test_a_budget_ends_the_answers(one_thread):
    setting = RoundsSetting(clients=2, records=1, task="digits", rounds=5)
    view = view_of(setting.play(Curious(), Defense("budget", budget=3), 0))
    assert len(view.totals) == 3
    assert view.stopped.startswith("after advertise")


class Targeting:
    threat = ThreatModel("malicious server")

    def craft(self, view, rng):
        from zerosum.simulations.attacks.settings.rounds import Crafted

        return Crafted(view.model, view.vectors[0], 1, np.zeros_like(view.vectors[0]))


@pytest.mark.parametrize(
    ("protection", "stopped"),
    [
        (Defense("masked", masking="double"), True),
        (Defense("no request hash", masking="double", request_hash=False), False),
        (Defense("plain"), False),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_one_client_that_is_asked_otherwise_is_noticed_by_the_request_hash(
    protection, stopped, one_thread
):
    setting = RoundsSetting(clients=4, records=1, task="digits")
    view = view_of(setting.play(Targeting(), protection, 0))
    assert (view.totals is None) == stopped
    assert bool(view.stopped) == stopped


def test_without_confirmation_masks_of_different_requests_do_not_cancel(one_thread):
    setting = RoundsSetting(clients=4, records=1, task="digits")
    protection = Defense("semi-honest", masking="double", confirm=False)
    view = view_of(setting.play(Targeting(), protection, 0))
    honest = view_of(setting.play(Targeting(), Defense("plain"), 0))
    if view.totals is not None:  # whoever did not notice opened noise
        assert abs(np.corrcoef(view.totals[0], honest.totals[0])[0, 1]) < 0.1
    else:
        assert view.stopped


def test_whoever_crafts_a_model_is_handed_sealed_data(one_thread):
    class Meddling(Targeting):
        threat = ThreatModel("malicious server", knows=frozenset({"labels"}))

        def craft(self, view, rng):
            view.labels[:] = 0
            return super().craft(view, rng)

    with pytest.raises(ValueError, match="read-only"):
        RoundsSetting(clients=3, task="digits").play(Meddling(), Defense("plain"), 0)


@pytest.mark.parametrize("changed", [{"rule": "median"}, {"seed_bits": 22}])
def test_a_protection_that_a_setting_would_leave_out_is_refused(changed):
    with pytest.raises(NotApplicable, match=f"plays no {next(iter(changed))}"):
        RoundsSetting(clients=3, task="digits").play(Curious(), Defense("p", **changed), 0)
