"""The help of every command is whole at any width, and names every argument and option."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Annotated

import click
import pytest
import typer
from click.testing import CliRunner

from zerosum.simulations.commands.main import app
from zerosum.simulations.terminal.command_line import HELP_OPTIONS, document
from zerosum.simulations.terminal.help_page import definitions, help_page, wrapped

ROOT = typer.main.get_command(app)

Context = click.Context


def walk(command: click.Command, context: Context) -> Iterator[tuple[click.Command, Context]]:
    yield command, context
    if isinstance(command, click.Group):
        for name in command.commands:  # those that are not shown, too
            yield from walk(command.commands[name], Context(command.commands[name], context, name))


def root() -> Context:
    # The option is made once a command, of the names in the first context that asks for it.
    return Context(ROOT, info_name="zerosum", help_option_names=HELP_OPTIONS)


COMMANDS = [
    pytest.param(command, context, id=context.command_path)
    for command, context in walk(ROOT, root())
]

WHOLE = 500
"""Columns at which nothing is wrapped."""


def letters(page: str) -> str:
    return "".join(click.unstyle(page).split())


def test_all_commands_are_walked() -> None:
    paths = {context.command_path for _, context in walk(ROOT, root())}
    assert {"zerosum run", "zerosum query count", "zerosum bench secagg"} < paths
    assert {"zerosum keys new", "zerosum roster add", "zerosum query plan"} < paths


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(("command", "context"), COMMANDS)
def test_every_argument_and_option_has_a_meaning(command: click.Command, context: Context) -> None:
    page = click.unstyle(help_page(command, context, WHOLE))
    assert command.help
    for parameter in command.get_params(context):
        help_text = getattr(parameter, "help", None)
        assert help_text, parameter.name
        assert help_text.replace("`", "") in page, parameter.name
    if isinstance(command, click.Group):
        shown = [each for each in command.commands.values() if not each.hidden]
        for each in shown:
            first = " ".join((each.help or "").partition("\n\n")[0].split())
            assert first.replace("`", "") in page, each.name
            assert not first.endswith("...")


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(("command", "context"), COMMANDS)
def test_no_line_is_wider_than_the_terminal_and_no_text_is_lost(
    command: click.Command, context: Context
) -> None:
    whole = help_page(command, context, WHOLE)
    for width in (80, 60, 40):
        page = click.unstyle(help_page(command, context, width))
        assert max(map(len, page.splitlines())) <= width
        assert letters(page) == letters(whole)
        assert "…" not in page


def test_no_word_is_cut_at_40_columns() -> None:
    shown = click.unstyle(help_page(ROOT, root(), 40))
    whole = set(click.unstyle(help_page(ROOT, root(), WHOLE)).split())
    assert {word for line in shown.splitlines() for word in line.split()} <= whole


def test_a_word_wider_than_the_line_ends_at_a_sign() -> None:
    assert wrapped("--kind [auto|rr|hadamard]", 12) == ["--kind", "[auto|rr|", "hadamard]"]
    assert max(map(len, wrapped("x" * 50, 20))) == 20


def test_a_name_without_room_stands_above_its_meaning() -> None:
    rows = [("a", "short"), ("a-name-that-is-too-long", "long")]
    assert definitions(rows, 40, mark=str).splitlines() == [
        "  a  short",
        "  a-name-that-is-too-long",
        "     long",
    ]


def test_help_that_typer_loses_is_given_back() -> None:
    def act(name: Annotated[str, typer.Argument(help="Its meaning.")]) -> None: ...

    bare = typer.Typer()
    bare.command()(act)
    command = typer.main.get_command(bare)
    command.params[0].help = None  # as Click 8.5 leaves it under typer 0.20
    context = Context(command, info_name="act")
    assert "Its meaning." not in help_page(command, context, WHOLE)  # the control
    document(command)
    assert "Its meaning." in help_page(command, context, WHOLE)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(("command", "context"), COMMANDS)
def test_each_command_answers_both_spellings_of_help(
    command: click.Command, context: Context
) -> None:
    words = context.command_path.split()[1:]
    short, long = (
        CliRunner().invoke(ROOT, [*words, ask], prog_name="zerosum") for ask in HELP_OPTIONS
    )
    assert short.exit_code == long.exit_code == 0
    assert short.output == long.output
    assert short.output.startswith(f"Usage: {context.command_path}")
    assert "-h, --help" in short.output
    assert "\x1b" not in short.output


def test_version_is_printed() -> None:
    done = CliRunner().invoke(ROOT, ["--version"])
    assert done.output.strip() == version("zerosum")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (["ruun"], "did you mean 'run'?"),
        (["bench", "nois"], "did you mean 'noise'?"),
        (["query", "cuont"], 'did you mean "count"?'),
        (["keys", "shwo"], "did you mean 'show'?"),
        (["run", "--sed", "3"], "--seed"),
        (["xyzzy"], "one of new, run,"),
    ],
    ids=" ".join,
)
def test_a_mistyped_name_is_hinted_at_once(given: list[str], hint: str) -> None:
    done = CliRunner().invoke(ROOT, given)
    assert done.exit_code == 2
    assert done.output.count(hint) == 1
    assert done.output.lower().count("did you mean") <= 1
