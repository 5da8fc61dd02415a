"""``zerosum bench``."""

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from zerosum.server.config import ConfigError
from zerosum.simulations.bench.measured_turns import MeasuredTurns
from zerosum.simulations.bench.process import BenchError, Values, measure
from zerosum.simulations.commands.bench_all import all_figures
from zerosum.simulations.commands.bench_engine import engine
from zerosum.simulations.commands.bench_start import start
from zerosum.simulations.commands.bench_versus import figure_table, versus_flower
from zerosum.simulations.commands.completions import words
from zerosum.simulations.terminal.command_line import CommandApp
from zerosum.simulations.terminal.progress import ProgressBar
from zerosum.simulations.terminal.signals import interruptible
from zerosum.simulations.terminal.user_errors import (
    JsonFile,
    check_writable,
    number,
    user_errors,
    write_json,
)

bench_app = CommandApp("Measure what secure aggregation and privacy cost.")


class Rival(StrEnum):
    """Other implementation to compare a session with."""

    FLOWER = "flower"


@bench_app.callback()
def _root() -> None:
    """Measure what secure aggregation and privacy cost."""


bench_app.command("all")(all_figures)
bench_app.command()(engine)
bench_app.command()(start)


@bench_app.command()
def deployment(
    nodes: Annotated[int, typer.Option(help="SuperNodes.", min=2, max=32)] = 3,
    rounds: Annotated[
        int, typer.Option(help="Rounds of a run; all but the first are steady.", min=2)
    ] = 4,
    repeats: Annotated[int, typer.Option(help="Runs of each kind.", min=1)] = 2,
    json_file: JsonFile = None,
) -> None:
    """Compare masked rounds with Flower's plain averaging, on real SuperNodes of this machine.

    Rounds of the own app, and of the plain app made private by its two lines. All over TLS, with
    registered nodes, in turns on one federation; digits, two epochs.
    """
    from zerosum.simulations.bench.deployment import run

    console = Console()
    with user_errors(BenchError, ConfigError):
        if json_file is not None:
            check_writable(json_file)
        measured = MeasuredTurns(repeats, json_file)
        with interruptible(measured.left), ProgressBar(None, "turn", console) as bar:
            result = run(nodes, rounds, repeats, tell=bar.show, keep=measured.keep)
        measured.write()  # first: printing fails where the reader has closed the pipe
        for row in result["rows"]:
            console.print(
                f"{row['rounds']:23} {row['seconds_per_round']:7.1f} s a round, "
                f"{row['ratio_to_plain']:.2f} of plain",
                highlight=False,
            )


