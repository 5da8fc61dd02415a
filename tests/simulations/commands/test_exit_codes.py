"""A user's mistake ends every command with 2, in words and without a traceback."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from click.testing import CliRunner, Result

from zerosum.simulations.commands.main import app

ROOT = typer.main.get_command(app)


def leaves(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from leaves(each, (*words, name))
    else:
        yield words


def command_of(words: tuple[str, ...]) -> click.Command:
    command: click.Command = ROOT
    for word in words:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    return command


LEAVES = list(leaves(ROOT))

NUMBERS = [
    (*words, parameter.opts[0], "many")
    for words in LEAVES
    for parameter in command_of(words).params
    if isinstance(parameter, click.Option)
    and isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType)
]

WITH_JSON = [
    words
    for words in LEAVES
    if any("--json" in parameter.opts for parameter in command_of(words).params)
]

NEEDED = {
    ("budget",): ["{run}"],
    ("query", "plan"): ["{run}/queries.toml"],
    ("query", "histogram"): ["sex", "--epsilon", "1"],
    ("query", "bayes"): ["income", "--epsilon", "1"],
    ("query", "marginals"): ["race,sex", "--epsilon", "1"],
    ("query", "count"): ["--epsilon", "1"],
} | {
    ("query", kind): ["age", "--epsilon", "1"]
    for kind in ("mean", "sum", "variance", "quantile", "words", "oracle")
}
"""Words that a command has to be given before it looks at ``--json``."""


def asked(*words: str) -> Result:
    return CliRunner().invoke(ROOT, [*words], prog_name="zerosum")


def refused(*words: str) -> str:
    done = asked(*words)
    assert done.exit_code == 2, (done.output, done.exception)
    assert isinstance(done.exception, SystemExit)
    assert "Traceback" not in done.output
    assert "rror: " in done.output
    return done.output


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_an_unknown_option_is_a_mistake(words: tuple[str, ...]) -> None:
    assert "--no-such-option" in refused(*words, "--no-such-option")


@pytest.mark.quick_one_in(7)
@pytest.mark.parametrize("words", NUMBERS, ids=" ".join)
def test_a_word_for_a_number_is_a_mistake(words: tuple[str, ...]) -> None:
    assert "many" in refused(*words)


@pytest.mark.parametrize("words", [w for w in WITH_JSON if w != ("bench", "all")], ids=" ".join)
def test_a_json_file_in_no_folder_is_a_mistake(words: tuple[str, ...], tmp_path: Path) -> None:
    given = [each.format(run=tmp_path) for each in NEEDED.get(words, [])]
    assert "create it first" in refused(*words, *given, "--json", str(tmp_path / "no" / "file"))


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    "words",
    [
        ["run", "no-such.toml"],
        ["run", "--resume", "nowhere"],
        ["run", "--set", "rounds=-1"],
        ["run", "--out", "a", "--resume", "b"],
        ["plan", "no-such.toml"],
        ["audit", "--run", "nowhere"],
        ["sweep", "no-such.toml"],
        ["sweep", "--set", "rouns=1,2"],
        ["sweep", "--seeds", "4-0"],
        ["sweep", "--resume", "nowhere"],
        ["compare", "nowhere"],
        ["compare"],
        ["report", "nowhere"],
        ["budget", "nowhere"],
        ["attack", "no-such-attack"],
        ["attack", "--suite", "slow"],
        ["attack", "--resume", "nowhere"],
        ["new", "bad/name!"],
        ["new", "app", "--data", "nowhere.csv"],
        ["new"],
        ["schema", "nowhere.csv"],
        ["rehearse", "nowhere"],
        ["keys", "show", "nowhere"],
        ["keys"],
        ["roster", "add", "roster", "0=7", "--authority", "nowhere"],
        ["query", "no-such.toml"],
        ["query", "count"],
        ["query", "count", "--epsilon", "1", "--csv", "-"],
        ["query", "--resume", "nowhere"],
        ["bench", "all", "--json", "-"],
        ["bench", "all", "--json", "f.json", "--only", "nothing"],
        ["bench", "secagg", "--server", "evil"],
        ["bench", "engine", "--model", "rnn"],
        ["list", "nonsense"],
        ["--show-completion", "tcsh"],
    ],
    ids=" ".join,
)
def test_a_mistake_ends_with_2(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if words == ["keys"]:
        assert asked(*words).exit_code == 2  # the help, for want of a command
    else:
        refused(*words)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_json_to_standard_output_is_alone_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ["--population", "100", "--dimension", "50"]
    done = asked("plan", "digits", *sizes, "--json", "-")
    assert json.loads(done.stdout)["population"] == 100
    assert "per client and round" in done.stderr
    assert not list(tmp_path.iterdir())
    # The control: without it the table is on standard output.
    assert "per client and round" in asked("plan", "digits", *sizes).stdout
