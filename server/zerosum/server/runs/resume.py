"""Check that a run folder can be continued: the same experiment, data and cohorts, more rounds."""

import hashlib
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zerosum.client.files.file_errors import reason
from zerosum.client.files.file_lock import HeldError, held_alone
from zerosum.client.files.named_files import named_files
from zerosum.client.files.private_files import OpenToOthersError
from zerosum.client.spec import DataSpec
from zerosum.server.config import ConfigError, apply_overrides, parse_experiment, read_toml
from zerosum.server.privacy.calibration import planned_figures, planned_run
from zerosum.server.privacy.ledger_file import ContributionsCharged, read_entries
from zerosum.server.privacy.protections import configuration_digest, fixed_part, rounds_fixed_by
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.runs.best_round import BestSoFar
from zerosum.server.runs.checkpoint import STATE, Checkpoint, load_checkpoint
from zerosum.server.runs.left_out import LEFT_OUT
from zerosum.server.runs.run_folder import (
    CONFIG,
    DATA,
    LEDGER,
    LOCK,
    METRICS,
    RunFolder,
    check_unused,
)
from zerosum.server.sampling import Planned
from zerosum.server.spec import Experiment

log = logging.getLogger("zerosum.server")


def has_checkpoint(folder: RunFolder) -> bool:
    """Return whether a run has got so far that it can be continued."""
    return (folder.path / STATE).is_file()


def completed_rounds(folder: RunFolder) -> int:
    """Read the number of completed rounds from a run's checkpoint.

    The metrics may have a line more: of a round whose checkpoint was not written.

    Raises
    ------
    ConfigError
        If the checkpoint is damaged.
    """
    checkpoint = load_checkpoint(folder)
    return 0 if checkpoint is None else checkpoint.round


def continued(folder: RunFolder, overrides: Iterable[str]) -> Experiment:
    """Return the experiment of a folder with overrides on top, before it is checked.

    Parameters
    ----------
    folder : RunFolder
    overrides : iterable of str
        As ``--set`` takes them.

    Returns
    -------
    Experiment
        Not checked yet.
    """
    return parse_experiment(apply_overrides(read_toml(folder.path / CONFIG), overrides))


def check_same(before: Experiment, after: Experiment, folder: RunFolder) -> None:
    """Raise ConfigError unless ``after`` continues ``before``.

    There may be more rounds and more patience, other paths and workers, and another way to wait for
    nodes. What a path leads to is for :class:`DataRecord`.

    Parameters
    ----------
    before, after : Experiment
        Of the folder; as it is to go on.
    folder : RunFolder

    Raises
    ------
    ConfigError
        If anything else differs.
    """
    where = folder.path
    if after.rounds < before.rounds:
        raise ConfigError(
            f"rounds = {after.rounds}: the run in {where} was started with {before.rounds}; "
            "on --resume they may only grow"
        )
    if after.rounds > before.rounds and (key := rounds_fixed_by(before)):
        raise ConfigError(
            f"rounds = {after.rounds}: the run in {where} was started with {before.rounds}, and "
            f"its learning rates follow from them ({key}): resume it unchanged, or start a new run "
            "with --out"
        )
    _check_patience(before, after, folder)
    old, new = (fixed_part(one).model_copy(update={"rounds": 1}) for one in (before, after))
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


def _check_patience(before: Experiment, after: Experiment, folder: RunFolder) -> None:
    """Refuse patience that would have ended the run before, and rounds that patience does not run.

    With less patience an uninterrupted run might have ended earlier than this one has got to. More
    rounds alone would change nothing where patience is over.
    """
    old, new = before.evaluation.patience, after.evaluation.patience
    if new is not None and (old is None or new < old):
        had = "none" if old is None else old
        raise ConfigError(
            f"evaluation.patience = {new}: the run in {folder.path} was started with {had}; on "
            "--resume it may only grow, or be taken out (evaluation.patience=unset)"
        )
    if after.rounds == before.rounds or new is None:
        return
    done = completed_rounds(folder)
    rounds = [record for record in folder.read_rounds() if record.round <= done]
    so_far = BestSoFar(after.evaluation, rounds)
    if done < before.rounds and so_far.out_of_patience:
        raise ConfigError(
            f"rounds = {after.rounds}: the run in {folder.path} ended after {done} rounds by "
            f"evaluation.patience = {new}, and more rounds do not make it go on; raise "
            f"evaluation.patience as well, as --set evaluation.patience={so_far.waited + new}"
        )


