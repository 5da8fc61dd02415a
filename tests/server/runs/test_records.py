"""Records are typed in memory and JSON in the run folder, and lose nothing between the two."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from zerosum.server.config import ConfigError
from zerosum.server.privacy.epsilon_bound import EpsilonBound, no_bound
from zerosum.server.runs.records import (
    Failures,
    RoundRecord,
    Summary,
    bound_document,
    read_bound,
)
from zerosum.server.runs.run_folder import METRICS, SUMMARY, RunFolder

BOUND = EpsilonBound(2.5, 1e-5, 1e-9, "zero_out", "client", "sum", "pld", 3, ("masks hold",))
NONE = no_bound("local", 1e-5, "no noise", unit="client")
ROUND = RoundRecord(
    round=2,
    cohort=9,
    status="completed",
    survivors=8,
    metrics={"test_loss": 0.5, "federated_loss": 0.25},
    federated_status="completed",
    epsilon={"release": 0.5, "local": math.inf, "sum": 2.5},
    seconds=1.5,
)
SUMMARY_OF_IT = Summary(
    name="mine",
    metrics={"test_loss": math.nan},
    rounds=1,
    epsilon={"sum": BOUND, "local": NONE},
    failures=Failures(clients_trained=8),
    data=None,
)


def test_round_is_one_line_with_metrics_as_keys_and_infinity_as_null(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append_round(ROUND)
    assert (tmp_path / METRICS).read_text() == (
        '{"round": 2, "cohort": 9, "status": "completed", "survivors": 8, "test_loss": 0.5, '
        '"federated_status": "completed", "federated_loss": 0.25, '
        '"epsilon": {"sum": 2.5, "local": null, "release": 0.5}, "seconds": 1.5}\n'
    )
    assert folder.read_rounds() == [ROUND]
    assert folder.read_rounds()[0].epsilon["local"] == math.inf


def test_summary_comes_back_as_written(tmp_path):
    folder = RunFolder(tmp_path)
    assert not folder.read_summary()
    folder.write_summary(SUMMARY_OF_IT)
    document = json.loads((tmp_path / SUMMARY).read_text())
    assert list(document) == ["name", "metrics", "rounds", "epsilon", "failures", "data"]
    assert document["epsilon"]["local"]["value"] is None
    assert document["epsilon"]["local"]["reason"] == "no noise"
    read = folder.read_summary()
    assert read.epsilon == {"sum": BOUND, "local": NONE}
    assert math.isnan(read.metrics["test_loss"])
    assert read.failures == Failures(clients_trained=8)


def test_record_reads_by_the_keys_of_its_file():
    assert ROUND["test_loss"] == 0.5
    assert "noise_norm" not in ROUND
    assert ROUND.get("noise_norm") is None
    assert ROUND["epsilon"] == {"sum": 2.5, "local": None, "release": 0.5}
    assert SUMMARY_OF_IT["epsilon"]["sum"]["value"] == 2.5
    assert dict(ROUND) == ROUND
    assert ROUND != SUMMARY_OF_IT


def test_record_with_more_fields_is_another_record():
    more = ROUND | {"noise_norm": 0.5, "test_accuracy": 0.75}
    assert (more.noise_norm, more.metrics["test_accuracy"]) == (0.5, 0.75)
    assert more.epsilon == ROUND.epsilon
    assert ROUND.noise_norm is None
    with pytest.raises(ValidationError, match="frozen"):
        ROUND.survivors = 9  # type: ignore[misc]


FLOATS = st.floats(allow_nan=False)


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(["test_a", "federated_b"]), FLOATS), st.floats(0))
def test_any_line_survives_the_file(tmp_path_factory, metrics, epsilon):
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    record = RoundRecord(round=1, metrics=metrics, epsilon={"sum": epsilon})
    folder.append_round(record)
    assert folder.read_rounds() == [record]
    assert folder.read_rounds()[0].epsilon == {"sum": epsilon}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"round": "1"}, "line 2: round"),
        ({"cohort": 3}, "line 2: round: it is missing"),
        ({"round": 1, "status": "lost"}, "line 2: status"),
        ({"round": 1, "epsilon": {"nobody": 1.0}}, "line 2: epsilon"),
        ({"round": 1, "epsilon": {"sum": "1.0"}}, "line 2: epsilon"),
        ({"round": 1, "epsilon": {"sum": -1.0}}, "line 2: epsilon.sum: .*-1.0 is no epsilon"),
        ({"round": 1, "test_accuracy": "x"}, "line 2: .*test_accuracy = 'x' is no number"),
        ({"round": 1, "test_loss": None}, "line 2: .*test_loss = None is no number"),
    ],
)
def test_damaged_line_is_refused_with_its_number(tmp_path, line, message):
    folder = RunFolder(tmp_path)
    folder.append_round(ROUND)
    folder.append_line(METRICS, line)
    with pytest.raises(ConfigError, match=f"damaged: {message}"):
        folder.read_rounds()


def test_unknown_key_of_a_line_or_a_summary_is_kept_and_logged(tmp_path, caplog):
    folder = RunFolder(tmp_path)
    folder.append_line(METRICS, {"round": 1, "energy": 3, "test_parts": [1]})
    records = folder.read_rounds()
    assert "does not know: energy, test_parts; they are kept" in caplog.text
    folder.rewrite_rounds(records)
    assert json.loads((tmp_path / METRICS).read_text()) == {
        "round": 1, "energy": 3, "test_parts": [1],
    }  # fmt: skip
    folder.write_json(SUMMARY, {"rounds": 1, "energy": 3})
    folder.write_summary(folder.read_summary())
    assert json.loads((tmp_path / SUMMARY).read_text()) == {"rounds": 1, "energy": 3}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in bound_document(BOUND).items() if key != name}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (bound_document(BOUND) | {"only_if": "x"}, "only_if, which this version does not know"),
        (without("assumptions"), "epsilon.sum has no assumptions"),
        (without("unit"), "epsilon.sum has no unit"),
        (bound_document(BOUND) | {"value": "2.5"}, "epsilon.sum.value = '2.5' is no number"),
        (bound_document(BOUND) | {"assumptions": "masks"}, "no list of texts"),
        (bound_document(BOUND) | {"value": None}, "an infinite figure has one"),
        ([2.5], "epsilon.sum is no object"),
        (bound_document(BOUND) | {"value": 10**400}, "epsilon.sum.value is beyond any float"),
        (bound_document(BOUND) | {"delta": -1.0}, "epsilon_sum at delta = -1.0: no probability"),
        (bound_document(BOUND) | {"slack": 1e308}, "epsilon_sum at slack = 1e.308: no prob"),
        (bound_document(BOUND) | {"participations": 2.5}, "participations = 2.5 is no count"),
        (bound_document(BOUND) | {"participations": -1}, "participations = -1 is no count"),
        (bound_document(BOUND) | {"adjacency": [1]}, r"adjacency = \[1\] is no text"),
        (bound_document(BOUND) | {"accountant": {}}, "accountant = {} is no text"),
        (bound_document(BOUND) | {"reason": 0}, "reason = 0 is no text"),
    ],
)
def test_figure_that_is_not_understood_whole_is_refused(tmp_path, document, message):
    with pytest.raises(ValueError, match=message):
        read_bound("sum", document)
    folder = RunFolder(tmp_path)
    folder.write_json(SUMMARY, {"epsilon": {"sum": document}})
    with pytest.raises(ConfigError, match=message):
        folder.read_summary()


def test_epsilon_of_a_round_that_is_no_number_is_refused(tmp_path):
    (tmp_path / METRICS).write_text('{"round": 1, "epsilon": {"sum": NaN}}\n')
    with pytest.raises(ConfigError, match="nan is no epsilon"):
        RunFolder(tmp_path).read_rounds()


def test_deeply_nested_files_are_damaged_files(tmp_path):
    for name, read in ((METRICS, RunFolder.read_rounds), (SUMMARY, RunFolder.read_summary)):
        (tmp_path / name).write_text("[" * 100_000 + "\n")
        with pytest.raises(ConfigError, match=f"{name} is damaged"):
            read(RunFolder(tmp_path))


def test_figure_comes_back_as_written():
    for bound in (BOUND, NONE):
        document = json.loads(json.dumps(bound_document(bound)))
        assert read_bound(bound.observer, document) == bound
