"""``zerosum bench engine``."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from zerosum.client.nearest_word import did_you_mean
from zerosum.server.config import ConfigError
from zerosum.simulations.bench.engine import MASKED, PEERS, run
from zerosum.simulations.bench.measured_turns import MeasuredTurns
from zerosum.simulations.bench.process import BenchError, Values
from zerosum.simulations.terminal.progress import ProgressBar
from zerosum.simulations.terminal.signals import interruptible
from zerosum.simulations.terminal.user_errors import check_writable, user_errors

MODELS = ("mlp", "cnn")
TRAINERS = ("auto", "fast", "general", "batched")
VERSUS = ("bare", MASKED, *PEERS)
MOST_WORKERS = 256


def engine(
    model: Annotated[
        str, typer.Option(help=f"{' or '.join(MODELS)}; several with commas.")
    ] = "mlp",
    workers: Annotated[
        str, typer.Option(help="Processes of ours, threads of the bare loop; several with commas.")
    ] = "1",
    versus: Annotated[
        str, typer.Option(help=f"What to compare with: {', '.join(VERSUS)}.")
    ] = "bare",
    rounds: Annotated[int, typer.Option(help="Rounds that are timed.", min=1)] = 5,
    clients: Annotated[int, typer.Option(help="Clients in all.", min=2)] = 1000,
    cohort: Annotated[int, typer.Option(help="Clients in a round.", min=2)] = 100,
    records: Annotated[int, typer.Option(help="Records of a client.", min=1)] = 100,
    device: Annotated[str, typer.Option(help="Where all rows train: cpu, cuda or cuda:N.")] = "cpu",
    trainer: Annotated[
        str, typer.Option(help=f"Local training of our rows: {', '.join(TRAINERS)}.")
    ] = "auto",
    peers: Annotated[
        Path | None,
        typer.Option(help="Folder that pip install --target put peers in, if not installed here."),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
) -> None:
    """Compare engines of simulation on the same rounds of federated averaging.

    Records are synthetic, 28x28, of 62 classes; each client of a cohort trains one epoch in
    batches of 20 by SGD at 0.1. mlp is 784-200-62; cnn has two 5x5 convolutions of 32 and 64
    channels, pooling, 512 and 62 units.

    Rows: zerosum is a simulation as zerosum run does it, privacy none, protocol ideal, with
    coordinator, ledger, run folder and checkpoint; zerosum-protected also clips, rounds and adds
    Skellam noise, once a sum; zerosum-masked is the first under protocol pairwise, against a server
    that may lie, each client masking with all others of a small cohort. bare is a careful PyTorch
    loop that averages models, with as many threads as there are workers. floor is what the round's
    multiplications and additions take at the best rate of a matrix product measured in the same
    run. Peers are set up as their own documentation advises.

    Each engine has a process of its own and does one round at a time, in turns; the first is not
    timed. Ratios to the bare loop are medians of those of each turn, so that they hold on a busy
    machine. Memory is watched in one more round: all processes of an engine, shared pages once.

    With --device cuda every row is of that GPU, and workers is 1: ours trains clients in groups and
    brings each change back to the CPU; the bare loop has all records on the card beforehand.
    --trainer batched does on a CPU what a GPU would do.
    """
    console = Console()
    with user_errors(BenchError, ConfigError):
        chosen = _names("--model", model, MODELS)
        counts = [_count(text) for text in workers.split(",")]
        rivals = _names("--versus", versus, VERSUS)
        _check_device(device, trainer, counts, rivals)
        if cohort > clients:
            raise BenchError(f"--cohort {cohort}: there are only {clients} clients")
        if peers is not None and not peers.is_dir():
            raise BenchError(f"--peers {peers}: it is a folder that pip install --target filled")
        if json_file is not None:
            check_writable(json_file)
        measured = MeasuredTurns(rounds, json_file)
        with interruptible(measured.left), ProgressBar(None, "turn", console) as bar:
            result = run(
                chosen,
                list(dict.fromkeys(counts)),
                [name for name in rivals if name != "bare"],
                rounds,
                clients=clients,
                records=records,
                cohort=cohort,
                device=device,
                trainer=trainer,
                extra=peers,
                tell=bar.show,
                keep=measured.keep,
            )
        measured.write()  # first: printing fails where the reader has closed the pipe
        _print(console, result)


def _names(option: str, text: str, allowed: Collection[str]) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            raise BenchError(f"{option} {name}: there are {', '.join(allowed)}{hint}")
    return names


def _check_device(device: str, trainer: str, workers: list[int], versus: list[str]) -> None:
    """Refuse what a device or a trainer does not go with."""
    from zerosum.client.training.devices import here, missing  # which imports torch

    _names("--trainer", trainer, TRAINERS)
    reason = missing(device)
    if reason is not None:
        raise BenchError(f"--device {device}: {reason}; there are {', '.join(here())}")
    if device != "cpu" and trainer == "fast":
        raise BenchError("--trainer fast: on a GPU there are auto, batched, general")
    if (device != "cpu" or trainer == "batched") and workers != [1]:
        raise BenchError(f"--workers {workers[-1]}: clients are trained in groups by 1 process")
    peers = [name for name in versus if name in PEERS]
    if device != "cpu" and peers:
        raise BenchError(f"--versus {peers[0]}: on a GPU there is bare")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_WORKERS:
        raise BenchError(
            f"--workers {text}: numbers from 1 to {MOST_WORKERS}, separated by commas: 1,2"
        )
    return int(text)


def _print(console: Console, result: Values) -> None:
    where = {row["device"] for row in result["rows"] if "device" in row} - {"cpu"}
    title = ", ".join(["Seconds a round, in turns", *(f"on {device}" for device in sorted(where))])
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1))
    columns = ("model", "workers", "engine", "seconds", "of bare", "of floor", "MB")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place > 2 else "left")
    for row in result["rows"]:
        rate, memory = row.get("gflop_per_s"), row["peak_memory_mb"]
        detail = f"{rate:,.0f} GFLOP/s" if rate else row.get("trainer")
        table.add_row(
            row["model"],
            f"{row['workers']}",
            row["engine"] + (f" ({detail})" if detail else ""),
            f"{row['seconds_per_round']:.3f}",
            f"{row['ratio_to_bare']:.2f}",
            f"{row['ratio_to_floor']:.2f}",
            "" if memory is None else f"{memory:,.0f}",
        )
    console.print(table)
    for name, reason in result["missing"].items():
        console.print(
            f"{name} is left out: {reason}", markup=False, highlight=False, soft_wrap=True
        )
