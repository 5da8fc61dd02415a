"""A public report says nothing of cohorts: it is the same whatever they were."""

import json
import re
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from zerosum.server.config import ConfigError
from zerosum.server.planning.public_part import SETTINGS, WITHHELD
from zerosum.server.privacy.run_ledger import SECRET_SEED
from zerosum.server.runs.run_folder import METRICS, MODEL, SUMMARY, TEST_SET, RunFolder
from zerosum.server.spec import Experiment
from zerosum.simulations import api
from zerosum.simulations.commands.main import app
from zerosum.simulations.commands.summary import summary_table
from zerosum.simulations.report import write_public_report, write_report
from zerosum.simulations.report.words import COUNTS

SMALL = [
    "rounds=4",
    "data.clients=15",
    "sampling.cohort=10",
    "evaluation.federated_every=2",
    "evaluation.federated_noise_multiplier=1.0",
    "faults.contribute=0.1",
    "privacy.clipping=adaptive",
    "workers=1",
]
RELEASED = {
    "round", "status", "average_norm", "clip", "fraction_within_clip",
    "fraction_within_clip_noise_std", "test_loss", "test_accuracy", "federated_status",
    "federated_loss", "federated_accuracy", "federated_loss_noise_std",
    "federated_accuracy_noise_std",
}  # fmt: skip
"""Functions of what a round released."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path]:
    """Return two runs of equal releases and different cohorts.

    What the second recorded of its own cohorts, clients and machine stands beside the first's
    releases. Nothing else can make two releases equal: noise is never drawn twice alike.
    """
    folders = [tmp_path_factory.mktemp(f"run{seed}") / "run" for seed in (1, 2)]
    for seed, folder in enumerate(folders):
        api.run("digits", overrides=[*SMALL, f"seed={seed + 11}"], out=folder, report=False)
    first, second = folders
    lines = [RunFolder.open(folder).read_lines(METRICS) for folder in folders]
    mixed = []
    for mine, theirs in zip(*lines, strict=True):
        release = {name: mine[name] for name in RELEASED if name in mine}
        other = {name: theirs[name] for name in theirs if name not in RELEASED}
        epsilon = {**theirs["epsilon"], "release": mine["epsilon"]["release"]}
        mixed.append({**release, **other, "epsilon": epsilon})
    RunFolder(second).rewrite_lines(METRICS, mixed)
    summaries = [json.loads((folder / SUMMARY).read_text()) for folder in folders]
    figure = {**summaries[0]["epsilon"]["release"], "participations": 77, "slack": 1e-9}
    summaries[1]["epsilon"]["release"] = figure
    for name in ("metrics", "rounds_abandoned"):
        summaries[1][name] = summaries[0][name]
    RunFolder(second).write_json(SUMMARY, summaries[1])
    for name in (MODEL, TEST_SET):
        (second / name).write_bytes((first / name).read_bytes())
    return first, second


def numbers(value: object, path: str = "") -> dict[str, float]:
    """Return every number of a JSON value by its path."""
    if isinstance(value, dict):
        found = [numbers(each, f"{path}.{key}") for key, each in value.items()]
    elif isinstance(value, list):
        found = [numbers(each, f"{path}.{index}") for index, each in enumerate(value)]
    else:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return {}
        return {path: value}
    return {key: number for each in found for key, number in each.items()}


def differing(runs) -> list[float]:
    """Return the numbers of metrics.jsonl that two runs do not share."""
    here, there = (numbers(RunFolder.open(folder).read_lines(METRICS)) for folder in runs)
    paths = here.keys() | there.keys()
    unlike = [path for path in paths if here.get(path) != there.get(path)]
    return [side[path] for path in unlike for side in (here, there) if path in side]


def texts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.slow
def test_no_number_that_depends_on_cohorts_is_in_a_public_report(runs, tmp_path):
    """Byte for byte the same files: no number of any kind, nor a digit of one, can be a count."""
    for name, folder in zip("ab", runs, strict=True):
        write_public_report(folder, tmp_path / name)
    here, there = texts(tmp_path / "a"), texts(tmp_path / "b")
    tables = {"metrics.jsonl", "metrics.csv", "test-set.json"}
    assert here.keys() == {"report.html", "summary.json", "model.safetensors", *tables}
    assert here == there
    unlike = differing(runs)
    assert len(unlike) > 100
    said = b"".join(text for name, text in here.items() if name != MODEL).decode()
    # Shorter ones (a count, a time to four decimals) occur by chance, as "12" does in a picture.
    long = [repr(number) for number in unlike if len(repr(number)) > 9]
    assert len(long) > 20
    assert not [number for number in long if number in said]
    for folder in runs:  # the control: full reports differ, and show counts
        write_report(folder)
    full = [(folder / "report.html").read_text() for folder in runs]
    assert full[0] != full[1]
    assert all("In the sum" in page and "Dropouts by stage" in page for page in full)


def test_a_field_that_nobody_knows_to_be_public_stays_inside(runs, tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    for path in runs[0].iterdir():
        if path.is_file():
            (folder.path / path.name).write_bytes(path.read_bytes())
    lines = folder.read_lines(METRICS)
    lines = [{**line, "new_count": 4711, "federated_reason": "4711 left"} for line in lines]
    lines[-1]["test_nested"] = {"clients": 4711}
    folder.rewrite_lines(METRICS, lines)
    summary = json.loads((folder.path / SUMMARY).read_text())
    summary["epsilon"]["release"]["assumptions"].append("4711 clients dropped out")
    folder.write_json(SUMMARY, summary | {"new_count": 4711})
    write_public_report(folder, tmp_path / "out")
    assert not [name for name, text in texts(tmp_path / "out").items() if b"4711" in text]


def test_every_setting_is_either_public_or_withheld():
    assert sorted((*SETTINGS, *WITHHELD)) == sorted(Experiment.model_fields)


@pytest.mark.slow
def test_the_seed_is_not_public(tmp_path):
    """Cohorts and noise of a simulation follow from it."""
    api.run("digits", overrides=["rounds=1", "seed=918273645", "workers=1"], out=tmp_path / "run")
    write_public_report(tmp_path / "run", tmp_path / "out")
    assert not [n for n, text in texts(tmp_path / "out").items() if b"918273645" in text]


def test_the_public_figure_is_never_below_the_ledgers(runs, tmp_path):
    """Here a round was abandoned: the plan's figure counts it as opened."""
    write_public_report(runs[0], tmp_path / "out")
    public = json.loads((tmp_path / "out" / SUMMARY).read_text())["epsilon"]
    charged = json.loads((runs[0] / SUMMARY).read_text())["epsilon"]["release"]["value"]
    assert public.keys() == {"release"}
    assert charged <= public["release"]["value"] <= 1.3 * charged
    # Where the ledger has more than the settings give, it is what is stated, rounded up.
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    for path in runs[0].iterdir():
        if path.is_file():
            (folder.path / path.name).write_bytes(path.read_bytes())
    summary = json.loads((folder.path / SUMMARY).read_text())
    summary["epsilon"]["release"]["value"] = 7.123456
    folder.write_json(SUMMARY, summary)
    write_public_report(folder, tmp_path / "more")
    public = json.loads((tmp_path / "more" / SUMMARY).read_text())["epsilon"]["release"]
    assert public["value"] == 7.13
    assert "more clients dropped out" in public["assumptions"][-1]
    # What the plan assumed is what did not hold.
    assert not [n for n in public["assumptions"] if n.startswith(("dropout at", "a round is"))]


