"""Completion of commands, options and values by bash, zsh and fish."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    shell_complete,
    split_arg_string,
)

from zerosum.client.files.durable_append import replace_file
from zerosum.simulations.terminal.help_page import unmarked
from zerosum.simulations.terminal.printable import shell_command

PROGRAM = "zerosum"

VARIABLE = "_ZEROSUM_COMPLETE"
"""Environment variable by which a shell's script asks for completions."""

Shell = Literal["bash", "zsh", "fish"]
SHELLS: tuple[str, ...] = get_args(Shell)

_LOAD = {"zsh": "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"}
"""What a script needs before it: a bare .zshrc has not loaded the completion system."""

_BREAKS = "=:"
"""Signs at which bash ends a word (COMP_WORDBREAKS): ``data.clients=4`` is three words of it."""

_QUOTES = "'\""


@dataclass(frozen=True)
class Completes:
    """Mark of a parameter, in its ``Annotated``: how its value is completed.

    Attributes
    ----------
    values : callable
        From the beginning of a word to its completions, each a value or a pair of value and
        meaning; with none, files are offered.
    other : str
        What is offered where there are none: "file", "dir", or "" for nothing.
    """

    values: Callable[[str], list[str] | list[tuple[str, str]]]
    other: str = "file"

    def items(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """Return completions, in the form of Click.

        Parameters
        ----------
        ctx : click.Context
            Of the command.
        incomplete : str
            The word so far.

        Returns
        -------
        list of CompletionItem
            Values with their meanings, or one of a type that leaves the word to the shell.
        """
        pairs = [
            (each, None) if isinstance(each, str) else each for each in self.values(incomplete)
        ]
        items = [
            CompletionItem(value, help=None if meaning is None else unmarked(meaning))
            for value, meaning in pairs
            if value.startswith(incomplete)
        ]
        if items or not self.other:
            return items
        return [CompletionItem(incomplete, type=self.other)]


FILES = Completes(lambda incomplete: [], "file")
FOLDERS = Completes(lambda incomplete: [], "dir")


class JoinedWords(BashComplete):
    """Completion of bash, with the words that it breaks at ``=`` and ``:`` joined again."""

    _broken = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the one at it."""
        place = int(os.environ["COMP_CWORD"])
        given = os.environ["COMP_WORDS"].split("\n")[: place + 1]
        given += [""] * (place + 1 - len(given))
        words: list[str] = []
        is_open = False
        for word in given:
            is_break = bool(word) and not word.strip(_BREAKS)
            if words and (is_break or is_open):
                words[-1] += word
            else:
                words.append(word)
            is_open = is_break
        incomplete = words.pop()
        if incomplete[:1] in _QUOTES and incomplete:  # no breaks within quotes
            self._broken, incomplete = "", incomplete[1:]
            return [_unquoted(word) for word in words[1:]], incomplete
        value = incomplete.partition("=")[2] if incomplete.startswith("-") else incomplete
        # Bash replaces what follows the last break; all before it stays as it was typed.
        self._broken = value[: 1 + max(map(value.rfind, _BREAKS))]
        return [_unquoted(word) for word in words[1:]], incomplete

    def format_completion(self, item: "CompletionItem[str]") -> str:
        """Return a line for the script: the type, and what takes the place of bash's word."""
        return f"{item.type},{item.value.removeprefix(self._broken)}"


class WholeMeanings(FishComplete):
    """Completion of fish, whose script in Click cuts a meaning at its first comma."""

    source_template = FishComplete.source_template.replace('split ","', 'split -m 1 ","')


_KINDS: Mapping[str, type[ShellComplete]] = {
    "bash": JoinedWords,
    "zsh": ZshComplete,
    "fish": WholeMeanings,
}


def _unquoted(word: str) -> str:
    return " ".join(split_arg_string(word))


def answer_shell(command: click.Command) -> int | None:
    """Print what a shell's script asks for.

    Parameters
    ----------
    command : click.Command
        The whole program.

    Returns
    -------
    int or None
        Exit code; None where no shell asks.
    """
    instruction = os.environ.get(VARIABLE)
    if not instruction:
        return None
    for kind in _KINDS.values():  # over those of typer, which other apps of this process may set
        add_completion_class(kind)
    try:
        return shell_complete(command, {}, PROGRAM, VARIABLE, instruction)
    except UnicodeEncodeError:
        return 1  # a word in no encoding has no completion, and what is typed is no place to say so


def script(command: click.Command, shell: str) -> str:
    """Return what a shell has to read, once a session, to complete this program's words.

    Parameters
    ----------
    command : click.Command
        The whole program.
    shell : str
        Of SHELLS.

    Returns
    -------
    str
        Click's script.

    Raises
    ------
    click.UsageError
        If there is none for that shell.
    """
    kind = _KINDS.get(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}: {', '.join(SHELLS)}")
    return _LOAD.get(shell, "") + kind(command, {}, PROGRAM, VARIABLE).source().strip() + "\n"


def install(command: click.Command, shell: str) -> list[Path]:
    """Write the script where a shell reads it at its start.

    Parameters
    ----------
    command : click.Command
        The whole program.
    shell : str
        Of SHELLS.

    Returns
    -------
    list of Path
        The files that were written: the script, and the start file that reads it now.
    """
    text = script(command, shell)
    if shell == "fish":  # it reads a folder
        config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        return [_written(config / "fish" / "completions" / f"{PROGRAM}.fish", text)]
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    made = _written(data / PROGRAM / f"completion.{shell}", text)
    folder = os.environ.get("ZDOTDIR") if shell == "zsh" else None
    start = Path(folder or Path.home()) / f".{shell}rc"
    line = f"source {shell_command([str(made)])}  # completion of {PROGRAM}"
    before = start.read_text(encoding="utf-8", errors="surrogateescape") if start.exists() else ""
    if line in before.splitlines():
        return [made]
    gap = "" if not before or before.endswith("\n") else "\n"
    with start.open(
        "a", encoding="utf-8", newline="\n"
    ) as file:  # appended: whatever else is there stays
        file.write(f"{gap}{line}\n")
    return [made, start]


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode())
    return path