def warn_of_more_rounds(
    before: Experiment, after: Experiment, population: int, dimension: int
) -> None:
    """Warn that a run with more rounds than planned costs more epsilon than planned.

    Its noise was found for the rounds that it had and does not change, and of a target epsilon the
    folder keeps that noise alone. So both plans are made anew: the earlier one is the target.

    Parameters
    ----------
    before, after : Experiment
        Of the folder; as it goes on. Both with their noise resolved.
    population, dimension : int
        Clients; trainable parameters.
    """
    if not after.privacy.private or after.rounds <= before.rounds:
        return
    observer = after.privacy.epsilon_for
    planned, now = (
        planned_figures(spec.privacy, planned_run(spec, population, dimension))[observer]
        for spec in (before, after)
    )
    if planned.finite:
        log.warning(
            "rounds = %d: this run was planned for epsilon_%s = %s with %d rounds; with %d it goes "
            "to %s",
            after.rounds,
            observer,
            epsilon_text(planned.value),
            before.rounds,
            after.rounds,
            epsilon_text(now.value) if now.finite else f"infinity ({now.reason})",
        )


def check_continues(
    checkpoint: Checkpoint, experiment: Experiment, folder: RunFolder, parameters: int, public: int
) -> None:
    """Refuse a folder whose checkpoint, ledger and metrics do not belong together.

    Parameters
    ----------
    checkpoint, experiment, folder
        What was found, and what is to be gone on with.
    parameters, public : int
        Of the task's model: trainable parameters, entries of components.

    Raises
    ------
    ConfigError
        If something of the checkpoint's differs.
    """
    where = f"--resume {folder.path}"
    if checkpoint.configuration != configuration_digest(experiment):
        raise ConfigError(
            f"{where}: the checkpoint is of another configuration than config.toml; restore "
            "the file, or start a new run"
        )
    if checkpoint.round > experiment.rounds:
        raise ConfigError(f"{where}: rounds = {experiment.rounds}, but {checkpoint.round} are over")
    if len(checkpoint.model) != parameters:
        raise ConfigError(
            f"{where}: the checkpoint has {len(checkpoint.model)} parameters, the task's model "
            f"{parameters}"
        )
    entries = 0 if checkpoint.components is None else len(checkpoint.components)
    if entries != public:
        raise ConfigError(
            f"{where}: the checkpoint has {entries} entries of components, the task's model "
            f"{public}"
        )
    for name, (size, digest) in checkpoint.files.items():
        folder.check_beginning(name, size, digest)


def check_cohort(ledger: RunLedger, planned: Planned, folder: RunFolder) -> None:
    """Refuse to repeat a sum with its old noise among other clients.

    A line of the left-out file that was written or deleted in between changes the cohort. Noise
    that follows from a seed would be the same: the two sums would differ by one client's vector
    and hide it behind its own share of the noise alone.

    Parameters
    ----------
    ledger : RunLedger
        Noise drawn anew has an attempt of its own there, under which nobody was asked before.
    planned : Planned
        The sum, before anybody is asked.
    folder : RunFolder
        Of the run.

    Raises
    ------
    ConfigError
        If its cohort is not the one that was charged, or would be asked twice under ``once``.
    """
    for number, cohort in enumerate(planned.groups):
        before = ledger.asked((planned.number, planned.attempt, planned.kind, number))
        if ledger.sampling.kind == "once":
            _check_once(ledger, planned.number, set(cohort) - (before[1] if before else set()))
        if before is None or (before[0] == len(cohort) and before[1] <= set(cohort)):
            continue
        gone = ", ".join(map(str, sorted(before[1] - set(cohort))))
        without = gone and f", without client {gone}"
        raise ConfigError(
            f"{folder.path}: round {planned.number} was begun with a cohort of {before[0]}, and "
            f"would be done again with {len(cohort)}{without}; its noise is the same again: "
            "restore the file of who is left out (deployment.left_out, or "
            f"{LEFT_OUT} in the run folder) as it was, go on with the version of zerosum that "
            "began it, or start a new run with --out"
        )


