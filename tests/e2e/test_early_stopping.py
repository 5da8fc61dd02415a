"""A run keeps its best model, ends by patience or by its caller, and goes on to the same bytes."""

import json
import shutil
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from safetensors import safe_open
from safetensors.torch import load_file

from zerosum.client.task import TaskError, resolve_task
from zerosum.server.config import ConfigError
from zerosum.server.planning.spent_budget import run_spending
from zerosum.server.runs.run_folder import BEST, METRICS, MODEL, SUMMARY, TABLE, RunFolder
from zerosum.simulations import Result, api
from zerosum.simulations.commands.summary import summary_table
from zerosum.simulations.config import load_experiment
from zerosum.simulations.report.public import write_public_report
from zerosum.simulations.report.record import read_run
from zerosum.simulations.report.words import outcome

pytestmark = pytest.mark.usefixtures("one_thread")

ROUNDS = 6
SMALL = [
    f"rounds={ROUNDS}", "data.clients=12", "sampling.cohort=6", "training.epochs=1",
    "secagg.protocol=ideal", "privacy.delta=1e-2", "engine=serial",
]  # fmt: skip
KEPT = ["evaluation.best=accuracy"]
WAITS = [*KEPT, "evaluation.patience=2", "evaluation.min_delta=0.9"]
"""No round improves by so much on the first: the run ends with the third."""
TIMED = {"seconds", "stage_seconds", "peak_memory_mb"}


def run(path: Path, *overrides: str, **more) -> Result:
    return api.run("digits", overrides=[*SMALL, *overrides], out=path, report=False, **more)


def untimed(path: Path) -> dict[str, object]:
    """Everything that a run left, without what a clock said."""
    frame = pd.read_csv(path / TABLE)
    timed = [name for name in map(str, frame) if "seconds" in name]
    summary = json.loads((path / SUMMARY).read_text())
    lines = [json.loads(line) for line in (path / METRICS).read_text().splitlines()]
    return {
        "table": frame.drop(columns=timed).to_csv(),
        "summary": {k: v for k, v in summary.items() if k not in TIMED},
        "lines": [{k: v for k, v in line.items() if k not in TIMED} for line in lines],
        **{name: (path / name).read_bytes() for name in (MODEL, BEST) if (path / name).exists()},
    }


def digits():
    experiment = load_experiment("digits")
    return resolve_task("digits", experiment.data, experiment.model, 0)


def stop_at(number: int):
    return lambda record: record.round == number


def values_of(result: Result) -> list[float]:
    return [record.metrics["test_accuracy"] for record in result.rounds]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Result:
    """A run of all rounds, that keeps its best model."""
    return run(tmp_path_factory.mktemp("whole") / "run", *KEPT)


@pytest.mark.slow
def test_the_best_model_is_that_of_the_best_round(whole, tmp_path):
    accuracies = values_of(whole)
    best = int(np.argmax(accuracies)) + 1
    assert whole.best == {
        "metric": "accuracy", "mode": "max", "round": best, "value": max(accuracies),
    }  # fmt: skip
    short = run(tmp_path / "short", f"rounds={best}")
    for name, value in load_file(whole.folder / BEST).items():
        assert np.array_equal(value.numpy(), short.model[name])
    with safe_open(whole.folder / BEST, framework="pt") as file:
        assert json.loads(file.metadata()["zerosum"]) == {"round": best, "metric": "accuracy"}


@pytest.mark.slow
def test_keeping_a_best_model_changes_no_bit_of_the_run(whole, tmp_path):
    plain = run(tmp_path / "plain")
    assert (plain.folder / MODEL).read_bytes() == (whole.folder / MODEL).read_bytes()
    assert values_of(plain) == values_of(whole)
    assert not (plain.folder / BEST).exists()
    assert plain.best is None


def test_the_smallest_loss_is_the_best(tmp_path):
    result = run(tmp_path / "run", "evaluation.best=loss", "rounds=3")
    losses = [record.metrics["test_loss"] for record in result.rounds]
    assert result.best is not None
    assert (result.best.value, result.best.mode) == (min(losses), "min")


def test_patience_ends_a_run_and_every_figure_is_of_all_rounds(whole, tmp_path):
    ended = run(tmp_path / "ended", *WAITS)
    assert len(ended.rounds) == 3
    assert ended.summary["ended_by"] == "patience"
    assert ended.summary["planned_rounds"] == ROUNDS
    release = ended.summary.epsilon["release"]
    assert release.value == pytest.approx(whole.summary.epsilon["release"].value, rel=1e-6)
    assert ended.rounds[-1].epsilon["release"] < 0.9 * release.value, "the control: the odometer"
    for observer, bound in ended.summary.epsilon.items():
        assert bound.value >= whole.summary.epsilon[observer].value * (1 - 1e-6)
        assert f"all {ROUNDS} planned rounds" in " ".join(bound.assumptions)
        spent = run_spending(RunFolder(ended.folder)).observers[observer]
        assert spent.bound.value == pytest.approx(bound.value, rel=1e-9)
    assert values_of(ended) == values_of(whole)[:3]


