"""All figures in one file: what is asked for, what is kept, what a failing part costs."""

import json
import sys
import time

import pytest
from typer.testing import CliRunner

from zerosum.simulations.bench import all_figures
from zerosum.simulations.bench.all_figures import Part, measured, merged, parts, run
from zerosum.simulations.bench.process import BenchError
from zerosum.simulations.commands.main import app
from zerosum.simulations.partial_results import PartialRows

SMALL = Part("small", ("bench", "secagg", "--n", "4", "--d", "9"), all_figures._rows)


@pytest.fixture
def played(monkeypatch):
    """Replace commands by rows that say which was run; "broken" fails."""
    names = []

    def fake(part, tell):
        names.append(part.name)
        if part.name == "start":
            raise BenchError("No such command")
        return {"part": part.name, "command": part.command, "figures": len(names)}

    monkeypatch.setattr(all_figures, "measured", fake)
    return names


def everything(path, *options):
    words = ["bench", "all", "--json", str(path), *options]
    result = CliRunner().invoke(app, words)
    return result, json.loads(path.read_text()) if path.exists() else None


@pytest.mark.slow
def test_a_part_is_a_command_that_is_run_as_a_user_types_it():
    told: list[str] = []
    row = measured(SMALL, told.append)
    assert row["command"] == "zerosum bench secagg --n 4 --d 9"
    assert row["figures"]["sum_correct"] is True
    assert row["cpu_seconds"] > 0
    assert row["version"]
    assert any("sum correct" in line for line in told)


def test_a_command_that_fails_is_told_by_its_last_line(monkeypatch):
    monkeypatch.setattr(all_figures, "_MAIN", "print('one\\nerror: gone\\n'); raise SystemExit(2)")
    with pytest.raises(BenchError, match=r"^error: gone$"):
        measured(SMALL, lambda line: None)


def test_a_command_that_writes_no_figures_is_told(monkeypatch):
    monkeypatch.setattr(all_figures, "_MAIN", "pass")
    with pytest.raises(BenchError, match=r"zerosum bench secagg --n 4 --d 9 left no figures"):
        measured(SMALL, lambda line: None)


def test_a_command_is_ended_with_what_waits_for_it(monkeypatch):
    monkeypatch.setattr(
        all_figures, "_MAIN", "print('begun', flush=True); import time; time.sleep(99)"
    )

    def ended(line):
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        measured(SMALL, ended)
    assert time.monotonic() - started < 60


def test_every_part_is_measured_and_one_that_fails_is_a_line(tmp_path, played):
    result, figures = everything(tmp_path / "all.json")
    assert result.exit_code == 0, result.output
    names = [part.name for part in parts()]
    assert played == names
    assert list(figures["parts"]) == [name for name in names if name != "start"]
    assert figures["missing"] == {"start": "No such command"}
    assert "start is left out: No such command" in result.output
    assert not list(tmp_path.glob("*.partial"))


def test_the_help_names_every_part():
    help_text = " ".join(CliRunner().invoke(app, ["bench", "all", "--help"]).output.split())
    missing = [part.name for part in parts() if part.name not in help_text]
    assert not missing


def test_parts_that_are_not_asked_for_stay_as_they_were(tmp_path, played):
    path = tmp_path / "all.json"
    everything(path, "--only", "cnn,dpsgd")
    result, figures = everything(path, "--only", "dpsgd,start")
    assert result.exit_code == 0
    assert played == ["cnn", "dpsgd", "dpsgd", "start"]
    assert {name: part["figures"] for name, part in figures["parts"].items()} == {
        "cnn": 1,
        "dpsgd": 3,
    }
    assert list(figures["missing"]) == ["start"]


def test_a_part_that_fails_now_does_not_keep_its_figures_of_before():
    before = {"parts": {"a": 1, "b": 2}, "missing": {"c": "late"}}
    found = {"parts": {"c": 3}, "missing": {"a": "gone"}}
    assert merged(before, found, {"a", "c"}) == {
        "parts": {"b": 2, "c": 3},
        "missing": {"a": "gone"},
    }


