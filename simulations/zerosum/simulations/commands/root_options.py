"""Options of ``zerosum`` itself: its version, and completion by shells."""

from importlib.metadata import version
from typing import Annotated

import click
import typer

from zerosum.simulations.terminal.shell_completion import Shell, install, script
from zerosum.simulations.terminal.user_errors import user_errors


def _print_version(asked: bool) -> None:
    """Print the installed version, that of pyproject.toml, and end."""
    if asked:
        typer.echo(version("zerosum"))
        raise typer.Exit


def _print_script(ctx: click.Context, shell: str | None) -> None:
    """Print a shell's script, and end."""
    if shell is not None and not ctx.resilient_parsing:
        typer.echo(script(ctx.command, shell), nl=False)
        raise typer.Exit


def _install_script(ctx: click.Context, shell: str | None) -> None:
    """Write a shell's script where the shell reads it, and end."""
    if shell is not None and not ctx.resilient_parsing:
        with user_errors(OSError):
            for path in install(ctx.command, shell):
                typer.echo(f"Written  {path}")
        typer.echo(f"Completion is there in every new {shell}.")
        raise typer.Exit


def root_options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    _shown: Annotated[
        Shell | None,
        typer.Option(
            "--show-completion",
            callback=_print_script,
            is_eager=True,
            help="Print the script by which a shell completes commands, options and values.",
        ),
    ] = None,
    _installed: Annotated[
        Shell | None,
        typer.Option(
            "--install-completion",
            callback=_install_script,
            is_eager=True,
            help="Write that script where the shell reads it at its start.",
        ),
    ] = None,
) -> None:
    """Federated learning with secure aggregation and differential privacy."""