def _check_once(ledger: RunLedger, round: int, clients: set[int]) -> None:
    """Refuse an order of clients that is not the one in which the population was spent so far."""
    spent = [index for index in sorted(clients) if ledger.times_asked(index)]
    if spent:
        raise ConfigError(
            f'sampling.kind = "once": round {round} would ask client {spent[0]} a second time: '
            "another version of zerosum has drawn the order in which the run spends its clients; "
            "go on with that version, or start a new run with --out"
        )


def claimed(path: Path) -> RunFolder:
    """Return the folder of an earlier run, or a new and empty one; nothing is written to it.

    Parameters
    ----------
    path : Path
        Of a run, or of nothing yet.

    Returns
    -------
    RunFolder
        There when this returns.

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
        raise ConfigError(f"--out {path} cannot be written: {reason(path, error)}") from None
    return RunFolder(path)


def rounds_before(folder: RunFolder) -> int:
    """Return how many rounds of training a folder's run has begun.

    Parameters
    ----------
    folder : RunFolder

    Returns
    -------
    int
        Opened or not.

    Raises
    ------
    ConfigError
        If its ledger is damaged, or lacks rounds that the metrics have.
    """
    asked = {
        entry.key[0]
        for entry in read_entries(folder.path / LEDGER)
        if isinstance(entry, ContributionsCharged) and entry.key[2] == "train"
    }
    records = folder.read_rounds()
    opened = sum(record.completed for record in records)
    last = max((record.round for record in records), default=0)
    if opened > len(asked):
        raise ConfigError(
            f"{folder.path}: {LEDGER} has {len(asked)} rounds and {METRICS} {opened}: what was "
            "spent is not known any more; restore the file, or start a new run with --out"
        )
    return max(last, len(asked))


class DataRecord:
    """A fingerprint of a run's training data, kept in its folder.

    Noise from a seed is the same when a round is repeated. On other data the two sums would differ
    by the changed records, with no noise between them.

    Parameters
    ----------
    folder : RunFolder
    spec : DataSpec
        ``path`` is what is looked at. A task that reads its records elsewhere is taken on trust.
    """

    def __init__(self, folder: RunFolder, spec: DataSpec) -> None:
        self._folder, self._path = folder, spec.path

    def check(self, open_round: bool) -> None:
        """Write the fingerprint down, before anything is asked for.

        Parameters
        ----------
        open_round : bool
            Whether a round was begun and is done again. Others may be of other records.

        Raises
        ------
        ConfigError
            If such a round would be done again on other records.
        """
        new = fingerprint(self._path).encode()
        file = self._folder.path / DATA
        before = file.read_bytes() if file.is_file() else None
        if open_round and new != before:
            raise ConfigError(
                f"data.path = {self._path!r}: a round of the run in {self._folder.path} was begun "
                f"on {'unknown' if before is None else 'other'} records, and its noise is the same "
                "again: give it the records that it had, or start a new run with --out"
            )
        if new != before:
            self._folder.write(DATA, new)


def fingerprint(path: str | list[str] | None) -> str:
    """Return SHA-256 of a file, or of all that a folder holds; moved, it is the same.

    Of several files it is of all of them, in order. Of what cannot be read, and of no path, it is
    the text itself.
    """
    files = () if path is None else named_files(path)
    if len(files) > 1:
        parts = "\0".join(fingerprint(str(file)) for file in files)
        return hashlib.sha256(parts.encode()).hexdigest()
    found = files[0] if files else None
    if found is not None and found.is_file():
        with found.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    if found is None or not found.is_dir():
        return hashlib.sha256(repr(path).encode()).hexdigest()
    whole = hashlib.sha256()
    for part in sorted(part for part in found.rglob("*") if part.is_file()):
        whole.update(f"{part.relative_to(found).as_posix()}\0{fingerprint(str(part))}\0".encode())
    return whole.hexdigest()


@contextmanager
def held(folder: RunFolder) -> Iterator[RunFolder]:
    """Lock a run folder against other processes.

    Parameters
    ----------
    folder : RunFolder

    Yields
    ------
    RunFolder
        The same, locked.

    Raises
    ------
    ConfigError
        If another one has it, or another user could hold the lock.
    """
    try:
        with held_alone(folder.path / LOCK):
            yield folder
    except HeldError as error:
        raise ConfigError(
            f"{folder.path}: the run still goes on in another process ({error}); stop that one "
            "first"
        ) from None
    except OpenToOthersError as error:
        raise ConfigError(str(error)) from None
