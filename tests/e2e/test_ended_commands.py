"""Commands that something ends midway: what is kept, and whether the last line goes on with it."""

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import wait_for
from typer.testing import CliRunner

from zerosum.server.runs.run_folder import METRICS, MODEL, REPORT, SUMMARY, RunFolder
from zerosum.simulations import api, load_experiment
from zerosum.simulations.commands import bench_engine, main, plan
from zerosum.simulations.commands.continuation import run_left
from zerosum.simulations.terminal import progress, round_lines

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = ["digits"]
for setting in (
    *("rounds=3", "data.clients=30", "privacy.delta=1e-2"),
    *("secagg.protocol=ideal", "engine=serial"),
):
    TINY += ["--set", setting]
COMMON = Path(__file__).parents[1] / "common"


@pytest.fixture
def zerosum(tmp_path, monkeypatch):
    """Return a function that runs the command in an empty folder, as one typed it."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["zerosum", *map(str, arguments)])
        return CliRunner().invoke(main.app, [str(each) for each in arguments])

    return run


def last_line(result):
    return shlex.split(result.output.splitlines()[-1])[1:]


def ends_at(monkeypatch, number, error):
    """Let something end a run as its n-th round is told of."""
    describe = round_lines.describe

    def told(record, *others):
        if record["round"] == number:
            raise error
        return describe(record, *others)

    monkeypatch.setattr(round_lines, "describe", told)


def interrupt():
    raise KeyboardInterrupt


FULL = OSError(28, "No space left on device")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), pytest.param(FULL, 1, marks=pytest.mark.slow)]
)
def test_the_last_line_of_an_ended_run_goes_on_to_the_same_bits(
    zerosum, tmp_path, monkeypatch, error, code
):
    assert zerosum("run", *TINY, "--out", "whole").exit_code == 0
    with monkeypatch.context() as patched:
        ends_at(patched, 2, error)
        ended = zerosum("run", *TINY, "--out", "cut here")
    assert ended.exit_code == code
    assert "Traceback" not in ended.output
    assert "2 of 3 rounds are completed and kept in cut here" in ended.output
    assert "2 of 3 rounds" in (tmp_path / "cut here" / REPORT).read_text()
    assert not (tmp_path / "cut here" / SUMMARY).exists()
    assert last_line(ended) == ["run", "--resume", "cut here"]
    assert zerosum(*last_line(ended)).exit_code == 0
    for name in (MODEL, "ledger.jsonl"):
        assert (tmp_path / "cut here" / name).read_bytes() == (
            tmp_path / "whole" / name
        ).read_bytes()


@pytest.mark.slow
def test_a_run_that_is_given_more_rounds_is_told_to_go_on_with_them(zerosum, tmp_path, monkeypatch):
    assert zerosum("run", *TINY, "--set", "rounds=1", "--out", "mine").exit_code == 0
    more = ["run", "--resume", "mine", "--set", "rounds=2"]
    with monkeypatch.context() as patched:
        patched.setattr(api, "plan", lambda experiment: interrupt())
        ended = zerosum(*more)
    assert "1 of 2 rounds are completed" in ended.output
    assert last_line(ended) == more
    assert "This run has finished" not in (tmp_path / "mine" / REPORT).read_text()
    assert zerosum(*last_line(ended)).exit_code == 0
    assert len((tmp_path / "mine" / METRICS).read_text().splitlines()) == 2


@pytest.mark.slow
def test_a_run_that_a_file_gives_more_rounds_is_told_to_go_on_with_that_file(
    zerosum, tmp_path, monkeypatch
):
    assert zerosum("run", *TINY, "--set", "rounds=1", "--out", "mine").exit_code == 0
    written = (tmp_path / "mine" / "config.toml").read_text()
    (tmp_path / "more.toml").write_text(written.replace("rounds = 1\n", "rounds = 2\n", 1))
    more = ["run", "more.toml", "--resume", "mine"]
    with monkeypatch.context() as patched:
        patched.setattr(api, "plan", lambda experiment: interrupt())
        ended = zerosum(*more)
    assert "1 of 2 rounds are completed" in ended.output
    assert last_line(ended) == more
    assert zerosum(*last_line(ended)).exit_code == 0
    assert len((tmp_path / "mine" / METRICS).read_text().splitlines()) == 2


@pytest.mark.slow
def test_a_run_that_is_ended_while_its_table_is_printed_does_not_say_that_nothing_is_kept(
    zerosum, tmp_path, monkeypatch
):
    monkeypatch.setattr(main, "_print_result", lambda result: interrupt())
    ended = zerosum("run", *TINY, "--set", "rounds=1", "--out", "mine")
    assert ended.exit_code == 130
    assert "Nothing is kept" not in ended.output
    assert "1 of 1 rounds are completed and kept in mine" in ended.output
    assert (tmp_path / "mine" / SUMMARY).exists()


@pytest.mark.slow
def test_what_had_not_begun_is_typed_again(zerosum, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(api, "plan", lambda experiment: interrupt())
        ended = zerosum("run", *TINY, "--out", "mine")
    assert "Nothing was begun" in ended.output
    assert last_line(ended) == ["run", *TINY, "--out", "mine"]
    assert not (tmp_path / "mine").exists()
    assert zerosum(*last_line(ended)).exit_code == 0


def test_a_run_whose_noise_cannot_be_drawn_again_is_started_in_another_folder(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "argv", ["zerosum", "run", "digits", "--out", "mine"])
    experiment = load_experiment(
        "digits", ["privacy.exact=true", "privacy.mechanism=discrete-gaussian"]
    )
    folder = RunFolder.create(tmp_path / "mine", experiment)
    lines = run_left(folder.path, experiment.rounds).splitlines()
    assert "This run cannot be continued" in lines[0]
    assert lines[-1] == "zerosum run digits"


def test_a_full_disk_takes_the_report_and_not_the_command(tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path / "mine", load_experiment("digits"))
    folder.append_line(METRICS, {"round": 1})

    def full(descriptor):
        raise FULL

    monkeypatch.setattr(os, "fsync", full)
    lines = run_left(folder.path, 3).splitlines()
    assert "no report: No space left on device" in lines[0]
    assert lines[-1] == f"zerosum run --resume {folder.path}"
    assert not list(folder.path.glob("*.new")), "a part of a file fills the disk"


def test_a_command_that_keeps_nothing_says_so_and_how_to_start_again(zerosum, monkeypatch):
    monkeypatch.setattr("zerosum.simulations.commands.plan.plan", lambda *_, **__: interrupt())
    ended = zerosum("plan", "digits")
    assert ended.exit_code == 130
    assert "Nothing is kept" in ended.output
    assert last_line(ended) == ["plan", "digits"]


AUDIT = ["audit", "digits", "--canaries", "40", "--repetitions", "4", "--set", "seed=3"]


@pytest.mark.slow
def test_an_audit_goes_on_after_the_repetitions_that_are_kept(zerosum, tmp_path, monkeypatch):
    whole = zerosum(*AUDIT, "--json", "whole.json")
    assert whole.exit_code == 0, whole.output
    with monkeypatch.context() as patched:
        stop = {2: interrupt}
        patched.setattr(progress.ProgressBar, "step", lambda bar, number: stop.get(number, int)())
        ended = zerosum(*AUDIT, "--json", "cut.json")
    assert (
        "2 of 4 repetitions are done and kept in cut.json.partial; no verdict yet" in ended.output
    )
    assert not (tmp_path / "cut.json").exists()
    again = zerosum(*last_line(ended))
    assert "repetition 3/4" in again.output
    assert "repetition 2/4" not in again.output
    assert (tmp_path / "cut.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert not (tmp_path / "cut.json.partial").exists()


@pytest.mark.slow
def test_figures_are_written_before_they_are_printed_to_whoever_may_be_gone(
    zerosum, tmp_path, monkeypatch
):
    def gone(*found):
        raise SystemExit(1)  # as rich does where a pipe is closed

    monkeypatch.setattr(plan, "plan_table", gone)
    assert zerosum("plan", *TINY, "--json", "plan.json").exit_code == 1
    assert json.loads((tmp_path / "plan.json").read_text())["population"] == 30
    monkeypatch.setattr(bench_engine, "_print", gone)
    monkeypatch.setattr(bench_engine, "run", lambda *asked, keep, **how: keep([{"turns": 1}]))
    assert zerosum("bench", "engine", "--json", "turns.json").exit_code == 1
    assert json.loads((tmp_path / "turns.json").read_text())[0]["turns"] == 1


@pytest.mark.slow
def test_repetitions_of_another_audit_are_not_gone_on_with(zerosum, tmp_path, monkeypatch):
    (tmp_path / "a.json.partial").write_text('{"audit": "another"}\n{"lower": 99.0}\n')
    assert zerosum(*AUDIT, "--repetitions", "1", "--json", "a.json").exit_code == 0
    assert json.loads((tmp_path / "a.json").read_text())["lower"] != [99.0]


def attack(zerosum, what, out):
    return zerosum(
        *("attack", "odd_attacks:Odd", "--seeds", 3, "--workers", 1),
        *("--set", f"odd.what={what}", "--out", out),
    )


def rows(folder):
    with (folder / "results.csv").open() as file:
        return [{**row, "cpu_seconds": ""} for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.parametrize(("what", "code"), [("interrupt once", 130), ("raise once", 1)])
def test_the_last_line_of_ended_attacks_plays_what_is_left(
    zerosum, tmp_path, monkeypatch, what, code
):
    monkeypatch.syspath_prepend(COMMON)
    (tmp_path / "done once").touch()
    assert attack(zerosum, what, "whole").exit_code == 0
    (tmp_path / "done once").unlink()
    ended = attack(zerosum, what, "cut")
    assert ended.exit_code == code
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cut" / "plays").iterdir()}
    assert len(kept) == (1 if code == 130 else 26)
    assert rows(tmp_path / "cut") != rows(tmp_path / "whole")
    assert last_line(ended) == ["attack", "--resume", "cut"]
    again = zerosum(*last_line(ended), "--workers", "1")  # others load for seconds
    assert again.exit_code == 0, again.output
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    tables = [(tmp_path / name / "table.md").read_text() for name in ("cut", "whole")]
    assert tables[0] == tables[1]
    assert len(list((tmp_path / "cut" / "plays").iterdir())) == 27  # figures are drawn of them
    complete = zerosum("attack", "--resume", "cut")
    assert complete.exit_code == 2
    assert "all was played; draw figures with" in complete.output


@pytest.mark.slow
def test_attacks_that_go_on_are_those_that_were_asked_for(zerosum, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(COMMON)
    attack(zerosum, "interrupt once", "cut")
    cases = {
        "--resume nowhere: it holds no run of attacks": ["--resume", "nowhere"],
        "names, --suite, --seeds, --set, --only, --task and --run are the folder's": [
            "imprint",
            "--resume",
            "cut",
        ],
        "give one of them": ["--resume", "cut", "--out", "other"],
    }
    for said, words in cases.items():
        refused = zerosum("attack", *words)
        assert refused.exit_code == 2
        assert said in refused.output
    asked = tmp_path / "cut" / "attack.json"
    changed = json.loads(asked.read_text()) | {"settings": ["odd.where=a"]}
    asked.write_text(json.dumps(changed))
    assert "were changed since" in zerosum("attack", "--resume", "cut").output
    asked.write_text(json.dumps(changed | {"version": "0.0"}))
    assert "played by zerosum 0.0" in zerosum("attack", "--resume", "cut").output


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_a_signal_ended_goes_on_as_its_last_line_says(tmp_path, sign):
    command = [sys.executable, "-m", "zerosum.simulations.commands.main"]
    settings = ["--set", "rounds=30", "--set", "engine=processes", "--set", "workers=2"]
    said = tmp_path / "said"
    with said.open("w") as file:
        process = subprocess.Popen(
            [*command, "run", "digits", *settings, "--out", "cut"],
            cwd=tmp_path, stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    try:
        wait_for(lambda: (tmp_path / "cut" / METRICS).exists())
        wait_for(lambda: len((tmp_path / "cut" / METRICS).read_text().splitlines()) > 2)
        os.killpg(process.pid, sign)  # as a terminal does
        assert process.wait(30) == 128 + sign
    finally:
        process.kill()
        process.wait()
    told = said.read_text()
    assert "Traceback" not in told
    goes_on = [*command, *shlex.split(told.splitlines()[-1])[1:]]
    subprocess.run(goes_on, cwd=tmp_path, check=True, capture_output=True)
    whole = [*command, "run", "digits", *settings, "--out", "whole"]
    subprocess.run(whole, cwd=tmp_path, check=True, capture_output=True)
    for name in (MODEL, "ledger.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
