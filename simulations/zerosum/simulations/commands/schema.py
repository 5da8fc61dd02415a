"""``zerosum schema``: a template of domains, from the header line of a table alone."""

from pathlib import Path
from typing import Annotated

import typer

from zerosum.server.config import ConfigError
from zerosum.simulations.terminal.user_errors import is_standard_output, user_errors


def schema(
    data: Annotated[Path, typer.Argument(help="CSV file: its first line alone is read.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Write the template here; - is standard output.", show_default=False),
    ] = None,
) -> None:
    """Write a template of [schema]: domains are declared, never read from data."""
    from zerosum.client.queries.errors import QueryError
    from zerosum.client.queries.schema import template

    with user_errors(ConfigError, QueryError):
        text = template(data)
        if out is None or is_standard_output(out):
            typer.echo(text.rstrip())
            return
        if out.exists():
            raise ConfigError(f"--out {out} exists: choose another file, or delete it")
        try:
            out.write_text(text, encoding="utf-8", newline="\n")
        except OSError as error:
            raise ConfigError(f"--out {out}: {error.strerror or error}") from None
    typer.echo(f"Template {out}: write the domain of each column that may be asked of")
