"""The best round and patience, against a plain second reading of the rule."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.client.training.metric_names import direction
from zerosum.server.config import ConfigError, parse_experiment
from zerosum.server.runs.best_round import BestSoFar
from zerosum.server.runs.records import RoundRecord
from zerosum.server.spec import EvaluationSpec, Experiment


def spec(**keys) -> EvaluationSpec:
    return EvaluationSpec(best="accuracy", **keys)


def lines(*values: float | None, **more) -> list[RoundRecord]:
    tested = [{} if value is None else {"test_accuracy": value} for value in values]
    return [
        RoundRecord(round=n, status="completed", metrics=metrics) | more
        for n, metrics in enumerate(tested, 1)
    ]


def ends_at(evaluation: EvaluationSpec, records: list[RoundRecord]) -> int | None:
    so_far = BestSoFar(evaluation)
    for record in records:
        so_far.take(record)
        if so_far.out_of_patience:
            return record.round
    return None


def second_reading(values: list[float | None], patience: int, least: float) -> int | None:
    """Walk every prefix anew: the last improvement by more than `least`, and rounds after it."""
    for end in range(1, len(values) + 1):
        kept, last = -math.inf, 0
        for at, value in enumerate(values[:end], 1):
            if value is not None and math.isfinite(value) and value - kept > least:
                kept, last = value, at
        if values[end - 1] is not None and end - last >= patience:
            return end
    return None


figures = st.none() | st.floats(allow_nan=True, allow_infinity=True, width=16)


@pytest.mark.slow
@given(st.lists(figures, max_size=12), st.integers(1, 5), st.sampled_from([0.0, 0.5]))
def test_patience_ends_where_a_second_reading_ends(values, patience, least):
    found = ends_at(spec(patience=patience, min_delta=least), lines(*values))
    assert found == second_reading(values, patience, least)


@pytest.mark.slow
@given(st.lists(figures, max_size=12), st.sampled_from(["max", "min"]))
def test_best_round_is_the_first_of_the_largest_or_smallest_finite_values(values, mode):
    best = BestSoFar(spec(mode=mode, min_delta=100.0), lines(*values)).best
    finite = {n: v for n, v in enumerate(values, 1) if v is not None and math.isfinite(v)}
    if not finite:
        assert best is None
        return
    value = max(finite.values()) if mode == "max" else min(finite.values())
    wanted = next(n for n, v in finite.items() if v == value)
    assert best == {"metric": "accuracy", "mode": mode, "round": wanted, "value": value}


def test_an_untrained_round_is_never_the_best():
    untrained = lines(0.9, untrained=True)
    assert BestSoFar(spec(), untrained).best is None
    assert BestSoFar(spec(), lines(0.9)).best is not None, "the control: of a trained model"


def test_abandoned_rounds_do_not_use_up_patience():
    records = [*lines(0.5), *(r | {"status": "abandoned", "round": 2} for r in lines(0.5, 0.5))]
    assert ends_at(spec(patience=2), records) is None
    assert ends_at(spec(patience=2), lines(0.5, 0.5, 0.5)) == 3, "the control: completed ones"


def test_without_a_metric_nothing_is_best_and_nothing_ends():
    so_far = BestSoFar(EvaluationSpec(), lines(0.5, 0.5))
    assert so_far.best is None
    assert not so_far.out_of_patience


NAMES = {
    "accuracy": "max", "balanced_accuracy": "max", "macro-f1": "max", "roc_auc": "max",
    "loss": "min", "log_loss": "min", "RMSE": "min", "bits_perplexity": "min",
    "bias": None, "neg_loss": None, "error_precision": None, "1-accuracy": None, "r": None,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_says_its_direction_or_none_is_guessed(name):
    assert direction(name) == NAMES[name]


LINES = {
    "patience alone": ({"patience": 3}, "evaluation.patience = 3 needs evaluation.best"),
    "mode alone": ({"mode": "max"}, "evaluation.mode = max needs evaluation.best"),
    "a federated one": ({"best": "federated_loss"}, "of the clients' own data"),
    "a word of lines": ({"best": "count"}, "is no name of a metric"),
    "nought": ({"best": "loss", "patience": 0}, "evaluation.patience"),
}


@pytest.mark.parametrize("case", LINES)
def test_keys_that_do_not_fit_are_refused_in_one_line(case):
    values, line = LINES[case]
    with pytest.raises(ConfigError) as caught:
        parse_experiment({"evaluation": values})
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_direction_that_no_name_says_is_not_guessed():
    with pytest.raises(ValueError, match=r"write evaluation\.mode=max or evaluation\.mode=min"):
        _ = EvaluationSpec(best="bias").largest_is_best
    assert EvaluationSpec(best="bias", mode="max").largest_is_best


def test_a_configuration_without_these_keys_has_the_bytes_that_it_had():
    usual = b'"evaluation":{"every":1,"batch_size":1000,"federated_every":0,'
    usual += b'"federated_noise_multiplier":null,"federated_max_loss":10.0,'
    usual += b'"federated_metrics":null}'
    assert usual in Experiment().canonical()
    assert usual not in Experiment(evaluation=spec()).canonical(), "the control"
    assert Experiment.from_canonical(Experiment(evaluation=spec()).canonical()).evaluation == spec()