@pytest.mark.slow
def test_that_a_run_ended_is_said_wherever_its_figures_are(tmp_path):
    ended = run(tmp_path / "ended", *WAITS)
    text = StringIO()
    Console(file=text, width=200).print(summary_table(ended.summary))
    said = " ".join(outcome(read_run(RunFolder(ended.folder))))
    for words in (text.getvalue(), said):
        assert "evaluation.patience" in words
        assert "of all planned rounds: when a run ends tells of its models" in words
        assert BEST in words
    assert "3 of 6 planned rounds" in said
    assert "has not finished" not in said
    plain = StringIO()
    Console(file=plain, width=200).print(summary_table(run(tmp_path / "plain").summary))
    assert "planned" not in plain.getvalue(), "the control: a run of all rounds"


@pytest.mark.parametrize("answer", [True, np.bool_(True)])
def test_a_callback_that_returns_true_ends_the_run(tmp_path, answer, whole):
    result = run(tmp_path / "run", on_round=lambda record: answer if record.round == 2 else None)
    assert (len(result.rounds), result.summary.ended_by) == (2, "caller")
    assert (result.folder / MODEL).is_file()
    assert len(pd.read_csv(result.folder / TABLE)) == 2
    release = result.summary.epsilon["release"].value
    assert release == pytest.approx(whole.summary.epsilon["release"].value, rel=1e-6)
    assert read_run(RunFolder(result.folder)).finished


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("answer", [None, False, 1, "True", [1]])
def test_a_callback_that_returns_anything_else_ends_nothing(tmp_path, answer):
    result = run(tmp_path / "run", "rounds=2", on_round=lambda record: answer)
    assert (len(result.rounds), result.summary.ended_by) == (2, "")


@pytest.mark.slow
def test_an_end_with_the_last_planned_round_is_none(tmp_path, whole):
    result = run(tmp_path / "run", *KEPT, on_round=stop_at(ROUNDS))
    assert untimed(result.folder) == untimed(whole.folder)


@pytest.mark.slow
def test_a_run_that_its_caller_ended_goes_on_to_the_whole_run(tmp_path, whole):
    run(tmp_path / "run", *KEPT, on_round=stop_at(2))
    assert len(api.resume(tmp_path / "run", report=False).rounds) == ROUNDS
    assert untimed(tmp_path / "run") == untimed(whole.folder)


@pytest.mark.slow
def test_a_run_that_patience_ended_is_over_until_patience_is_raised(tmp_path, whole):
    run(tmp_path / "run", *WAITS)
    before = untimed(tmp_path / "run")
    again = api.resume(tmp_path / "run", report=False)
    assert (len(again.rounds), again.summary.ended_by) == (3, "patience")
    assert untimed(tmp_path / "run") == before
    with pytest.raises(ConfigError, match=r"ended after 3 rounds by evaluation\.patience = 2"):
        api.resume(tmp_path / "run", overrides=["rounds=9"], report=False)
    with pytest.raises(ConfigError, match="may only grow, or be taken out"):
        api.resume(tmp_path / "run", overrides=["evaluation.patience=1"], report=False)
    longer = api.resume(tmp_path / "run", overrides=["evaluation.patience=4"], report=False)
    uninterrupted = run(tmp_path / "other", *WAITS[:1], "evaluation.patience=4", WAITS[2])
    assert len(longer.rounds) == 5
    assert untimed(longer.folder) == untimed(uninterrupted.folder)
    free = api.resume(tmp_path / "run", overrides=["evaluation.patience=unset"], report=False)
    assert (free.folder / MODEL).read_bytes() == (whole.folder / MODEL).read_bytes()
    assert free.best == whole.best


class Killed(BaseException):
    """Nothing is cleaned up after it, as after SIGKILL."""


@pytest.mark.quick_one_in(7)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("name", "count"), [(BEST, 1), ("state.safetensors", 2), (BEST, 2), (MODEL, 1), (TABLE, 1)]
)
@pytest.mark.parametrize("settings", [KEPT, WAITS], ids=["whole", "ended"])
def test_a_kill_between_any_two_writes_loses_nothing(
    tmp_path, whole, monkeypatch, name, count, when, settings
):
    replace, seen = Path.replace, []

    def killed(path, target):
        seen.append(Path(target).name)
        dies = seen[-1] == name and seen.count(name) == count
        if dies and when == "before":
            raise Killed
        moved = replace(path, target)
        if dies:
            raise Killed
        return moved

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(Killed):
            run(tmp_path / "run", *settings)
    api.resume(tmp_path / "run", report=False)
    wanted = whole.folder if settings is KEPT else run(tmp_path / "other", *WAITS).folder
    assert untimed(tmp_path / "run") == untimed(wanted)


