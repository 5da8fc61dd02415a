"""``zerosum attack``: from names and settings to a table, a folder and an exit code."""

import csv
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import pytest
from annotated_types import Ge, Le
from rich.console import Console
from typer.testing import CliRunner

from zerosum.server.config import ConfigError
from zerosum.simulations.attacks.harness.interface import Attack, parameters_of
from zerosum.simulations.attacks.harness.parameters import value_of
from zerosum.simulations.attacks.harness.registry import built_in, choose, slug
from zerosum.simulations.attacks.harness.results import Row
from zerosum.simulations.commands.attack import _tables
from zerosum.simulations.commands.main import app

EXAMPLES = Path(__file__).parents[3] / "examples"
MINE = "my_attack:LabelLeak"


@pytest.fixture
def in_examples(monkeypatch):
    monkeypatch.chdir(EXAMPLES)


def attack(*arguments):
    return CliRunner().invoke(app, ["attack", *map(str, arguments)])


@pytest.mark.slow
def test_an_attack_of_ones_own_gets_its_table(in_examples, tmp_path, one_thread):
    done = attack(MINE, "--workers", 1, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "labels right" in done.output
    with (tmp_path / "out" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    plain = next(r for r in rows if r["protection"] == "plain" and r["seed"] == "pooled")
    assert float(plain["value"]) == 1
    assert float(plain["low"]) > 0.9
    assert float(plain["baseline"]) < 0.3
    masked = next(r for r in rows if r["protection"] == "masked" and r["seed"] == "pooled")
    assert masked["status"] == "not applicable"


def test_a_parameter_changes_the_attack(in_examples):
    (changed,) = cast(list[Any], choose([MINE], ["label-leak.lr=1"]))
    assert changed.lr == 1.0
    assert isinstance(changed.lr, float)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-attack"], "is no attack"),
        (["nowhere:Attack"], "No module named 'nowhere'"),
        (["my_attack:PLAIN"], "is no attack"),
        (["numpy:float64"], "it has no name"),
        ([MINE, "--suite", "slow"], "--suite slow: write quick or full"),
        ([MINE, "--set", "label-leak.lr"], "write ATTACK.PARAMETER=VALUE"),
        (["imprnt"], '; did you mean "imprint"?'),
        ([MINE, "--set", "label-leak.lrr=1"], "no 'lrr'; it has lr; did you mean \"lr\""),
        ([MINE, "--set", "label-lek.lr=1"], "'label-lek' is no attack; there are: label-leak; did"),
        ([MINE, "--set", "imprint.bins=1"], "imprint is not played; name it too"),
        ([MINE, "--set", "label-leak.lr=fast"], "lr=fast: it should be a valid number; unset"),
    ],
)
def test_a_mistake_costs_one_line_and_exit_code_2(in_examples, arguments, said):
    done = attack(*arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert "Traceback" not in done.output


@dataclass(frozen=True)
class Set:
    """An attack, as far as ``--set`` sees one: fields of every kind."""

    count: int = 5
    rate: float = 0.5
    shift: float = -1.0
    first: int = 0
    scale: float | None = None
    part: Annotated[float, Ge(0), Le(1)] = 0.5
    target: Annotated[int, Ge(0)] | None = None
    how: Literal["squares", "cosine"] = "squares"
    aware: bool = True
    path: str = ""
    widths: tuple[int, ...] = (8, 8)
    table: np.ndarray | None = None
    name: ClassVar[str] = "set"

    def __post_init__(self):
        if self.count % 2 == 0:
            raise ValueError(f"count = {self.count}: an odd number")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "7", 7),
        ("rate", "2", 2.0),
        ("shift", "-0.5", -0.5),
        ("shift", "3", 3.0),
        ("first", "0", 0),
        ("scale", "2.5", 2.5),
        ("scale", "none", None),
        ("scale", "null", None),
        ("part", "0", 0.0),
        ("target", "0", 0),
        ("how", "cosine", "cosine"),
        ("aware", "false", False),
        ("path", "5", "5"),
        ("path", "none", "none"),
        ("widths", "[4, 2]", (4, 2)),
    ],
)
def test_a_value_that_a_field_takes_is_set(name, text, value):
    found = value_of(cast(Attack, Set()), name, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "texts", "reason"),
    [
        ("count", ["0", "-3"], "should be more than 0; unset it is 5"),
        (
            "count",
            ["1.5", "true", "NaN", "1e400", "many", "", "null"],
            "it should be a valid integer",
        ),
        ("rate", ["0", "-1"], "should be more than 0"),
        ("rate", ["NaN", "Infinity", "1e999", "9" * 400], "it should be a finite number"),
        ("rate", ["nan", "inf", "[1]"], "it should be a valid number"),
        ("shift", ["NaN", "-Infinity"], "it should be a finite number"),
        ("shift", ["low"], "it should be a valid number"),
        ("first", ["-1"], "-1 should be at least 0"),
        ("scale", ["0", "-2"], "should be more than 0; unset it is none"),
        ("scale", ["NaN"], "it should be a finite number"),
        ("scale", ["inf"], "it should be a valid number"),
        ("part", ["1.5"], "it should be less than or equal to 1"),
        ("part", ["-0.1"], "it should be greater than or equal to 0"),
        ("target", ["-1"], "it should be greater than or equal to 0"),
        ("target", ["0.5"], "it should be a valid integer"),
        ("how", ["squarez", "1"], "it should be 'squares' or 'cosine'"),
        ("aware", ["1", "yes", "none"], "it should be a valid boolean; unset it is true"),
        ("widths", ["[4, 0]", "4", '["a"]'], "unset it is (8, 8)"),
        ("table", ["[1]"], "cannot be set from here"),
    ],
)
def test_a_value_that_a_field_does_not_take_is_refused(name, texts, reason):
    for text in texts:
        with pytest.raises(ValueError, match=re.escape(reason)):
            value_of(cast(Attack, Set()), name, text)


