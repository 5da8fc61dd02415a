"""What an earlier run's folder allows: the same experiment, and little beside more rounds."""

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zerosum.server.checkpoint import STATE
from zerosum.server.config import ConfigError, apply_overrides, parse_experiment, read_toml
from zerosum.server.planning import fixed_part
from zerosum.server.runs import CONFIG, LEDGER, LOCK, METRICS, RunFolder, check_unused
from zerosum.server.spec import Experiment


def has_checkpoint(folder: RunFolder) -> bool:
    """Return whether a run has got so far that it can be continued."""
    return (folder.path / STATE).is_file()


def continued(folder: RunFolder, overrides: Iterable[str]) -> Experiment:
    """Return the experiment of a folder with overrides on top, before it is checked."""
    return parse_experiment(apply_overrides(read_toml(folder.path / CONFIG), overrides))


def check_same(before: Experiment, after: Experiment, folder: RunFolder) -> None:
    """Raise ConfigError unless ``after`` continues ``before``.

    There may be more rounds, other paths and workers, and another way to wait for nodes.
    """
    where = folder.path
    if after.rounds < before.rounds:
        raise ConfigError(
            f"rounds = {after.rounds}: the run in {where} was started with {before.rounds}; "
            "on --resume they may only grow"
        )
    old, new = fixed_part(before), fixed_part(after)
    for name in Experiment.model_fields:
        left, right = getattr(old, name), getattr(new, name)
        if left == right:
            continue
        fields = getattr(type(left), "model_fields", None)
        key = name
        if fields:
            inner = next(f for f in fields if getattr(left, f) != getattr(right, f))
            key, left, right = f"{name}.{inner}", getattr(left, inner), getattr(right, inner)
        raise ConfigError(
            f"{key} = {right!r}: the run in {where} has {left!r}; resume it unchanged, or start a "
            "new run with --out"
        )


def claimed(path: Path) -> RunFolder:
    """Return the folder of an earlier run, or a new and empty one; nothing is written to it.

    Raises
    ------
    ConfigError
        If the path is something else.
    """
    if not (path / CONFIG).is_file():
        check_unused(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {path} cannot be written: {error.strerror}") from None
    return RunFolder(path)


def rounds_before(folder: RunFolder) -> int:
    """Return how many rounds of training a folder's run has begun.

    Raises
    ------
    ConfigError
        If its ledger is damaged, or lacks rounds that the metrics have.
    """
    try:
        asked = {
            line["key"][0]
            for line in folder.read_lines(LEDGER)
            if line["type"] == "contributions" and line["key"][2] == "train"
        }
        told = folder.read_lines(METRICS)
        opened = sum(line["status"] == "completed" for line in told)
        last = max((line["round"] for line in told), default=0)
    except (ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{folder.path}: {LEDGER} or {METRICS} is damaged ({error}): what was spent is not "
            "known any more; start a new run with --out"
        ) from None
    if opened > len(asked):
        raise ConfigError(
            f"{folder.path}: {LEDGER} has {len(asked)} rounds and {METRICS} {opened}: what was "
            "spent is not known any more; restore the file, or start a new run with --out"
        )
    return max(last, len(asked))


@contextmanager
def held(folder: RunFolder) -> Iterator[RunFolder]:
    """Keep other processes from continuing a run that goes on in this one.

    Raises
    ------
    ConfigError
        If another one has it.
    """
    with (folder.path / LOCK).open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{folder.path}: the run still goes on in another process; stop that one first"
            ) from None
        yield folder