def test_a_best_model_that_is_gone_is_noticed(tmp_path):
    def stop(record):
        if record.round == 2:
            raise KeyboardInterrupt

    settings = [*KEPT, "evaluation.mode=min"]  # the best is an early one, as likely as not
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", *settings, on_round=stop)
    records = RunFolder(tmp_path / "run").read_rounds()
    first, second = (record.metrics["test_accuracy"] for record in records)
    (tmp_path / "run" / BEST).unlink()
    if second < first:  # the best model is the checkpoint's
        assert api.resume(tmp_path / "run", report=False).best
        return
    with pytest.raises(ConfigError, match=r"best\.safetensors is not the model of round 1"):
        api.resume(tmp_path / "run", report=False)


@pytest.mark.slow
def test_processes_and_seldom_tests_keep_the_same_best_model(tmp_path, whole):
    seldom = ["evaluation.every=2"]
    one = run(tmp_path / "one", *KEPT, *seldom)
    two = run(tmp_path / "two", *KEPT, *seldom, "engine=processes", "workers=2")
    assert one.best == two.best
    assert (one.folder / BEST).read_bytes() == (two.folder / BEST).read_bytes()
    assert one.best is not None
    assert one.best.round % 2 == 0
    assert one.best.value == max(values_of(whole)[1::2])
    waits = run(tmp_path / "waits", *WAITS, *seldom)
    assert len(waits.rounds) == 4, "two rounds after the first test, which is the second's"


@pytest.mark.slow
def test_abandoned_rounds_are_no_rounds_without_improvement(tmp_path):
    lost = ["faults.contribute=0.9", "privacy.honest_fraction=0.9", "secagg.dropout=0"]
    settings = [*KEPT, "evaluation.patience=1", *lost]
    with pytest.raises(api.NothingLearntError) as caught:
        run(tmp_path / "run", *settings)
    result = caught.value.result
    assert len(result.rounds) == ROUNDS
    assert result.best is None, "untrained"
    assert not (tmp_path / "run" / BEST).exists()


REFUSED = {
    "mistyped": ("accurcy", 'have loss, accuracy; did you mean "accuracy"?'),
    "prefixed": ("test_accuracy", 'did you mean "accuracy"?'),
    "absent": ("auc", "have loss, accuracy"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_metric_that_no_test_reports_is_refused_before_the_run(case, tmp_path):
    name, line = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        run(tmp_path / "run", f"evaluation.best={name}")
    assert line in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_task_without_test_data_has_no_best_model(tmp_path, monkeypatch):
    class Untested:
        def __init__(self):
            self.task = digits()

        def __getattr__(self, name):
            return getattr(self.task, name)

        def model(self):
            return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

        def test_data(self):
            return None

    monkeypatch.setattr(api, "resolve_task", lambda *given, **more: Untested())
    with pytest.raises((ConfigError, TaskError), match="no public test data"):
        run(tmp_path / "run", *KEPT)


@pytest.mark.slow
def test_a_public_report_has_the_best_model_and_no_counts(tmp_path):
    ended = run(tmp_path / "ended", *WAITS)
    write_public_report(ended.folder, tmp_path / "public")
    summary = json.loads((tmp_path / "public" / SUMMARY).read_text())
    assert summary["best"]["round"] == ended.summary["best"]["round"]
    assert (summary["ended_by"], summary["planned_rounds"]) == ("patience", ROUNDS)
    stated = summary["epsilon"]["release"]["value"]
    assert stated >= ended.summary.epsilon["release"].value * (1 - 1e-3)
    assert (tmp_path / "public" / BEST).read_bytes() == (ended.folder / BEST).read_bytes()
    columns = set(pd.read_csv(tmp_path / "public" / TABLE))
    assert columns == {"round", "status", "average_norm", "test_loss", "test_accuracy"}
    page = (tmp_path / "public/report.html").read_text()
    assert "evaluation.patience" in page
    assert "of all planned rounds" in page


def test_a_result_is_read_again_from_its_folder_and_loaded(tmp_path, whole):
    again = Result.open(str(whole.folder))
    assert again.summary == whole.summary
    assert again.rounds == whole.rounds
    assert all(np.array_equal(again.model[name], whole.model[name]) for name in whole.model)
    task = digits()
    for best in (False, True):
        model = again.load_into(task.model(), best=best)
        for name, value in load_file(whole.folder / (BEST if best else MODEL)).items():
            assert torch.equal(model.state_dict()[name], value)
    with pytest.raises(ConfigError, match="this Linear: it lacks"):
        again.load_into(torch.nn.Linear(3, 2))
    other = shutil.copytree(whole.folder, tmp_path / "other")
    shutil.copyfile(other / MODEL, other / BEST)
    with pytest.raises(ConfigError, match="is not the model of round"):
        Result.open(other).load_into(task.model(), best=True)
    plain = run(tmp_path / "plain", "rounds=1")
    with pytest.raises(ConfigError, match="kept no best model"):
        plain.load_into(task.model(), best=True)


def test_an_unfinished_run_has_no_result(tmp_path):
    def stop(record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", on_round=stop)
    with pytest.raises(ConfigError, match="zerosum run --resume"):
        Result.open(tmp_path / "run")
    with pytest.raises(ConfigError, match="holds no run"):
        Result.open(tmp_path)