def test_what_an_attack_itself_refuses_is_a_users_mistake(monkeypatch):
    monkeypatch.setattr("zerosum.simulations.attacks.harness.registry.built_in", lambda: [Set()])
    with pytest.raises(ConfigError, match=r"--set set.count=4: count = 4: an odd number"):
        choose([], ["set.count=4"])


def test_every_number_of_every_built_in_attack_refuses_what_is_none():
    for each in built_in():
        for name, value in parameters_of(each).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                for text in ("NaN", "Infinity", "-1"):
                    with pytest.raises(ValueError, match="should be"):
                        value_of(each, name, text)


def test_every_built_in_attack_may_be_set_to_what_it_is():
    for each in built_in():
        for name, value in parameters_of(each).items():
            text = value if isinstance(value, str) else json.dumps(value)
            assert value_of(each, name, text) == value


def test_attacks_that_a_setting_makes_equal_are_played_once():
    before = [each for each in built_in() if slug(each) == "gradient-inversion"]
    after = choose(["gradient-inversion"] * 2, ["gradient-inversion.objective=cosine"])
    assert len(after) == len(before) - 1


def test_a_folder_that_is_not_empty_is_left_alone(in_examples, tmp_path):
    (tmp_path / "mine").write_text("mine")
    done = attack(MINE, "--out", tmp_path)
    assert done.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


ODD = "odd_attacks:Odd"


@pytest.fixture
def in_odd(monkeypatch):
    """Change to the folder of attacks in whose way something comes."""
    monkeypatch.chdir(EXAMPLES.parent / "tests" / "common")