def test_an_interrupted_command_is_continued_by_the_same_one(tmp_path, played, monkeypatch):
    path = tmp_path / "all.json"
    whole = all_figures.measured

    def ended(part, tell):
        if part.name == "dpsgd":
            raise KeyboardInterrupt
        return whole(part, tell)

    words = ["bench", "all", "--json", str(path), "--only", "cnn,dpsgd,run-0"]
    monkeypatch.setattr(sys, "argv", ["zerosum", *words])
    monkeypatch.setattr(all_figures, "measured", ended)
    result, figures = everything(path, *words[4:])
    assert (result.exit_code, figures) == (130, None)
    assert "Parts kept in" in result.output
    assert "Continue with:" in result.output
    monkeypatch.setattr(all_figures, "measured", whole)
    result, figures = everything(path, *words[4:])
    assert played == ["cnn", "dpsgd", "run-0"]
    assert list(figures["parts"]) == ["cnn", "dpsgd", "run-0"]


def test_parts_that_another_choice_kept_are_taken_up_too(tmp_path, played):
    path = tmp_path / "all.json"
    kept = PartialRows(path, " ".join(part.command for part in parts()))
    kept.add({"part": "run-1", "command": "zerosum run --seed 1", "figures": 7})
    _, figures = everything(path, "--only", "cnn,run-1")
    assert played == ["cnn"]
    assert {name: part["figures"] for name, part in figures["parts"].items()} == {
        "run-1": 7,
        "cnn": 1,
    }


def test_parts_of_another_command_are_not_taken_up(tmp_path, played):
    target = tmp_path / "all.json"
    wanted = parts(rounds=5)[:1]
    run(wanted, PartialRows(target, wanted[0].command))
    run(parts(rounds=2)[:1], PartialRows(target, parts(rounds=2)[0].command))
    assert played == ["mlp", "mlp"]


def test_a_folder_of_this_machine_is_in_no_command_that_is_kept(tmp_path):
    by_name = {part.name: part for part in parts(peers=tmp_path, peer_limit=9)}
    assert by_name["mlp"].private == ("--peer-limit", "9", "--peers", str(tmp_path))
    assert by_name["mlp-epochs"].private == ()
    assert not any(str(tmp_path) in part.command for part in by_name.values())


def test_packages_of_a_part_stand_behind_those_installed(tmp_path, monkeypatch):
    (tmp_path / "opacus" / "opacus").mkdir(parents=True)
    by_name = {part.name: part for part in parts(peers=tmp_path)}
    assert by_name["dpsgd"].packages == tmp_path / "opacus"
    assert by_name["secagg"].packages is None
    monkeypatch.setattr(all_figures, "_MAIN", "import sys; raise SystemExit(sys.path[-1])")
    with pytest.raises(BenchError, match=str(tmp_path / "opacus")):
        measured(by_name["dpsgd"], lambda line: None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "dpsg"], 'did you mean "dpsgd"?'),
        (["--peers", "nowhere"], "it is a folder"),
    ],
)
def test_a_wrong_option_is_named(tmp_path, played, options, said):
    result, _ = everything(tmp_path / "all.json", *options)
    assert result.exit_code == 2
    assert said in result.output
    assert not played


@pytest.mark.parametrize("text", ["[]", "{}", "not json"])
def test_another_file_is_not_written_over(tmp_path, played, text):
    path = tmp_path / "notes.json"
    path.write_text(text)
    result = CliRunner().invoke(app, ["bench", "all", "--json", str(path)])
    assert result.exit_code == 2
    assert "is no file of figures" in result.output
    assert path.read_text() == text
    assert not played


def test_an_attack_s_figure_is_that_of_its_best_attacker(tmp_path):
    header = "setting,protection,metric,seed,status,value,baseline\n"
    rows = (
        "s,plain,PSNR,pooled,value,40,12\n"
        "s,plain,PSNR,pooled,value,112.9,12\n"
        "s,plain,PSNR,0,value,150,12\n"  # of one seed
        "s,plain,images above 20 dB,pooled,value,1,0\n"
        "s,masked,PSNR,pooled,failed,,\n"
    )
    (tmp_path / "results.csv").write_text(header + rows)
    assert all_figures._of_an_attack(tmp_path) == [
        {"setting": "s", "protection": "plain", "psnr_db": 112.9, "baseline_db": 12.0}
    ]


def test_a_run_s_figures_are_those_of_its_summary(tmp_path):
    summary = {
        "metrics": {"test_accuracy": 0.8, "test_loss": 1.0},
        "epsilon": {"sum": {"value": 14.0}, "local": {"value": None}},
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert all_figures._of_a_run(tmp_path) == {
        "test_accuracy": 0.8,
        "epsilon": {"sum": 14.0, "local": None},
    }
