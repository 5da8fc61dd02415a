"""Learning-rate schedules are torch's, as a pure function of the round."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch.optim import lr_scheduler

from zerosum.client.spec import TrainSpec
from zerosum.server.spec import Experiment, ServerSpec

ROUNDS = 17
SCHEDULES: dict[str, dict[str, Any]] = {
    "constant": {},
    "cosine": {"schedule": "cosine", "final": 0.05},
    "cosine to nothing": {"schedule": "cosine"},
    "linear": {"schedule": "linear", "final": 0.25},
    "step": {"schedule": "step", "decay_rounds": [3, 4, 9], "decay": 0.3},
}


def torchs(keys: dict[str, Any], warmup: int, lr: float) -> list[float]:
    """Return the rates of all rounds by a scheduler that is stepped once a round."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    length = ROUNDS - warmup
    after: lr_scheduler.LRScheduler
    match keys.get("schedule"):
        case "cosine":
            lowest = lr * keys.get("final", 0.0)
            after = lr_scheduler.CosineAnnealingLR(optimizer, length, eta_min=lowest)
        case "linear":
            after = lr_scheduler.LinearLR(optimizer, 1.0, keys["final"], length)
        case "step":
            after = lr_scheduler.MultiStepLR(optimizer, keys["decay_rounds"], keys["decay"])
        case _:
            after = lr_scheduler.ConstantLR(optimizer, 1.0)
    if warmup:
        warm = lr_scheduler.LinearLR(optimizer, 1 / warmup, 1.0, max(1, warmup - 1))
        after = lr_scheduler.SequentialLR(optimizer, [warm, after], [warmup])
    rates = []
    for _ in range(ROUNDS):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        after.step()
    return rates


@pytest.mark.slow
@pytest.mark.parametrize("warmup", [0, 1, 5, ROUNDS - 1])
@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_those_of_torchs_schedulers(name: str, warmup: int) -> None:
    keys = SCHEDULES[name]
    expected = torchs(keys, warmup, 0.37)
    for spec in (
        TrainSpec(lr=0.37, warmup_rounds=warmup, **keys),
        ServerSpec(lr=0.37, warmup_rounds=warmup, **keys),
    ):
        rates = [spec.lr_at(number, ROUNDS) for number in range(1, ROUNDS + 1)]
        assert rates == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert all(0 < rate <= 0.37 for rate in rates)
        late = [spec.lr_at(number, ROUNDS) for number in range(2, ROUNDS + 2)]
        same = late == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert same == (len(set(expected)) == 1), "the control: a round late"


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_lies_outside_of_a_run_has_the_rate_of_its_edge(name: str) -> None:
    spec = TrainSpec(lr=0.37, warmup_rounds=2, **SCHEDULES[name])
    assert spec.lr_at(0, ROUNDS) == spec.lr_at(1, ROUNDS) > 0
    assert spec.lr_at(ROUNDS + 9, ROUNDS) == spec.lr_at(ROUNDS, ROUNDS) > 0
    assert spec.lr_at(9, 1) == spec.lr_at(1, 1) > 0, "a run that is shorter than its warm-up"


def test_the_section_of_a_request_has_the_rate_in_force_and_no_schedule() -> None:
    spec = TrainSpec(lr=0.4, warmup_rounds=2, schedule="step", decay_rounds=[1], decay=0.5)
    asked = [spec.at(number, 5) for number in range(1, 6)]
    assert [one.lr for one in asked] == [0.2, 0.4, 0.4, 0.2, 0.2]
    assert asked[2] == TrainSpec(lr=0.4), "and nothing else"
    assert TrainSpec.from_canonical(asked[3].canonical()) == TrainSpec(lr=0.2)
    plain = TrainSpec(lr=0.4)
    assert plain.at(3, 5) is plain


BAD = {
    "decay_rounds of cosine": (
        {"schedule": "cosine", "decay_rounds": [3]},
        r'decay_rounds = \[3\] is for .*schedule = "step", and it is "cosine": take it out',
    ),
    "final of none": ({"final": 0.5}, r'final = 0.5 is for .* = "cosine" or "linear", and it is'),
    "decay of linear": ({"schedule": "linear", "decay": 0.5}, 'is for .*schedule = "step"'),
    "step without rounds": ({"schedule": "step"}, r"needs .*decay_rounds: .*=\[20, 30\]"),
    "rounds out of order": (
        {"schedule": "step", "decay_rounds": [5, 3, 3]},
        r"must ascend, each round once: write .*decay_rounds=\[3, 5\]",
    ),
    "no rate left": (
        {"schedule": "step", "decay_rounds": [*range(1, 41)], "decay": 1e-9},
        "leaves no learning rate: raise it, or shorten",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("section", ["training", "server"])
def test_keys_that_make_no_schedule_are_refused(section: str, name: str) -> None:
    keys, message = BAD[name]
    with pytest.raises(ValidationError, match=f"{section}\\.{message}|{message}"):
        Experiment.model_validate({section: keys})


@pytest.mark.parametrize("section", ["training", "server"])
def test_a_warm_up_leaves_a_round(section: str) -> None:
    Experiment.model_validate({"rounds": 5, section: {"warmup_rounds": 4}})
    with pytest.raises(ValidationError, match=rf"{section}.warmup_rounds = 5 must be below rounds"):
        Experiment.model_validate({"rounds": 5, section: {"warmup_rounds": 5}})


@pytest.mark.parametrize("optimizer", ["Rprop", "ASGD"])
def test_a_server_optimizer_that_reads_no_rate_has_no_schedule(optimizer: str) -> None:
    ServerSpec(optimizer=optimizer)
    with pytest.raises(ValidationError, match=f'"{optimizer}" takes its steps from its own state'):
        ServerSpec(optimizer=optimizer, warmup_rounds=2)