@bench_app.command()
def secagg(
    n: Annotated[int, typer.Option("--n", help="Clients.", min=2)] = 100,
    d: Annotated[int, typer.Option("--d", help="Coordinates of a vector.", min=1)] = 100_000,
    dropout: Annotated[
        float, typer.Option(help="Fraction of clients that vanish before they contribute.")
    ] = 0.0,
    corruption: Annotated[
        float, typer.Option(help="Fraction of clients that collude.", callback=number)
    ] = 0.05,
    server: Annotated[
        str, typer.Option(help="malicious or semi-honest."), words("malicious", "semi-honest")
    ] = "malicious",
    degree: Annotated[
        str,
        typer.Option(help="Neighbours: auto, complete or a number."),
        words("auto", "complete"),
    ] = "auto",
    threshold: Annotated[int | None, typer.Option(help="Shares that recover a secret.")] = None,
    bits: Annotated[int, typer.Option(help="Bits of a value.", min=1, max=48)] = 16,
    share: Annotated[bool, typer.Option(help="Let clients share a cache.")] = False,
    default_graph: Annotated[
        bool, typer.Option(help="Print the server's unmasking on the default graph as well.")
    ] = False,
    threads: Annotated[int, typer.Option(help="Threads that expand masks.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="Seed of vectors and dropouts.")] = 0,
    primitives: Annotated[bool, typer.Option(help="Measure the primitives instead.")] = False,
    server_memory: Annotated[
        bool, typer.Option(help="Measure the memory of a server alone instead.")
    ] = False,
    liars: Annotated[
        int | None,
        typer.Option(help="Measure unmasking with this many clients that lie instead.", min=0),
    ] = None,
    repeats: Annotated[
        int, typer.Option(help="Turns of each, with --liars or --versus.", min=1)
    ] = 5,
    versus: Annotated[
        Rival | None, typer.Option(help="Compare a client's work, and whole rounds.")
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option(
            help="Seconds for the rival's client; a longer one is extrapolated.", callback=number
        ),
    ] = 60.0,
    json_file: JsonFile = None,
) -> None:
    """Run a session with all clients in one process; print CPU time, bytes and memory."""
    _one_of(primitives=primitives, server_memory=server_memory, liars=liars is not None,
            versus=versus is not None)  # fmt: skip
    _check(json_file)
    console = Console()
    with user_errors(BenchError):
        if primitives:
            result = measure("primitives", {"lengths": [100_000, 1_000_000, 10_000_000]})
            _print_primitives(console, result)
        else:
            settings = _checked(
                n=n,
                d=d,
                dropout=dropout,
                corruption=corruption,
                server=server,
                degree=degree,
                threshold=threshold,
                bits=bits,
                threads=threads,
                seed=seed,
            )
            if liars is not None:
                wanted = {**settings, "liars": liars, "repeats": repeats}
                result = _print_liars(console, measure("liars", wanted))
            elif server_memory:
                result = _print_memory(console, measure("memory", settings))
            else:
                result = _print_session(console, measure("session", {**settings, "share": share}))
                if default_graph:
                    settings.update(degree="auto", threshold=None)
                    beside = measure("session", {**settings, "share": True})
                    result["default_graph"] = beside
                    console.print(_on_the_default_graph(beside), highlight=False, soft_wrap=True)
            if versus is not None:
                compared = versus_flower(
                    console, result, {**settings, "repeats": repeats, "time_limit": time_limit}
                )
                result["versus"] = {versus.value: compared}
    _write(json_file, result)


def _one_of(**wanted: bool) -> None:
    """Refuse options that each measure something else: all but one would be ignored."""
    given = [f"--{name.replace('_', '-')}" for name, is_given in wanted.items() if is_given]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} measure different things: give one")


def _finite(seconds: float) -> float:
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is no number of seconds: write 0 or more")
    return seconds


@bench_app.command()
def dpsgd(
    batch: Annotated[int, typer.Option(help="Examples in a step.", min=1)] = 100,
    seconds: Annotated[
        float, typer.Option(help="CPU seconds for each row, at least.", min=0, callback=_finite)
    ] = 3.0,
    peers: Annotated[
        Path | None,
        typer.Option(help="Folder that pip install --target put Opacus in, if not installed here."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Measure per-example clipping beside the plain step, and Opacus where it is installed."""
    _check(json_file)
    with user_errors(BenchError):
        if peers is not None and not peers.is_dir():
            raise BenchError(f"--peers {peers}: it is a folder that pip install --target filled")
        extra = None if peers is None else str(peers)
        result = measure("dpsgd", {"batch": batch, "seconds": seconds, "peers": extra})
    _write(json_file, result)
    table = figure_table(
        f"One step at batch {batch}, one core: CPU time, medians of turns",
        "model", "method", "ms", "of plain", "of ours",
    )  # fmt: skip
    for row in result["rows"]:
        ratios = (f"{row[key]:.2f}" for key in ("ratio_to_plain", "ratio_to_ours"))
        table.add_row(row["model"], row["method"], f"{row['ms']:,.2f}", *ratios)
    console = Console()
    console.print(table)
    console.print("plain: forward, backward and torch.optim.SGD in float32, nothing clipped")
    for name, reason in result["missing"].items():
        console.print(f"{name} is left out: {reason}", highlight=False, soft_wrap=True)


@bench_app.command()
def noise(
    deviations: Annotated[
        list[float] | None, typer.Option("--std", help="Standard deviation, integer units.")
    ] = None,
    count: Annotated[
        int, typer.Option(help="Integers that a table, or jumps, draw.", min=1)
    ] = 4_000_000,
    few: Annotated[int, typer.Option(help="Integers that exact samplers draw.", min=1)] = 200,
    json_file: JsonFile = None,
) -> None:
    """Draw noise by table, jumps, exact rejection and OpenDP, and print the rates on one core."""
    _check(json_file)
    console = Console()
    wanted = deviations or [30.0, 1000.0, 20_000.0]
    with user_errors(BenchError):
        if any(not 1 <= std <= 1e9 for std in wanted):
            raise BenchError("--std: it is at least 1 and at most 10^9")
        result = measure("noise", {"deviations": wanted, "count": count, "few": few})
    _write(json_file, result)
    _print_noise(console, result)


def _check(path: Path | None) -> None:
    """Refuse a file that cannot be written before minutes are spent on what it would hold."""
    if path is not None:
        with user_errors(ConfigError):
            check_writable(path)


def _write(path: Path | None, result: Values) -> None:
    if path is not None:
        with user_errors(ConfigError):
            write_json(path, result)


def _checked(**settings: Any) -> Values:
    if settings["server"] not in ("malicious", "semi-honest"):
        raise BenchError(f"--server {settings['server']}: it is malicious or semi-honest")
    degree = settings["degree"]
    if degree not in ("auto", "complete") and not degree.isdecimal():
        raise BenchError(f"--degree {degree}: it is auto, complete or a number")
    if not 0 <= settings["dropout"] < 1:
        raise BenchError(f"--dropout {settings['dropout']}: it is at least 0 and below 1")
    return settings


def _print_memory(console: Console, result: Values) -> Values:
    peak, before = result["server_memory_mb"], result["server_memory_before_mb"]
    console.print(
        f"{result['n']:,} clients, d = {result['d']:,} of {result['ring_bits']} bits, "
        f"k = {result['degree']:,}: the server's process held at most {peak:,.1f} MB, "
        f"{before:,.1f} of them before the session",
        highlight=False,
        soft_wrap=True,
    )
    return result


def _print_liars(console: Console, result: Values) -> Values:
    from zerosum.simulations.report.words import count  # brings numpy and specs with it

    console.print(
        f"{result['n']:,} clients ({result['n'] - result['survivors']:,} dropouts), "
        f"d = {result['d']:,} of {result['ring_bits']} bits, {result['server']} server, "
        f"k = {result['degree']:,}, t = {result['threshold']:,}, c = {result['colluders']:,}\n"
        f"The server's unmasking, median of {result['repeats']} in turns: honest "
        f"{result['honest_unmask_cpu_s']:.3f} CPU s, {count(result['liars'], 'liar')} "
        f"{result['liars_unmask_cpu_s']:.3f} CPU s, {result['ratio']:.2f} times",
        highlight=False,
        soft_wrap=True,
    )
    if result["failure"]:
        console.print(f"No sum: {result['failure'][:200]}", highlight=False, soft_wrap=True)
    named = (
        "all liars and nobody else" if result["liars_named"] else count(result["named"], "client")
    )
    console.print(
        f"{count(result['wrong_shares'], 'wrong share')} located by "
        f"{count(result['decodings'], 'decoding')}; "
        f"named: {named}; sum "
        + ("correct" if result["sum_correct"] else "[bold red]WRONG[/bold red]"),
        highlight=False,
        soft_wrap=True,
    )
    return result


def _print_session(console: Console, result: Values) -> Values:
    table = figure_table(
        f"{result['n']:,} clients ({result['n'] - result['survivors']:,} dropouts), "
        f"d = {result['d']:,} of {result['ring_bits']} bits, {result['server']} server\n"
        f"k = {result['degree']:,}, t = {result['threshold']:,}, "
        f"sharing {'on' if result['sharing'] else 'off'}",
        "stage",
        "clients",
        "client, ms",
        "server, s",
        "bytes up",
        "bytes down",
    )
    for name, row in result["stages"].items():
        table.add_row(name, f"{row['clients']:,}", *_costs(row))
    whole = {**result, "server_cpu_s": result["server_cpu_s"]}
    table.add_row("all", "", *_costs(whole), style="bold")
    console.print(table)
    console.print("CPU time and bytes of a client are means; the server's time is for all.")
    aes, counted, agreed, verified = result["machine"].values()
    console.print(
        f"Rates just before and after: {result['cipher']} {aes:.1f} GB/s (counter mode "
        f"{counted:.1f}), X25519 {agreed:,.0f}/s, "
        f"Ed25519 verify {verified:,.0f}/s",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_beside_primitives(result), highlight=False, soft_wrap=True)
    console.print(
        f"Upload {result['upload_ratio']:.3f} times {result['bits']} bits a coordinate",
        highlight=False,
    )
    console.print(
        f"{result['total_s']:.2f} s in all, peak memory {result['peak_memory_mb']:,.0f} MB, sum "
        + ("correct" if result["sum_correct"] else "[bold red]WRONG[/bold red]"),
        highlight=False,
    )
    return result


def _on_the_default_graph(result: Values) -> str:
    return (
        f"On the default graph, k = {result['degree']:,}, t = {result['threshold']:,}, sum "
        f"{'correct' if result['sum_correct'] else '[bold red]WRONG[/bold red]'}. "
        + _beside_primitives(result)
    )


def _beside_primitives(result: Values) -> str:
    """Return what agreements, signatures and keystream alone take, beside what was measured.

    Of a client only where none shares a cache; the server never has a part in one.
    """
    least, server = result["primitives"], result["server_unmask_cpu_s"]
    counted = least["server_unmask_ctr_cpu_s"]
    text = "" if result["sharing"] else _times("a client", result, "client_cpu_s") + ", "
    return (
        f"At these rates agreements, signatures and keystream alone: {text}"
        f"{_times('the server unmasking without a cache', result, 'server_unmask_cpu_s')}; "
        f"with keystream of counter mode {counted:.3f} s ({server / counted:.2f} times)"
    )


def _times(who: str, result: Values, key: str) -> str:
    least, measured = result["primitives"][key], result[key]
    return f"{who} {least:.3f} s (measured {measured:.3f}, {measured / least:.2f} times)"


def _print_noise(console: Console, result: Values) -> None:
    table = figure_table(
        "Integer noise, one core", "law", "std", "sampler", "million/s", "tau", "table, s"
    )
    for row in result["rows"]:
        table.add_row(
            row["law"],
            f"{row['std']:g}",
            row["sampler"],
            f"{row['million_per_s']:.3g}",
            f"2^{math.log2(row['tau']):.0f}" if row["tau"] else "0",
            f"{row['build_s']:.2f}" if "build_s" in row else "",
        )
    console.print(table)
    console.print(
        "tau bounds the total-variation distance of one integer from the law; best of several."
    )
    version = result["opendp"]
    console.print(
        f"OpenDP {version}" if version else "OpenDP is not installed: pip install 'zerosum[exact]'",
        markup=False,
        highlight=False,
    )


def _costs(row: Values) -> tuple[str, ...]:
    return (
        f"{row['client_cpu_s'] * 1e3:,.2f}",
        f"{row['server_cpu_s']:,.3f}",
        f"{row['bytes_up_per_client']:,.0f}",
        f"{row['bytes_down_per_client']:,.0f}",
    )


def _print_primitives(console: Console, result: Values) -> None:
    table = figure_table(
        f"Mask expansion against raw {result['cipher']}, one core",
        "d",
        "streams",
        "masks, GB/s",
        "AES, GB/s",
        "ratio of bests",
        "median ratio",
    )
    for row in result["expansion"]:
        table.add_row(
            f"{row['d']:,}",
            f"{row['peers']}",
            f"{row['expansion_gb_s']:.2f}",
            f"{row['aes_gb_s']:.2f}",
            f"{row['ratio']:.0%}",
            f"{row['ratio_median']:.0%}",
        )
    console.print(table)
    rates = figure_table("Rates, one core", "operation", "value", "")
    for row in result["rates"]:
        rates.add_row(row["name"], f"{row['value']:,.3g}", row["unit"])
    console.print(rates)
