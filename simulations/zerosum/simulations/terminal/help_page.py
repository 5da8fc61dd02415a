"""Write the help of a command as plain text that fits the terminal."""

import os
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator

import click

LEAST_COLUMNS, MOST_COLUMNS = 30, 100
"""Widths of a page: words are cut below the first, and lines are hard to follow beyond the second.
"""

INDENT = 2

NAMES_PART = 0.4
"""Of the width, at most for the column of names; a longer name has a line of its own."""

Row = tuple[str, str]


def columns() -> int:
    """Return the width of a page for this terminal: that of COLUMNS, or of standard output."""
    return max(LEAST_COLUMNS, min(shutil.get_terminal_size().columns, MOST_COLUMNS))


def help_page(command: click.Command, ctx: click.Context, width: int) -> str:
    """Return the help of a command: usage, description, arguments, options, commands.

    Click cuts the summaries of commands and takes no terminal for narrower than 50 columns; typer
    draws boxes of columns, one letter wide in a narrow one. Here nothing is cut.

    Parameters
    ----------
    command : click.Command
        Or a group.
    ctx : click.Context
        Its own.
    width : int
        Columns that no line exceeds.

    Returns
    -------
    str
        Lines; headings and names are bold where a terminal can show it.
    """
    blocks = [_usage(command, ctx, width), *_description(command.help or "", width)]
    for title, rows in _sections(command, ctx):
        blocks.append(f"{_bold(f'{title}:')}\n{definitions(rows, width)}")
    return "\n\n".join(block for block in blocks if block)


def definitions(rows: Iterable[Row], width: int, mark: Callable[[str], str] | None = None) -> str:
    """Return names with their meanings beside them, or below where the width is too small.

    Parameters
    ----------
    rows : iterable of pair of str
        Name and meaning.
    width : int
        Columns that no line exceeds.
    mark : callable, optional
        Marks a name, without taking a column; bold where absent.

    Returns
    -------
    str
        Lines, indented.
    """
    rows, mark = list(rows), mark or _bold
    most = max(12, int(width * NAMES_PART))
    names = [len(name) for name, _ in rows if len(name) <= most]
    start = INDENT + max(names, default=0) + 2
    lines: list[str] = []
    for name, meaning in rows:
        text = wrapped(meaning, width - start)
        if len(name) + 2 <= start - INDENT and text:
            padding = " " * (start - INDENT - len(name))
            lines.append(f"{' ' * INDENT}{mark(name)}{padding}{text[0]}")
            text = text[1:]
        else:
            lines += [f"{' ' * INDENT}{mark(part)}" for part in wrapped(name, width - INDENT)]
        lines += [f"{' ' * start}{line}" for line in text]
    return "\n".join(lines)


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines of a width; a word that is longer ends at a sign, if it has one.

    Parameters
    ----------
    text : str
        Spaces and ends of line part its words.
    width : int
        Columns that no line exceeds.

    Returns
    -------
    list of str
        Lines.
    """
    words = [piece for word in text.split() for piece in _pieces(word, width)]
    return textwrap.wrap(" ".join(words), width, break_on_hyphens=False)


def _pieces(word: str, width: int) -> Iterator[str]:
    """Yield a word, or its parts after ``|``, ``,``, ``/``, ``=`` where it is wider than a line."""
    line = ""
    for part in re.findall(r"[^|,/=]*[|,/=]|[^|,/=]+", word):
        if line and len(line) + len(part) > width:
            yield line
            line = ""
        line += part
    yield line


def _usage(command: click.Command, ctx: click.Context, width: int) -> str:
    start = "Usage: "
    words = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    lines = wrapped(words, width - len(start))
    return _bold(start) + f"\n{' ' * len(start)}".join(lines)


def _description(text: str, width: int) -> Iterator[str]:
    """Yield the paragraphs of a docstring."""
    for paragraph in textwrap.dedent(text).strip().split("\n\n"):
        yield "\n".join(wrapped(unmarked(paragraph), width))


def _sections(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, list[Row]]]:
    arguments: list[Row] = []
    options: dict[str, list[Row]] = {}
    for parameter in command.get_params(ctx):
        if isinstance(parameter, click.Argument):
            help_text = getattr(parameter, "help", None) or ""
            arguments.append((parameter.make_metavar(ctx), unmarked(help_text)))
        # Click's own record: that of typer escapes brackets for rich.
        elif isinstance(parameter, click.Option) and (
            record := click.Option.get_help_record(parameter, ctx)
        ):
            title = getattr(parameter, "rich_help_panel", None) or "Options"
            name, meaning = record[0], record[1].removesuffix('[default: ""]')
            options.setdefault(title, []).append((_without_range(name), unmarked(meaning)))
    if arguments:
        yield "Arguments", arguments
    if isinstance(command, click.Group):
        # Before the options: a group's are few, and its commands are what it is asked for.
        commands = [(name, command.get_command(ctx, name)) for name in command.list_commands(ctx)]
        rows = [(name, _summary(each)) for name, each in commands if each and not each.hidden]
        yield "Commands", rows
    yield from options.items()


def _without_range(name: str) -> str:
    """Return ``--seeds INTEGER`` for Click's ``INTEGER RANGE``: the help text has the range."""
    return name.removesuffix(" RANGE")


def _summary(command: click.Command) -> str:
    paragraph = textwrap.dedent(command.short_help or command.help or "").strip()
    return unmarked(paragraph.partition("\n\n")[0])


def unmarked(text: str) -> str:
    """Return a text in one line, without the marks of code."""
    return " ".join(text.replace("`", "").split())


def _bold(text: str) -> str:
    """Mark text, where a terminal shows it; Click takes the mark out where there is no terminal."""
    return text if os.environ.get("TERM") in ("dumb", "unknown") else click.style(text, bold=True)