def test_a_rate_that_the_run_refuted_is_not_assumed_of_a_figure_that_covers_it(runs, tmp_path):
    folder = RunFolder(shutil.copytree(runs[0], tmp_path / "run"))
    summary = json.loads((folder.path / SUMMARY).read_text())
    release = summary["epsilon"]["release"]
    release["assumptions"] = [
        note.replace("dropout at most 0.1", "dropout at most 0.31")
        for note in release["assumptions"]
    ]
    folder.write_json(SUMMARY, summary)
    write_public_report(folder, tmp_path / "out")
    told = json.loads((tmp_path / "out" / SUMMARY).read_text())["epsilon"]["release"]
    assert not [note for note in told["assumptions"] if note.startswith("dropout at most")]
    assert sum("covers what was charged" in note for note in told["assumptions"]) == 1


def test_what_the_public_figure_assumes_is_said_once_and_names_the_seed(runs, tmp_path):
    write_public_report(runs[0], tmp_path / "out")
    told = json.loads((tmp_path / "out" / SUMMARY).read_text())["epsilon"]["release"]
    assert sum(note.startswith("dropout at most 0.1 a client") for note in told["assumptions"]) == 1
    assert SECRET_SEED in told["assumptions"]


def test_the_model_of_the_run_is_in_it(runs, tmp_path):
    write_public_report(runs[0], tmp_path / "out")
    ours, theirs = (load_file(folder / MODEL) for folder in (tmp_path / "out", runs[0]))
    assert all((ours[name] == theirs[name]).all() for name in theirs)


