"""``zerosum bench engine``."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.table import Table

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.spec.training import Precision
from zerosum.server.config import ConfigError
from zerosum.simulations.bench.engine import (
    MASKED,
    MOST_CLIENTS_OF_A_PEER,
    PEER_LIMIT_SECONDS,
    PEERS,
    Contest,
    run,
)
from zerosum.simulations.bench.engine_rows import QUIET, share_of_cores
from zerosum.simulations.bench.measured_turns import MeasuredTurns
from zerosum.simulations.bench.process import BenchError, Values
from zerosum.simulations.commands.completions import words
from zerosum.simulations.terminal.progress import ProgressBar
from zerosum.simulations.terminal.signals import interruptible
from zerosum.simulations.terminal.user_errors import check_writable, number, user_errors

MODELS = ("mlp", "cnn")
TRAINERS = ("auto", "fast", "general", "batched")
VERSUS = ("bare", MASKED, *PEERS)
PRECISIONS = get_args(Precision)
WIDTH_COLUMNS = 110
MOST_WORKERS = 256
MOST_CLIENTS = 10_000_000


def engine(
    model: Annotated[
        str, typer.Option(help=f"{' or '.join(MODELS)}; several with commas."), words(*MODELS)
    ] = "mlp",
    workers: Annotated[
        str, typer.Option(help="Processes of ours, threads of the bare loop; several with commas.")
    ] = "1",
    versus: Annotated[
        str, typer.Option(help=f"What to compare with: {', '.join(VERSUS)}."), words(*VERSUS)
    ] = "bare",
    rounds: Annotated[int, typer.Option(help="Rounds that are timed.", min=1)] = 5,
    clients: Annotated[
        str, typer.Option(help="Clients in all; several with commas compare populations.")
    ] = "1000",
    cohort: Annotated[int, typer.Option(help="Clients in a round.", min=2)] = 100,
    records: Annotated[int, typer.Option(help="Records of a client.", min=1)] = 100,
    epochs: Annotated[int, typer.Option(help="Epochs of a client.", min=1, max=1000)] = 1,
    precision: Annotated[
        str,
        typer.Option(help=f"training.precision of our rows: {' or '.join(PRECISIONS)}."),
        words(*PRECISIONS),
    ] = "float32",
    device: Annotated[str, typer.Option(help="Where all rows train: cpu, cuda or cuda:N.")] = "cpu",
    trainer: Annotated[
        str,
        typer.Option(help=f"Local training of our rows: {', '.join(TRAINERS)}."),
        words(*TRAINERS),
    ] = "auto",
    peers: Annotated[
        Path | None,
        typer.Option(help="Folder that pip install --target put peers in, or one for each inside."),
    ] = None,
    peer_limit: Annotated[
        float, typer.Option(help="Seconds that a peer may be waited for.", min=1, callback=number)
    ] = PEER_LIMIT_SECONDS,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the rows here; - is standard output.")
    ] = None,
) -> None:
    """Compare engines of simulation on the same rounds of federated averaging.

    Records are synthetic, 28x28, of 62 classes; each client of a cohort trains --epochs epochs in
    batches of 20 by SGD at 0.1. mlp is 784-200-62; cnn has two 5x5 convolutions of 32 and 64
    channels, pooling, 512 and 62 units.

    Rows: zerosum is a simulation as zerosum run does it, privacy none, protocol ideal, with
    coordinator, ledger, run folder and checkpoint; zerosum-protected also clips, rounds and adds
    Skellam noise, once a sum; zerosum-masked is the first under protocol pairwise, against a server
    that may lie. bare is the loop that most people write (load_state_dict, optim.SGD, backward,
    step, state_dict), bare-careful the least that PyTorch asks for; both with as many threads as
    there are workers. floor is what the round's multiplications and additions take at the best rate
    of a matrix product measured in the same run. Peers are set up as their own documentation
    advises.

    Each engine has a process of its own and does one round at a time, in turns; the first is not
    timed. Ratios are medians of those of each turn. With one worker, seconds are CPU seconds of all
    threads and processes of an engine, so that ratios hold on a busy machine; with several, and on
    a GPU, they are wall seconds and ask for quiet cores. Memory is watched in one more round: all
    processes of an engine, shared pages once.

    --clients 1000,1000000 measures our rows on either population in the same turns; clients beyond
    the first thousand have the records of those, so that none are made or held.

    A peer that is not done within --peer-limit seconds in all is a line that says so, and the
    rounds that it did are its row.

    With --device cuda every row is of that GPU, and workers is 1: ours trains clients in groups and
    brings each change back to the CPU; the bare loop has all records on the card beforehand.
    --trainer batched does on a CPU what a GPU would do.
    """
    console = Console()
    with user_errors(BenchError, ConfigError):
        chosen = _names("--model", model, MODELS)
        counts = _numbers("--workers", workers, 1, MOST_WORKERS)
        populations = sorted(_numbers("--clients", clients, 2, MOST_CLIENTS))
        _check_precision(precision, device, trainer)
        rivals = _names("--versus", versus, VERSUS)
        _check_device(device, trainer, counts, rivals)
        _check_clients(populations, cohort, rivals)
        if peers is not None and not peers.is_dir():
            raise BenchError(f"--peers {peers}: it is a folder that pip install --target filled")
        if json_file is not None:
            check_writable(json_file)
        measured = MeasuredTurns(rounds, json_file)
        with interruptible(measured.left), ProgressBar(None, "turn", console) as bar:
            contest = Contest(
                workers=counts,
                clients=populations,
                versus=[name for name in rivals if name != "bare"],
                peers=peers,
                peer_limit=peer_limit,
                tell=bar.show,
                wait=bar.show if bar.drawn else bar.line,
            )
            result = run(
                chosen,
                rounds,
                contest,
                records=records,
                cohort=cohort,
                epochs=epochs,
                precision=precision,
                device=device,
                trainer=trainer,
                keep=measured.keep,
            )
        measured.write()  # first: printing fails where the reader has closed the pipe
        # A pipe is taken to have 80 columns, in which names of engines would be cut.
        _print(console if console.is_terminal else Console(width=WIDTH_COLUMNS), result)


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


def _check_precision(precision: str, device: str, trainer: str) -> None:
    """Refuse a precision that this machine or a trainer has not."""
    from zerosum.client.training.precision import missing_bf16  # which imports torch

    if _names("--precision", precision, PRECISIONS) != ["bf16"]:
        return
    if trainer not in ("auto", "fast"):
        raise BenchError(f"--precision bf16: with --trainer {trainer} there is float32")
    reason = missing_bf16(device)
    if reason is not None:
        raise BenchError(f"--precision bf16: {reason}")


def _check_clients(clients: list[int], cohort: int, versus: list[str]) -> None:
    """Refuse a cohort larger than a population, and a population too large for peers."""
    if cohort > min(clients):
        raise BenchError(f"--cohort {cohort}: there are only {min(clients)} clients")
    peers = [name for name in versus if name in PEERS]
    if peers and clients[0] > MOST_CLIENTS_OF_A_PEER:
        raise BenchError(
            f"--versus {peers[0]}: with --clients {clients[0]} there is no peer, which holds all; "
            f"{MOST_CLIENTS_OF_A_PEER} at most"
        )


def _numbers(option: str, text: str, least: int, most: int) -> list[int]:
    for word in text.split(","):
        if not word.isdecimal() or not least <= int(word) <= most:
            raise BenchError(
                f"{option} {word}: numbers from {least} to {most}, separated by commas: "
                f"{least},{least + 1}"
            )
    return list(dict.fromkeys(map(int, text.split(","))))


def _print(console: Console, result: Values) -> None:
    rows = result["rows"]
    several = len({row["clients"] for row in rows}) > 1
    table = Table(title=_title(rows), title_justify="left", box=None, padding=(0, 1))
    columns = ["model", "workers", "engine", *["clients"] * several, "seconds", "of bare"]
    for place, column in enumerate([*columns, "of zerosum", "of floor", "MB"]):
        table.add_column(column, justify="right" if place > 2 else "left")
    for row in rows:
        memory = row["peak_memory_mb"]
        table.add_row(
            row["model"],
            f"{row['workers']}",
            row["engine"] + _detail(row),
            *[f"{row['clients']:,}"] * several,
            f"{row['seconds_per_round']:.3f}",
            f"{row['ratio_to_bare']:.2f}",
            f"{row['ratio_to_zerosum']:.2f}",
            f"{row['ratio_to_floor']:.2f}",
            "" if memory is None else f"{memory:,.0f}",
        )
    console.print(table)
    for line in (*_comparisons(rows), *_busy_cores(rows), *_left_out(result)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _title(rows: list[Values]) -> str:
    clock = {"cpu": "CPU seconds", "wall": "Wall seconds, which ask for quiet cores"}
    where = {row["device"] for row in rows if "device" in row} - {"cpu"}
    first = f"{clock[rows[0]['clock']]}, a round, in turns"
    return ", ".join([first, *(f"on {device}" for device in sorted(where))])


def _detail(row: Values) -> str:
    rate = row.get("gflop_per_s")
    detail = f"{rate:,.0f} GFLOP/s" if rate else row.get("trainer") or row.get("version")
    return f" ({detail})" if detail else ""


def _comparisons(rows: list[Values]) -> Iterator[str]:
    """Yield a line for each row of a larger population, and of more workers than one."""
    fewest = min(row["clients"] for row in rows)
    for row in rows:
        who = f"{row['engine']}, {row['model']}"
        if "ratio_to_fewest_clients" in row:
            yield (
                f"{who}, {row['clients']:,} clients: {row['ratio_to_fewest_clients']:.2f} times "
                f"the round of {fewest:,}"
            )
        if "times_one_worker" in row:
            yield (
                f"{who}, {row['workers']} workers: {row['times_one_worker']:.2f} times as fast "
                "as one"
            )


def _busy_cores(rows: list[Values]) -> Iterator[str]:
    """Yield a line where wall seconds are not of quiet cores."""
    share = share_of_cores(rows)
    if rows and rows[0]["clock"] == "wall" and share < QUIET:
        yield (
            f"Cores are not quiet: they gave {share:.0%} of their time; wall seconds mean little: "
            "measure again when nothing else runs."
        )


def _left_out(result: Values) -> Iterator[str]:
    """Yield a line for each peer that has no row, or not all of its turns."""
    for name, reason in result["missing"].items():
        late = any(row["engine"] == name for row in result["rows"])
        yield f"{name} {'has fewer turns' if late else 'is left out'}: {reason}"
