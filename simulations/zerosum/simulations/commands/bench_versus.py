"""``zerosum bench secagg --versus flower``: one client's work, and whole rounds of an app."""

from statistics import median

from rich.console import Console
from rich.table import Table

from zerosum.secagg.stages import Stage
from zerosum.simulations.bench.process import BenchError, Values, measure

SCHEMES = (
    "plain",
    "LocalDpMod",
    "client-side DP",
    "server-side DP",
    "SecAgg+",
    "semi-honest",
    "malicious",
    "noised",
)
"""Those of :mod:`zerosum.simulations.bench.rounds`, which brings torch."""

MOST_CLIENTS = 64
"""Of a cohort whose rounds are played whole: SecAgg+ takes minutes beyond."""

_LABELS = {
    "semi-honest": "ours, semi-honest",
    "malicious": "ours, malicious",
    "noised": "ours, noised",
}

_TIMES = ("client_cpu_s", "server_cpu_s", "wall_s", "peak_memory_mb")
_ROUND_SETTINGS = ("n", "d", "dropout", "corruption", "degree", "threshold", "bits", "seed")


def figure_table(title: str, *columns: str) -> Table:
    """Return a table without lines, whose first column has names and the others figures.

    Parameters
    ----------
    title : str
    *columns : str
        Heads.

    Returns
    -------
    rich.table.Table
    """
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2))
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left", no_wrap=not place)
    return table


def versus_flower(console: Console, result: Values, settings: Values) -> Values:
    """Measure Flower's SecAgg+ beside a session of ours, and print both.

    Parameters
    ----------
    console : Console
    result : dict
        Our session's figures.
    settings : dict
        As the session's, with ``repeats`` and ``time_limit`` in seconds.

    Returns
    -------
    dict
        One client's ``stages``, ``client_cpu_s`` and ``ratio`` to ours, or its ``failure``;
        ``rounds``, a row for each of :data:`SCHEMES`.
    """
    limit = 4 * settings["time_limit"] + 60
    theirs = _client(console, result, settings["time_limit"], limit)
    theirs["rounds"] = _rounds(settings, limit)
    _print_rounds(console, settings, theirs["rounds"])
    return theirs


def _client(console: Console, result: Values, time_limit: float, limit: float) -> Values:
    settings = {key: result[key] for key in ("degree", "d", "threshold", "bits")}
    try:
        theirs = measure("flower", {**settings, "time_limit": time_limit}, limit)
    except BenchError as error:
        console.print(f"Flower's client is left out: {error}", highlight=False, soft_wrap=True)
        return {"failure": str(error)}
    theirs["ratio"] = theirs["client_cpu_s"] / result["client_cpu_s"]
    label = "Flower SecAgg+"
    if theirs["extrapolated"]:
        label += f" (extrapolated from {theirs['measured_degree']} neighbours)"
    table = figure_table(
        f"One client, {result['degree']:,} neighbours, CPU s", "", "ours", label, "ratio"
    )
    stages = result["stages"]
    ours = {
        "keys": stages[Stage.ADVERTISE]["client_cpu_s"],
        "shares": stages[Stage.SHARE]["client_cpu_s"],
        "masked vector": stages[Stage.CONTRIBUTE]["client_cpu_s"],
        Stage.UNMASK: sum(
            stages[name]["client_cpu_s"] for name in (Stage.CONFIRM, Stage.UNMASK) if name in stages
        ),
    }
    for (name, own), other in zip(ours.items(), theirs["stages"].values(), strict=True):
        table.add_row(name, f"{own:.4f}", f"{other:.4f}", f"{other / own:,.1f}")
    table.add_row(
        "all",
        f"{result['client_cpu_s']:.4f}",
        f"{theirs['client_cpu_s']:.4f}",
        f"{theirs['ratio']:,.1f}",
        style="bold",
    )
    console.print(table)
    return theirs


def _rounds(settings: Values, limit: float) -> list[Values]:
    """Let the schemes take turns, each in a process of its own, and return a row for each."""
    if settings["n"] > MOST_CLIENTS:
        failure = f"rounds are played whole with at most {MOST_CLIENTS} clients"
        return [{"scheme": scheme, "failure": failure} for scheme in SCHEMES]
    wanted = {key: settings[key] for key in _ROUND_SETTINGS}
    turns: dict[str, list[Values]] = {scheme: [] for scheme in SCHEMES}
    failures: dict[str, str] = {}
    for _ in range(settings["repeats"]):
        for scheme in SCHEMES:
            if scheme in failures:
                continue
            try:
                turns[scheme].append(measure("rounds", {**wanted, "scheme": scheme}, limit))
            except BenchError as error:
                failures[scheme] = str(error)
    return [
        {"scheme": scheme, "failure": failures[scheme]} if scheme in failures else _row(rows)
        for scheme, rows in turns.items()
    ]


def _row(turns: list[Values]) -> Values:
    """Return the medians of all turns."""
    middle = {name: median(turn[name] for turn in turns) for name in _TIMES}
    correct = all(turn["mean_correct"] for turn in turns)
    return {**turns[0], **middle, "mean_correct": correct, "turns": len(turns)}


def _print_rounds(console: Console, settings: Values, rows: list[Values]) -> None:
    reasons = {row["failure"]: row["scheme"] for row in rows if "failure" in row}
    done = [row for row in rows if "failure" not in row]
    if done:
        table = figure_table(
            f"A steady round of a Flower app: {settings['n']:,} clients, d = {settings['d']:,}, "
            f"{settings['bits']} bits",
            "", "messages", "kB up", "kB down", "client, ms", "server, s", "mean",
        )  # fmt: skip
        for row in done:
            table.add_row(
                _LABELS.get(row["scheme"], row["scheme"]),
                f"{row['exchanges']:g}",
                f"{row['bytes_up_per_client'] / 1e3:,.0f}",
                f"{row['bytes_down_per_client'] / 1e3:,.0f}",
                f"{row['client_cpu_s'] * 1e3:,.1f}",
                f"{row['server_cpu_s']:.3f}",
                "correct" if row["mean_correct"] else "[bold red]WRONG[/bold red]",
            )
        console.print(table)
        console.print("Messages, bytes, CPU ms of a client; the server's CPU s for all of them.")
    for reason, scheme in reasons.items():
        who = "All" if len(reasons) == 1 and not done else scheme
        console.print(f"{who} left out: {reason}", highlight=False, soft_wrap=True)