@pytest.mark.slow
def test_the_full_report_and_the_summary_say_for_whom_the_figure_holds(runs, tmp_path):
    page = write_report(runs[0]).read_text()
    assert page.count(COUNTS) >= 2  # beside the tile and in the table of observers
    cells = [str(cell) for column in summary_table(RunFolder(runs[0]).read_summary())
             .columns for cell in column.cells]  # fmt: skip
    assert COUNTS in cells
    public = write_public_report(runs[0], tmp_path / "out").read_text()
    assert COUNTS not in public
    assert "holds for readers of this report" in public
    assert "epsilon_sum" not in public
    assert "epsilon_local" not in public
    assert not re.search(r"\d+ survivors", public)


@pytest.mark.slow
def test_a_public_report_of_noise_that_counts_survivors_leaves_that_noise_out(tmp_path):
    settings = ["rounds=1", "privacy.model=local", "privacy.noise_multiplier=2.0", "workers=1",
                "evaluation.federated_every=1",
                "evaluation.federated_noise_multiplier=0.5"]  # fmt: skip
    api.run("digits", overrides=settings, out=tmp_path / "run")
    line = RunFolder.open(tmp_path / "run").read_lines(METRICS)[0]
    assert line["federated_accuracy_noise_std"] > 0
    write_public_report(tmp_path / "run", tmp_path / "out")
    public = json.loads((tmp_path / "out" / METRICS).read_text())
    assert "federated_accuracy" in public
    assert not [name for name in public if "noise" in name]


@pytest.mark.parametrize("where", ["run", "run/inside", "."])
def test_a_public_report_is_apart_from_its_run(runs, where):
    out = runs[0].parent / where
    with pytest.raises(ConfigError, match="must not be in one folder"):
        write_public_report(runs[0], out)


def test_nothing_is_overwritten_and_nothing_half_written(runs, tmp_path, monkeypatch):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("mine")
    with pytest.raises(ConfigError, match="is not an empty folder"):
        write_public_report(runs[0], tmp_path / "kept")
    with pytest.raises(ConfigError, match="there is no folder"):
        write_public_report(runs[0], tmp_path / "no" / "out")

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zerosum.simulations.report.public.shutil.copyfile", full)
    with pytest.raises(ConfigError, match="No space left"):
        write_public_report(runs[0], tmp_path / "out")

    def unnumbered(*_args):
        raise OSError("the disk was taken out")

    monkeypatch.setattr("zerosum.simulations.report.public.shutil.copyfile", unnumbered)
    with pytest.raises(ConfigError, match="the disk was taken out"):
        write_public_report(runs[0], tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]


def test_the_command_writes_it_or_says_in_one_line_why_not(runs, tmp_path):
    said = CliRunner().invoke(app, ["report", str(runs[0]), "--public", str(tmp_path / "out")])
    assert said.exit_code == 0
    assert (tmp_path / "out" / "report.html").is_file()
    again = CliRunner().invoke(app, ["report", str(runs[0]), "--public", str(tmp_path / "out")])
    assert again.exit_code == 2


