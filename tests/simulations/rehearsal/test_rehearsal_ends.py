"""A rehearsal whose nodes learnt nothing ends with 1, and with lines of their own logs."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from policies import LEAST_TOML
from typer.testing import CliRunner

from zerosum.server.runs.run_folder import METRICS, SUMMARY
from zerosum.simulations.commands import rehearse as rehearse_command
from zerosum.simulations.commands import rehearse_experiments
from zerosum.simulations.commands.main import app
from zerosum.simulations.rehearsal import processes

FAILED = "ERROR client 0: its answer to round 1 failed"
REFUSED = "WARNING client 1 declined to advertise: the policy's max_clip"


class Built(SimpleNamespace):
    """Stands for the federation: nodes that left logs, and a run of a given status."""

    keys_of_server = ()
    mark = ""

    def start_supernode(self, index, config):
        pass

    def submit(self, app, settings, out):
        return 7

    def run_log(self, run):
        return "the server's log"


@pytest.fixture
def rehearse(tmp_path, monkeypatch):
    """Return a function that rehearses a run that left these records and logs."""

    def rehearse(*, logs, abandoned=0, status="finished:completed", written=True, **facts):
        out, given = tmp_path / "run", tmp_path / "app"
        given.mkdir()
        (given / "pyproject.toml").write_text(
            '[tool.flwr.app.components]\nserverapp = "zerosum.server.flower.server_app:app"\n'
        )
        (given / "policy.toml").write_text(LEAST_TOML)
        summary = {
            "rounds": 2,
            "rounds_abandoned": abandoned,
            "seconds": 1.0,
            "metrics": {},
            "nothing_learnt": "all 2 rounds were abandoned: 0 passed" if abandoned == 2 else None,
        } | facts

        @contextmanager
        def federation(path, nodes, *, apart, tell):
            path.mkdir(parents=True)
            yield Built(folder=path, hosts=range(nodes))

        def until_end(watch, seconds):
            for index, lines in enumerate(logs):
                (watch.built.folder / f"supernode{index}.log").write_text("\n".join(lines))
            if written:
                (out / SUMMARY).write_text(json.dumps(summary))
                (out / METRICS).write_text(json.dumps({"round": 1, "reason": "too few"}) + "\n")
            return status

        monkeypatch.setattr(rehearse_command, "federation", federation)
        monkeypatch.setattr(rehearse_experiments.Watch, "until_end", until_end)
        arguments = ["rehearse", str(given), "--nodes", "2", "--out", str(out)]
        return CliRunner().invoke(app, arguments)

    return rehearse


def test_without_flowers_programs_one_line_says_so_and_nothing_is_begun(
    rehearse, tmp_path, monkeypatch
):
    monkeypatch.setattr(processes, "BIN", tmp_path)
    done = rehearse(logs=[[], []])
    assert done.exit_code == 2
    assert done.output.strip().splitlines() == [
        "error: Flower's programs are not beside this Python (flower-superlink, flower-supernode, "
        f"flwr in {tmp_path}): pip install flwr"
    ]
    assert not (tmp_path / "run").exists()


def test_all_rounds_abandoned_end_it_with_1_though_flower_calls_the_run_failed(rehearse):
    done = rehearse(logs=[[], [REFUSED] * 3], abandoned=2, status="finished:failed")
    assert done.exit_code == 1
    assert "no round was completed: all 2 rounds were abandoned: 0 passed" in done.output
    assert done.output.count(REFUSED) == 1


def test_a_run_that_failed_before_it_wrote_anything_ends_it_with_1(rehearse):
    done = rehearse(logs=[[], []], status="finished:failed", written=False)
    assert done.exit_code == 1
    assert "the run ended as finished:failed" in done.output


def test_a_run_that_failed_after_its_summary_ends_it_with_1(rehearse):
    done = rehearse(logs=[[], []], status="finished:failed")
    assert done.exit_code == 1
    assert "the run ended as finished:failed" in done.output


def test_an_average_of_zero_in_every_round_ends_it_with_1(rehearse):
    why = "the average of each of 2 rounds was zero, so nothing was learnt"
    done = rehearse(logs=[[], []], status="finished:failed", nothing_learnt=why)
    assert done.exit_code == 1
    assert why in done.output


def test_a_metric_that_is_no_number_is_printed_as_such(rehearse):
    done = rehearse(logs=[[], []], metrics={"test_loss": "NaN"})
    assert done.exit_code == 0
    assert "test loss nan" in done.output


def test_no_node_that_ever_trained_ends_it_with_1(rehearse):
    done = rehearse(logs=[[FAILED] * 2, [FAILED] * 2])
    assert done.exit_code == 1
    assert "no node trained in any of 2 rounds" in done.output
    assert FAILED in done.output


def test_one_node_that_fails_is_told_and_ends_nothing(rehearse):
    done = rehearse(logs=[[FAILED] * 2, ["INFO all is well"]])
    assert done.exit_code == 0
    assert f"Failures of training in the nodes' logs: 2; the first: {FAILED}" in done.output


def test_one_node_that_logs_a_failure_at_each_step_is_not_all_nodes(rehearse):
    done = rehearse(logs=[[FAILED] * 9, ["INFO all is well"]])
    assert done.exit_code == 0
    assert "Failures of training in the nodes' logs: 9" in done.output


def test_nodes_that_train_are_not_spoken_of(rehearse):
    done = rehearse(logs=[["client 0: its evaluation in round 1 failed"] * 9, []])
    assert done.exit_code == 0
    assert "Failures" not in done.output


def test_a_metric_of_another_model_than_the_trained_one_says_of_which(rehearse):
    figures = {"metrics": {"test_accuracy": 0.1, "federated_loss": 2.0}}
    done = rehearse(logs=[[], []], untrained=True, earlier_metrics={"federated_loss": 3}, **figures)
    assert "test accuracy 0.1000 (of the untrained model)" in done.output
    assert "federated loss 2.0000 (of the untrained model, of round 3)" in done.output


def test_its_last_lines_name_the_server_the_rounds_and_the_report(rehearse, tmp_path):
    done = rehearse(logs=[[], []], rounds=1, abandoned=1, metrics={"test_accuracy": 0.5})
    wanted = "protected against a malicious server: 1 round, 1 abandoned, 1.0 s a round, test acc"
    assert wanted in done.output
    assert "test accuracy 0.5000\n" in done.output
    assert f"Report      zerosum report {tmp_path / 'run'}\n" in done.output
