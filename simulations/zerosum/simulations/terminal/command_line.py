"""Commands whose help is complete and fits the terminal, and that hint at mistyped names once."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import click
import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ParameterInfo

from zerosum.client.nearest_word import nearest
from zerosum.simulations.terminal.help_page import columns, help_page
from zerosum.simulations.terminal.shell_completion import FILES, Completes

HELP_OPTIONS = ["-h", "--help"]


def _format_help(self: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the page, in place of typer's."""
    formatter.write(help_page(self, ctx, columns()))


class Command(TyperCommand):
    """A command with the help of each argument."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        document(self)

    format_help = _format_help


class CommandGroup(TyperGroup):
    """A group of commands with the help of each argument."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        document(self)

    format_help = _format_help

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; a mistyped name is told with the nearest one.

        Typer hints at it, Click from 8.5 on as well, and the two together twice.

        Parameters
        ----------
        ctx : click.Context
            Of the group.
        args : list of str
            Words that follow it.

        Returns
        -------
        tuple of str, click.Command and list of str
            The command, and its own words.

        Raises
        ------
        click.UsageError
            If there is no such command.
        """
        word = args[0]
        if ctx.resilient_parsing or word.startswith("-") or self.get_command(ctx, word):
            return super().resolve_command(ctx, args)
        shown = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        near = nearest(word, shown)
        hint = f"did you mean {near!r}?" if near else f"one of {', '.join(shown)}"
        raise click.UsageError(f"There is no command {word!r}: {hint}", ctx)


class CommandApp(typer.Typer):
    """A typer app of such commands.

    Parameters
    ----------
    help : str
        What the group is for.
    cls : type of CommandGroup
        The group.
    **settings : object
        Further ones of :class:`typer.Typer`.
    """

    def __init__(self, help: str, cls: type[CommandGroup] = CommandGroup, **settings: Any) -> None:
        super().__init__(
            help=help,
            cls=cls,
            context_settings={"help_option_names": HELP_OPTIONS},
            pretty_exceptions_show_locals=False,
            # Usage errors without a box, whose borders cut file names.
            rich_markup_mode=None,
            **{"no_args_is_help": True, "add_completion": False, **settings},
        )

    def command(  # type: ignore[override]
        self, name: str | None = None, **settings: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Make a command of a function, as :meth:`typer.Typer.command` does."""
        return super().command(name, **{"cls": Command, **settings})


def document(command: click.Command) -> None:
    """Give parameters the help and the completion that stand in the function's signature.

    From Click 8.5 on, parameters have a ``help`` of their own. Typer below 0.21, which Flower asks
    for, sets that of an argument before Click's initialisation, which then clears it.

    Parameters
    ----------
    command : click.Command
        Made by typer of a function with annotated parameters.
    """
    if command.callback is None:
        return
    hints = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
    for parameter in command.params:
        hint = hints.get(parameter.name or "")
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        # Typer's own paths complete to nothing, so that its scripts offer files; Click's do not.
        completes = FILES if isinstance(parameter.type, click.Path) else None
        for mark in marks:
            if isinstance(mark, ParameterInfo) and not getattr(parameter, "help", None):
                parameter.help = mark.help
            completes = mark if isinstance(mark, Completes) else completes
        if completes is not None:
            parameter.shell_complete = completes.items  # type: ignore[method-assign]