def test_an_empty_folder_that_one_stands_in_or_links_to_takes_a_report(runs, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    monkeypatch.chdir(tmp_path / "here")
    for out, where in ((Path(), "here"), (tmp_path / "link", "there")):
        write_public_report(runs[0], out)
        assert (tmp_path / where / "report.html").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "link", "there"]
    (tmp_path / "inside").symlink_to(runs[0])
    with pytest.raises(ConfigError, match="must not be in one folder"):
        write_public_report(runs[0], tmp_path / "inside" / "out")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("ledger.jsonl", None, "holds no ledger.jsonl"),
        ("ledger.jsonl", '{"kinds":{"train":{"length":1}},"population":1}\n', "is damaged"),
        ("ledger.jsonl", '{"kinds":{"evaluate":{"length":3}},"population":9}\n', "is damaged"),
        (METRICS, "garbage\n", "is damaged"),
        (METRICS, "[]\n", "is damaged"),
        (METRICS, '{"a": 1}\n', "line 1: round: it is missing"),
        (SUMMARY, "{", "is damaged"),
        (SUMMARY, "[1]", "is damaged"),
    ],
)
def test_a_damaged_run_folder_is_one_line_and_no_report(runs, tmp_path, name, content, said):
    run = tmp_path / "run"
    shutil.copytree(runs[0], run)
    (run / name).unlink() if content is None else (run / name).write_text(content)
    told = CliRunner().invoke(app, ["report", str(run), "--public", str(tmp_path / "out")])
    assert (told.exit_code, type(told.exception)) == (2, SystemExit)
    assert said in told.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_run_without_noise_and_one_that_goes_on_have_a_public_report(runs, tmp_path):
    api.run("digits", overrides=["rounds=1", "privacy.model=none", "workers=1"],
            out=tmp_path / "plain")  # fmt: skip
    write_public_report(tmp_path / "plain", tmp_path / "out")
    figure = json.loads((tmp_path / "out" / SUMMARY).read_text())["epsilon"]["release"]
    assert (figure["value"], figure["reason"][:22]) == (None, 'privacy.model = "none"')
    going = tmp_path / "going"
    going.mkdir()
    for name in ("config.toml", "ledger.jsonl", METRICS, MODEL):
        (going / name).write_bytes((runs[0] / name).read_bytes())
    lines = (going / METRICS).read_text().splitlines(keepends=True)
    (going / METRICS).write_text("".join(lines[:2]))
    page = write_public_report(going, tmp_path / "so-far").read_text()
    assert "This run has not finished: 2 of 4 rounds" in page
    assert not (tmp_path / "so-far" / MODEL).exists()
    public = json.loads((tmp_path / "so-far" / SUMMARY).read_text())
    charged = RunFolder(going).read_lines(METRICS)[-1]["epsilon"]["release"]
    assert public["epsilon"]["release"]["value"] >= charged
    assert public["population"] == 15


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["sampling.kind=fixed"],
        ["privacy.top_up=false"],
        ["privacy.unit=example", "privacy.examples=1438", "privacy.delta=1e-4", "privacy.lot=200",
         "encoding.range=4.0", "sampling.kind=everyone"],
    ],
)  # fmt: skip
def test_other_settings_have_one_too(settings, tmp_path):
    api.run("digits", overrides=["rounds=1", "workers=1", *settings], out=tmp_path / "run")
    write_public_report(tmp_path / "run", tmp_path / "out")
    figure = json.loads((tmp_path / "out" / SUMMARY).read_text())["epsilon"]["release"]
    charged = json.loads((tmp_path / "run" / SUMMARY).read_text())["epsilon"]["release"]
    assert (figure["value"] is None) == (charged["value"] is None)
    if charged["value"] is not None:
        assert charged["value"] <= figure["value"]
    assert figure["reason"] is None or figure["value"] is None
