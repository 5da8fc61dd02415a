"""``zerosum bench all``."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from zerosum.client.nearest_word import did_you_mean
from zerosum.server.config import ConfigError
from zerosum.simulations.bench.all_figures import Part, merged, parts, run
from zerosum.simulations.bench.engine import PEER_LIMIT_SECONDS
from zerosum.simulations.bench.process import BenchError, Values
from zerosum.simulations.partial_results import PartialRows
from zerosum.simulations.terminal.progress import ProgressBar
from zerosum.simulations.terminal.signals import continue_with, interruptible
from zerosum.simulations.terminal.user_errors import (
    check_writable,
    is_standard_output,
    number,
    user_errors,
    write_json,
)


def all_figures(
    json_file: Annotated[Path, typer.Option("--json", help="The file of all figures.")],
    only: Annotated[
        str, typer.Option(help="Parts, with commas; others in the file stay as they are.")
    ] = "",
    rounds: Annotated[int, typer.Option(help="Timed rounds of engines.", min=1)] = 5,
    peers: Annotated[
        Path | None, typer.Option(help="Folder of peers, as bench engine takes it.")
    ] = None,
    peer_limit: Annotated[
        float, typer.Option(help="Seconds that a peer may be waited for.", min=1, callback=number)
    ] = PEER_LIMIT_SECONDS,
) -> None:
    """Measure every figure of the README into one file; about an hour.

    Each part is a command of its own, which the file names beside its figures. Parts are kept as
    they end: an interrupted command is continued by the same one. A part that fails is a line that
    says so.

    Parts: mlp, mlp-epochs, mlp-bf16, mlp-workers, mlp-population, cnn, cnn-bf16, dpsgd, secagg,
    secagg-10, secagg-30, secagg-liars, secagg-sparse, start, run-0, run-1, run-2, inversion.
    """
    console = Console()
    with user_errors(BenchError, ConfigError):
        if peers is not None and not peers.is_dir():
            raise BenchError(f"--peers {peers}: it is a folder that pip install --target filled")
        known = parts(rounds, None if peers is None else peers.resolve(), peer_limit)
        wanted = _chosen(only, known)
        if is_standard_output(json_file):
            raise ConfigError("--json -: parts are added to a file; name one")
        check_writable(json_file)
        before = _before(json_file)
        # Of all parts, not of those that are wanted: --only takes up what any other call kept.
        partial = PartialRows(json_file, " ".join(part.command for part in known))
        done = len({part.name for part in wanted} & {row["part"] for row in partial.rows})
        with (
            interruptible(lambda: _left(partial)),
            ProgressBar(len(wanted), "part", console, done) as bar,
        ):
            figures = run(wanted, partial, show=bar.show, tell=bar.line)
        write_json(json_file, merged(before, figures, {*figures["parts"], *figures["missing"]}))
        partial.remove()
    for name, reason in figures["missing"].items():
        console.print(
            f"{name} is left out: {reason}", markup=False, highlight=False, soft_wrap=True
        )


def _chosen(only: str, known: list[Part]) -> list[Part]:
    names = [part.name for part in known]
    wanted = only.split(",") if only else names
    for name in wanted:
        if name not in names:
            hint = did_you_mean(name, names)
            raise BenchError(f"--only {name}: there are {', '.join(names)}{hint}")
    return [part for part in known if part.name in wanted]


def _before(path: Path) -> Values:
    """Return the figures that a file holds; none where it is new."""
    try:
        figures = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError(f"{path} is no file of figures ({error}); name another") from None
    if not isinstance(figures, dict) or not isinstance(figures.get("parts"), dict):
        raise ConfigError(f"{path} is no file of figures: it has no parts; name another")
    return figures


def _left(partial: PartialRows) -> str:
    return continue_with(f"Parts kept in {partial.path}: {len(partial.rows)}.")
