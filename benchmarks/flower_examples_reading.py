"""What a run of a Flower app left: its own words, its metrics, and the bytes of its messages."""

import json
import math
import re
from pathlib import Path
from typing import Any

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

_LOGGED = re.compile(r"^\s*(?:INFO|WARNING|ERROR|DEBUG)\s*:\s?")

_CARRIED = re.compile(
    r"^(?:WARNING|ERROR|DEBUG)\b|\(ClientAppActor |it/s\]|\bReceived \d+/\d+ results"
    r"|\bPrivate(?:Strategy|Queries)\b|\bzerosum\."
)
"""Lines of actors, of progress bars, of what carries the messages: they are not the app's."""

_RAISED = re.compile(
    r"^(?:\w+\.)*(?P<kind>\w*(?:Error|Exception|Interrupt|Exit))(?::\s*(?P<why>.*))?$"
)

_FRAME = re.compile(r'^File "(?P<file>[^"]+)", line (?P<line>\d+)')
"""Place in a traceback; the line after it is the source."""

_RESULTS = (
    "evaluate_metrics_serverapp",
    "evaluate_metrics_clientapp",
    "train_metrics_clientapp",
)


def measured(file: Path) -> tuple[list[dict[str, Any]], float, float]:
    """Read what was recorded of a run's messages.

    Parameters
    ----------
    file : Path
        Of ``flower_stand_ins/stand_in_counts.py``; it may be absent.

    Returns
    -------
    list, float, float
        The lines; bytes that a client sent in a round, where one that sent nothing in a round is
        not counted; seconds.
    """
    if not file.is_file():
        return [], math.nan, math.nan
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    total = sum(size for line in records for size in line.get("up", {}).values())
    sent = {(line["round"], node) for line in records for node in line.get("up", {})}
    rounds = {one for one in sent if one[0] > 0} or sent
    times = [line["time"] for line in records if "time" in line]
    seconds = times[-1] - times[0] if times else math.nan
    return records, total / len(rounds) if rounds else math.nan, seconds


def said(records: list[dict[str, Any]], printed: str) -> str:
    """Return what an app said of its model at its end.

    Parameters
    ----------
    records : list
        As :func:`measured` returns them.
    printed : str
        Its log.

    Returns
    -------
    str
        Metrics of the last round: the server's own test, else the nodes', else their training's;
        where no strategy has any, the last words that were logged or printed. Empty where there
        are none.
    """
    for name, rounds in _results(records).items():
        if rounds:
            last = rounds[max(rounds, key=int)]
            words = ", ".join(f"{key} {_short(value)}" for key, value in last.items())
            return f"{words} ({name.split('_')[0]}, {_side(name)})"
    return _history(printed) or _last_words(printed)


def evaluation_metrics(records: list[dict[str, Any]]) -> dict[str, float]:
    """Return the numbers that nodes evaluate, with a bound for each: a power of ten above twice it.

    Parameters
    ----------
    records : list
        Of a plain run.

    Returns
    -------
    dict
        Empty where the server tests the model itself; 1.0 for what is called accuracy, unless it
        is in percent.
    """
    results = _results(records)
    if results.get("evaluate_metrics_serverapp"):
        return {}
    bounds: dict[str, float] = {}
    for metrics in results.get("evaluate_metrics_clientapp", {}).values():
        for key, value in metrics.items():
            if isinstance(value, int | float) and math.isfinite(value):
                least = (
                    1.0
                    if abs(value) <= 1 and ("acc" in key.lower() or "auc" in key.lower())
                    else 10.0 ** math.ceil(math.log10(max(2 * abs(value), 1e-6)))
                )
                bounds[key] = max(bounds.get(key, 0.0), least)
    return bounds


def reason(printed: str) -> str:
    """Return the one line that says why a run failed: the last error that was logged.

    Parameters
    ----------
    printed : str
        Its log.

    Returns
    -------
    str
        Without the traceback; empty where no error was logged. Of an assertion without words its
        place and source.
    """
    found = place = ""
    lines = [line.strip() for line in _plain(printed)]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if frame := _FRAME.match(line):
            file = "/".join(Path(frame["file"]).parts[-2:])
            place = f"{file}:{frame['line']}: {following}"
        elif raised := _RAISED.match(line):
            found = raised["why"] or raised["kind"]
            if found == "AssertionError":
                found = place or found
            elif raised["kind"] not in ("ConfigError", "NothingLearntError"):
                found = line
            place = ""
    return found


def _results(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for line in records:
        found = line.get("results", found)
    return {name: found.get(name, {}) for name in _RESULTS}


def _side(name: str) -> str:
    return "server" if name.endswith("serverapp") else "nodes"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_short, value)) + "]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _history(printed: str) -> str:
    """Return the last round of what Flower's servers before the Message API log at their end."""
    _, _, history = "\n".join(_plain(printed)).rpartition("[SUMMARY]")
    found = re.findall(r"'(\w+)': \[([^\]]*)\]", history)
    lasts = [(name, re.findall(r"\(\d+,\s*([-+.\deE]+)\)", rounds)) for name, rounds in found]
    words = [f"{name} {float(values[-1]):.4g}" for name, values in lasts if values]
    return f"{', '.join(words)} (its history)" if words else ""


def _last_words(printed: str) -> str:
    """Return the last line that is the app's, after the one before it where it has no words."""
    shown = [line for line in _COLOURS.sub("", printed).splitlines() if not _CARRIED.search(line)]
    words = [line for line in map(str.strip, _plain("\n".join(shown))) if line]
    alone = bool(words) and re.search("[A-Za-z]", words[-1])
    return " ".join(words[-1:] if alone else words[-2:])


def _plain(printed: str) -> list[str]:
    return [_LOGGED.sub("", line) for line in _COLOURS.sub("", printed).splitlines()]