def test_a_cell_that_fails_ends_with_exit_code_1_and_a_table(in_odd, tmp_path):
    done = attack(ODD, "--set", "odd.what=raise", "--workers", 1, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "broken on purpose" in done.output
    assert (tmp_path / "out" / "results.csv").exists()


@pytest.mark.slow
def test_a_file_that_cannot_be_written_is_named_at_the_end(in_odd, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zerosum.simulations.attacks.run.write_attack_report", full)
    done = attack(ODD, "--set", "odd.what=nothing", "--workers", 1, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "bits right" in done.output
    assert "error: report.html was not written: No space left on device" in done.output
    assert (tmp_path / "out" / "table.md").exists()


def test_what_an_attack_says_steers_no_terminal_and_breaks_no_table(in_odd, tmp_path):
    done = attack(ODD, "--set", "odd.what=escape", "--workers", 1, "--out", tmp_path / "out")
    assert done.exit_code == 1  # some cells say it as they fail
    assert "\x1b" not in done.output
    assert "\\x1b[31mred | # <b> \\u202e" in done.output
    table = (tmp_path / "out" / "table.md").read_text()
    assert all(line.isprintable() for line in table.split("\n"))
    lines = [line for line in table.split("\n") if "red" in line]
    assert len(lines) == 1 + 3  # below the table, and the cells that failed
    assert all(re.search(r"red \\\| \\# \\<b>", line) for line in lines)
    cells = [line for line in lines if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in cells} == {9}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<b>" not in page
    with (tmp_path / "out" / "results.csv").open(newline="") as file:
        notes = {row["note"] for row in csv.DictReader(file)}
    assert "\x1b[31mred |\n# <b> \u202e" in notes


QUIET = (ODD, "--set", "odd.what=nothing")


def test_words_choose_the_cells_and_a_continued_run_keeps_them(in_odd, tmp_path):
    out = tmp_path / "out"
    done = attack(*QUIET, "--only", "first", "--only", "last b", "--workers", 1, "--out", out)
    assert done.exit_code == 0, done.output
    with (out / "results.csv").open() as file:
        played = {(row["setting"], row["protection"]) for row in csv.DictReader(file)}
    assert played == {("a", "first"), ("b", "first"), ("c", "first"), ("b", "last")}
    assert json.loads((out / "attack.json").read_text())["only"] == ["first", "last b"]
    again = attack("--resume", out, "--only", "first")
    assert again.exit_code == 2
    assert "--only, --task and --run are the folder's" in again.output


def test_words_of_no_cell_are_refused_before_a_folder_is_made(in_odd, tmp_path):
    done = attack(*QUIET, "--only", "frist", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "has 'frist'; did you mean \"first\"?; write words of: first; odd; last" in done.output
    assert not (tmp_path / "out").exists()


def test_a_list_says_what_would_be_played_and_plays_nothing(in_odd, tmp_path):
    done = attack(*QUIET, "--list", "--only", "first", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert done.output.split("\n")[0] == "odd: 3 cells x 3 seeds = 9 plays"
    assert "  a: first" in done.output
    assert "3 cells x 3 seeds = 9 plays in all" in done.output
    assert not (tmp_path / "out").exists()


def test_a_list_says_beforehand_what_the_table_will_lack(in_odd):
    done = attack(*QUIET, "--list", "--seeds", 2)
    assert "2 seeds: too few to say which noise stops an attack; give --seeds 3" in done.output
    assert "too few to say" not in attack(*QUIET, "--list").output  # the control
    listed = attack("differencing", "--list", "--seeds", 2).output.replace("\n", " ")
    assert "too few units for a figure (fewer than 3): differencing: sums of 10" in listed
    names = "imprint", "model-inversion"
    own = attack(*names, "--task", "own_tasks:Values", "--list", "--seeds", 99)
    said = " ".join(own.output.split())
    assert own.exit_code == 0, said
    assert "Attacked was own_tasks:Values. Records are the task's own" in said
    assert "not applicable: model inversion needs images, and a record has the shape (6,)" in said
    assert "8 records each: records for 3 of 99 seeds, which share none" in said


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


PAPER = {"forest-odd.pdf", "table.tex", "attacks.bib"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        lambda out: ["report", out, "--plots", "pdf"],
        lambda out: ["attack", "--resume", out, "--plots", "pdf"],
        lambda out: ["attack", *QUIET, "--plots", "pdf", "--out", out],
    ],
    ids=["report", "resume", "the same again"],
)
def test_figures_are_added_to_a_finished_folder_and_nothing_is_played(
    in_odd, tmp_path, monkeypatch, how
):
    out, whole = tmp_path / "out", tmp_path / "whole"
    assert attack(*QUIET, "--workers", 1, "--out", out).exit_code == 0
    assert attack(*QUIET, "--plots", "pdf", "--workers", 1, "--out", whole).exit_code == 0
    before = files_of(out)
    monkeypatch.setattr("zerosum.simulations.attacks.run.play_all", None)  # nothing is called
    done = CliRunner().invoke(app, list(map(str, how(out))))
    assert done.exit_code == 0, done.output
    assert "files for a paper" in done.output
    after = files_of(out)
    assert before.keys() | PAPER <= after.keys()
    assert {name: after[name] for name in before} == before
    wanted = files_of(whole)
    assert all(after[name] == wanted[name] for name in PAPER)


@pytest.mark.slow
def test_figures_of_what_was_not_played_whole_are_refused_in_a_line(in_odd, tmp_path):
    def said(*arguments):
        done = CliRunner().invoke(app, list(map(str, arguments)))
        assert done.exit_code == 2
        return done.output.replace("\n", " ")

    out = tmp_path / "out"
    assert attack(*QUIET, "--workers", 1, "--out", out).exit_code == 0
    other = said("attack", *QUIET, "--seeds", 1, "--plots", "pdf", "--out", out)
    assert "choose another" in other  # it holds the answer to another request
    assert "all was played; draw figures with zerosum report" in said("attack", "--resume", out)
    assert "--board" in said("report", out, "--board")
    assert "holds no attacks" in said("report", tmp_path, "--plots", "pdf")
    next((out / "plays").iterdir()).unlink()
    lost = said("report", out, "--plots", "pdf")
    assert "1 of 27 plays are not kept in it" in lost
    broken = tmp_path / "broken"
    failed = attack(ODD, "--set", "odd.what=raise", "--workers", 1, "--out", broken)
    assert failed.exit_code == 1
    assert "not all was played; go on with zerosum attack --resume" in said("report", broken)


@pytest.mark.slow
def test_plots_are_files_beside_a_latex_table_and_a_reference(in_odd, tmp_path):
    out = tmp_path / "out"
    done = attack(*QUIET, "--plots", "pdf", "--workers", 1, "--out", out)
    assert done.exit_code == 0, done.output
    assert "Figures 3 files for a paper" in done.output
    assert (out / "forest-odd.pdf").read_bytes().startswith(b"%PDF")
    assert "\\begin{tabular}" in (out / "table.tex").read_text()
    assert (out / "attacks.bib").read_text().startswith("@software{zerosum")
    assert attack(*QUIET, "--plots", "gif").exit_code == 2


@pytest.mark.slow
def test_a_folder_of_before_there_was_a_filter_goes_on(in_odd, tmp_path):
    out = tmp_path / "out"
    broken = attack(ODD, "--set", "odd.what=raise", "--workers", 1, "--out", out)
    assert broken.exit_code == 1
    asked = json.loads((out / "attack.json").read_text())
    del asked["only"]  # as an earlier version wrote it
    (out / "attack.json").write_text(json.dumps(asked))
    again = attack("--resume", out, "--workers", 1)
    assert again.exit_code == 1  # it fails again, and nothing else was played
    assert "broken on purpose" in again.output


@pytest.mark.slow
def test_no_line_of_the_table_is_wider_than_80_columns(in_odd, tmp_path):
    done = attack(*QUIET, "--workers", 1, "--out", tmp_path / "out")
    table = done.output.split("Further metrics")[0]
    assert re.search(r"^odd \(.*\)$", table, flags=re.M)
    assert max(map(len, table.split("\n"))) <= 80
    long = Row(
        "a" * 90, "", "one of many clients, " * 9, "masked + noise " * 6, "outsider", "m" * 70,
        "unit", 1e-9, 1e-10, 1e-8, 1_000_000, 2e-9, False, 3.0, 1e-5, 0.0, "pooled", "0", "value",
        "", "{}",
    )  # fmt: skip
    console = Console(width=80, file=io.StringIO(), highlight=False)
    for part in _tables([long, long], 80):
        console.print(part)
    text = cast(io.StringIO, console.file).getvalue()
    assert max(map(len, text.split("\n"))) <= 80
    assert "1,000,000" in text


def test_a_message_of_a_users_module_steers_no_terminal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "red_attack.py").write_text('raise RuntimeError("\\x1b[31mred")')
    done = attack("red_attack:Red")
    assert done.exit_code == 2
    assert "\x1b" not in done.output
    assert "red" in done.output


@pytest.mark.parametrize("suite", ["quick", "full"])
def test_every_built_in_attack_has_cells_with_names_of_their_own(suite):
    for each in built_in():
        labels = [
            (case.setting.name, case.protection.name, repr(case)) for case in each.cases(suite)
        ]
        assert labels, each.name
        assert len({label[:2] for label in labels}) == len(labels), each.name


def test_every_built_in_attack_is_found_by_its_name():
    for each in built_in():
        assert each in choose([slug(each)])
        assert parameters_of(each) is not None


def test_an_unknown_attack_names_those_there_are():
    with pytest.raises(ConfigError, match="there are: "):
        choose(["nothing"])
