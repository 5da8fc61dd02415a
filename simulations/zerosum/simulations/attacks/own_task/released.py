"""Read what a run released, who took part, and whom an attacker may take for a member."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.training.flat_parameters import Layout, from_state_dict
from zerosum.client.training.initial_model import build_model
from zerosum.secagg.randomness import numpy_generator
from zerosum.server.config import ConfigError
from zerosum.server.planning.spent_budget import run_spending
from zerosum.server.privacy.ledger_file import ContributionsCharged, SumCharged, read_entries
from zerosum.server.runs.checkpoint import load_checkpoint
from zerosum.server.runs.run_folder import LEDGER, MODEL, RunFolder
from zerosum.server.runs.saved_model import read_model
from zerosum.server.sampling import CohortSampler
from zerosum.simulations.attacks.own_task.facts import facts_of
from zerosum.simulations.attacks.own_task.subject import (
    MOST_CLIENTS,
    MOST_IN_ALL,
    Loaded,
    Subject,
    joined,
    loaded,
    public_of,
    records_of,
)
from zerosum.simulations.data.datasets import Records

MOST_PAIRS = 100
"""Members, and as many others, that one seed asks about."""

FEWEST_PAIRS = 5
"""Below it no figure of a seed is worth training its reference models."""


@dataclass(frozen=True)
class Release:
    """What a run released, and its ledger's figure of the release.

    Attributes
    ----------
    vector : ndarray
        float32, shape (d,): the model.
    rounds : int
        That are over.
    took_part : frozenset of int
        Clients of sums that were opened.
    epsilon, delta : float
        For outsiders, who see the models.
    seconds : float
        That the run took; 0 where that is not known yet.
    """

    vector: np.ndarray
    rounds: int
    took_part: frozenset[int]
    epsilon: float
    delta: float
    seconds: float


@lru_cache(maxsize=4)
def release_of(subject: Subject) -> Release:
    """Read a run's release from its folder, and write nothing.

    Parameters
    ----------
    subject : Subject
        With a run.

    Returns
    -------
    Release

    Raises
    ------
    ConfigError
        If no round of it is over, or its cohorts cannot be drawn again.
    """
    folder, found = RunFolder.open(Path(subject.run)), loaded(subject)
    if found.experiment.model.components is not None:
        raise ConfigError(
            f"--run {subject.run}: model.components of a run are not played by attacks yet"
        )
    summary, checkpoint = folder.read_summary(), load_checkpoint(folder)
    finished = bool(summary) and summary.rounds == len(folder.read_rounds())
    if finished:
        state = {name: value.numpy() for name, value in read_model(folder.path / MODEL).items()}
        model = build_model(found.task, found.experiment.seed)
        try:
            vector, rounds = from_state_dict(state, Layout.of(model)), int(summary.rounds)
        except ValueError as error:
            raise ConfigError(
                f"--run {subject.run}: its model is not that of the task as it is now: {error}"
            ) from None
    elif checkpoint is not None:
        vector, rounds = checkpoint.model.numpy(), checkpoint.round
    else:
        raise ConfigError(f"--run {subject.run}: no round of it is over: there is no model yet")
    bound = run_spending(folder).observers["release"].bound
    seconds = float(summary.seconds) if finished else 0.0
    took_part = _took_part(folder, found, rounds, subject.run)
    return Release(vector, rounds, took_part, bound.value, bound.delta, seconds)


def _took_part(folder: RunFolder, found: Loaded, rounds: int, name: str) -> frozenset[int]:
    """Return the clients whose contributions are in sums that were opened."""
    entries = read_entries(folder.path / LEDGER)
    opened = {entry.key for entry in entries if isinstance(entry, SumCharged)}
    asked: dict[int, set[int]] = {}
    for entry in entries:
        if not isinstance(entry, ContributionsCharged) or entry.key not in opened:
            continue
        if entry.key[2] == "train":
            asked.setdefault(entry.key[0], set()).update(entry.clients)
    # Reference models are trained by the same cohorts, drawn again from the run's seed.
    sampler = CohortSampler(
        found.experiment.sampling, found.population, SeededEntropy(found.experiment.seed)
    )
    for number, clients in asked.items():
        if number <= rounds and not clients <= set(sampler.draw(number)):
            raise ConfigError(
                f"--run {name}: its cohorts were not drawn from its seed, as those of a deployment "
                "are not; reference models cannot be trained as it was"
            )
    return frozenset().union(*asked.values())


@dataclass(frozen=True)
class Pairs:
    """Members of a run, each beside a record that it was not trained on.

    Attributes
    ----------
    members, others : Records
        Shape (n, ...) each, on the task's own scale.
    places : ndarray
        int64, shape (n, 2): client and row of each member.
    source : str
        Where the others are from.
    each : int
        Pairs of one seed.
    all_members : Records
        Those that were read.
    """

    members: Records
    others: Records
    places: np.ndarray
    source: str
    each: int
    all_members: Records


@lru_cache(maxsize=4)
def pairs_of(subject: Subject) -> Pairs:
    """Pair members with others of the same class, in an order that no seed changes.

    Others are held by clients who never took part, whose records come from where the members' do.
    Where there are too few of them, they are public test records.

    Parameters
    ----------
    subject : Subject

    Returns
    -------
    Pairs

    Raises
    ------
    ConfigError
        If there are too few.
    """
    found, release = loaded(subject), release_of(subject)
    if not release.took_part:
        raise ConfigError(
            f"--run {subject.run}: membership needs members, and no sum of the run was opened"
        )
    rng = numpy_generator(found.experiment.seed, "members and others")
    took_part = sorted(release.took_part)
    members, places = _held(found, rng.permutation(took_part))
    never = rng.permutation([i for i in range(found.population) if i not in release.took_part])
    others, _ = _held(found, never)
    source = "records of clients who never took part"
    enough = subject.seeds * FEWEST_PAIRS
    if others is None or len(_matched(subject, members, others, rng)[0]) < 4 * enough:
        others, source = _public(found), "public test records"
    if members is None or others is None:
        raise ConfigError(
            f"--run {subject.run}: membership needs records that it was not trained on: no client "
            "was left out, and test_data() has none"
        )
    mine, theirs = _matched(subject, members, others, rng)
    each = min(MOST_PAIRS, len(mine) // subject.seeds)
    if each < FEWEST_PAIRS:
        raise ConfigError(
            f"--run {subject.run}: membership needs {enough} members and as many others of their "
            f"classes, for {subject.seeds} seeds, and there are {len(mine)}"
        )
    return Pairs(members.take(mine), others.take(theirs), places[mine], source, each, members)


def _held(found: Loaded, clients: np.ndarray) -> tuple[Records | None, np.ndarray]:
    """Return records of some clients, with the client and row of each."""
    parts: list[Records] = []
    places: list[np.ndarray] = []
    total = 0
    for index in clients.tolist()[:MOST_CLIENTS]:
        held = records_of(found, int(index)) if total < MOST_IN_ALL else None
        if held is not None and len(held):
            parts.append(Records(held.inputs, held.targets))
            rows = np.arange(len(held))
            places.append(np.stack([np.full(len(held), index), rows], axis=1))
            total += len(held)
    if not parts:
        return None, np.zeros((0, 2), np.int64)
    return joined(parts), np.concatenate(places)


def _public(found: Loaded) -> Records | None:
    """Return public test records; none where the server trains on some of them."""
    if found.experiment.server.rule_examples is not None:
        return None
    return public_of(found, MOST_IN_ALL)


def _matched(
    subject: Subject, members: Records | None, others: Records, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return places of members and of others, as many of each class, in random order."""
    if members is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    mine, theirs = rng.permutation(len(members)), rng.permutation(len(others))
    if facts_of(subject).classes < 2:
        count = min(len(mine), len(theirs))
        return mine[:count], theirs[:count]
    pairs = []
    for label in np.unique(members.targets):
        own = mine[members.targets[mine] == label]
        other = theirs[others.targets[theirs] == label]
        count = min(len(own), len(other))
        pairs.append(np.stack([own[:count], other[:count]], axis=1))
    order = rng.permutation(np.concatenate(pairs))
    return order[:, 0], order[:, 1]
