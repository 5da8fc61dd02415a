"""The write-ahead record of what a run releases, and the figures that follow from it.

A line is on disk before anything is asked for or opened. Lines are never taken back, so no figure
ever decreases: not across rounds, restarts or aborted rounds.
"""

import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.client.files.durable_append import append_durably
from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import PrivacySpec, SecAggSpec
from zerosum.server.config import ConfigError
from zerosum.server.privacy.abandonment import OpeningRule, largest_opened_only_because_of_one
from zerosum.server.privacy.dropout_rate import DropoutRate
from zerosum.server.privacy.epsilons import MASKED, OBSERVERS, all_figures, refused
from zerosum.server.privacy.guarantees import ExampleUnit, Participation, Sampling, Worst, terms_of
from zerosum.server.private_sum.thresholds import survivors_needed
from zerosum.server.spec import SamplingSpec

log = logging.getLogger("zerosum.server")

Key = tuple[int, int, str, int]
"""Round, attempt, kind of private sum ("train", "evaluate"), group."""

NO_NOISE = 'privacy.model = "none": no noise, so no epsilon'
SECRET_SEED = "simulated: noise and cohorts follow from the seed, which must be secret"


class DeltaTooLargeError(ConfigError):
    """At this delta, exposing one client whole would count as private."""


class LedgerMismatchError(ConfigError):
    """A ledger on disk belongs to a run of other parameters."""


class UnknownKindError(ValueError):
    """A private sum that no terms were agreed for: nothing would bound its cost."""


def check_delta(privacy: PrivacySpec, population: int) -> None:
    """Raise DeltaTooLargeError where delta >= 1/population, unless allowed by name."""
    if privacy.private and not privacy.allow_large_delta and privacy.delta * population >= 1:
        of = "privacy.examples" if privacy.by_example else "population"
        raise DeltaTooLargeError(
            f"privacy.delta = {privacy.delta:g} is not below 1/{of} = {1 / population:g}; "
            f"lower it, or set privacy.allow_large_delta = true"
        )


class RunLedger:
    """Counts what a run asked for and opened; says what it cost.

    Parameters
    ----------
    path : Path or None
        ``ledger.jsonl``; read if it exists, appended to durably. None keeps the record in memory:
        for plans and tests.
    privacy : PrivacySpec
        With ``noise_multiplier`` resolved.
    secagg : SecAggSpec
        Whether sums are masked; the dropout that is assumed.
    sampling : SamplingSpec
        How cohorts are drawn.
    population : int
        Clients in the roster.
    protections : mapping of str to Protection
        For each kind of private sum, the protection of a session of any cohort.
    seeded : bool
        Whether cohorts and noise follow from a seed, as in simulations.
    examples : mapping of str to ExampleUnit, optional
        Under ``privacy.unit = "example"``: for each kind of sum that draws examples, how. A kind
        that is not named is charged as if one example decided its client's whole vector.
    records : int, optional
        Under ``privacy.unit = "example"``: examples of all clients, against which delta is held.
    read_only : bool
        Whether the file is read and nothing written, not even what a crash left of its last line
        cut off: in a run that goes on, that line is being written.

    Raises
    ------
    DeltaTooLargeError
        If delta is not below 1/population and that is not allowed by name.
    LedgerMismatchError
        If the file belongs to a run of other terms.
    ValueError
        If a parameter is missing.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        privacy: PrivacySpec,
        secagg: SecAggSpec,
        sampling: SamplingSpec,
        population: int,
        protections: Mapping[str, Protection],
        seeded: bool = True,
        examples: Mapping[str, ExampleUnit] | None = None,
        records: int | None = None,
        read_only: bool = False,
    ) -> None:
        check_delta(privacy, population if records is None else records)
        self._path = path
        self._read_only = read_only
        self._privacy, self._secagg, self._seeded = privacy, secagg, seeded
        self._population = population
        self.kinds = tuple(protections)
        self.terms = terms_of(protections, privacy, secagg, examples, population=population)
        if privacy.private and len(self.terms) != len(protections):
            raise ValueError("under privacy every kind of private sum has a noise mechanism")
        self._attendance = DropoutRate(secagg.dropout)
        self._ended: set[Key] = set()
        self._drawn = sampling
        self.sampling = sampling_terms(privacy, secagg, sampling, population)
        # Clients ascending, four bytes each: over many rounds they are asked a million times.
        self._contributions: dict[Key, tuple[int, NDArray[np.uint32]]] = {}
        self._sums: set[Key] = set()
        self._before: dict[tuple[int, str], int] = {}
        self._asked = 0
        shape = (len(self.kinds), population)
        self._counts: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self._sizes: NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
        self._exceeded_by_none: NDArray[np.int64] = np.zeros((0, 2 * len(self.kinds)), np.int64)
        self._cache: tuple[object, dict[str, Any]] | None = None
        self._open(sampling)

    def charge_contributions(self, key: Key, clients: Iterable[int], *, cohort: int) -> None:
        """Record, durably, that these clients are about to be asked for their vectors.

        The same key again is the same release: only clients new to it are charged.

        Parameters
        ----------
        key : tuple of (round, attempt, kind, group)
            With derived noise a rerun keeps its attempt; with fresh noise it is a new one.
        clients : iterable of int
            Roster indices.
        cohort : int
            The session's n (of its group), by which noise shares are divided.
        """
        self._check_kind(key)
        known = self._contributions.get(key)
        if known is not None and known[0] != cohort:
            raise ValueError(f"{key} was charged with a cohort of {known[0]}, not {cohort}")
        new = sorted(set(clients) - (set(known[1].tolist()) if known else set()))
        if new and not 0 <= new[0] <= new[-1] < self._population:
            raise ValueError(f"clients lie in 0..{self._population - 1}")
        if known is not None and not new:
            return
        line = {"type": "contributions", "key": list(key), "cohort": cohort, "clients": new}
        self._append(line)
        self._count_contributions(key, cohort, new)

    def asked(self, key: Key) -> tuple[int, frozenset[int]] | None:
        """Return the session's n and who was asked under a key; None where nobody was."""
        known = self._contributions.get(key)
        return None if known is None else (known[0], frozenset(known[1].tolist()))

    def charge_sum(self, key: Key) -> None:
        """Record, durably, that a sum is about to be opened. Idempotent by key.

        Raises
        ------
        ValueError
            If no contributions were charged under this key.
        """
        self._check_kind(key)
        if key not in self._contributions:
            raise ValueError(f"{key} has no contributions to sum")
        if key not in self._sums:
            self._append({"type": "sum", "key": list(key)})
            self._sums.add(key)

    def note_survivors(self, key: Key, *, cohort: int, survived: int) -> None:
        """Record, durably, how many of a session that ended were there to its end.

        Opened or abandoned. The same key again is the same session. Where more have dropped out
        than was assumed, abandonment is charged at more from here on.

        Parameters
        ----------
        key : tuple of (round, attempt, kind, group)
        cohort, survived : int
            Clients of the session; those who vanished at no stage.
        """
        self._check_kind(key)
        if not 0 <= survived <= cohort:
            raise ValueError(f"{survived} cannot have survived of a cohort of {cohort}")
        if key in self._ended:
            return
        line = {"type": "survived", "key": list(key), "cohort": cohort, "survived": survived}
        self._append(line)
        if self._count_survivors(key, cohort, survived):
            log.warning(
                "dropouts: %d of %d client-rounds, more than secagg.dropout = %g allows for: "
                "epsilon_release is charged at up to %g; state a higher secagg.dropout",
                self._attendance.dropped,
                self._attendance.rostered,
                self._secagg.dropout,
                self._attendance.charged,
            )

    @property
    def excess_dropout(self) -> float | None:
        """The dropout rate that is charged because more was seen than assumed; None if not."""
        return self.sampling.dropout if self.sampling.observed else None

    def attempts(self, number: int, kind: str) -> int:
        """Return how many attempts at a sum were charged before this process began.

        With derived noise there is one at most, and a rerun is the same.
        """
        return 0 if self._seeded else self._before.get((number, kind), 0)

    def participations(self) -> NDArray[np.int64]:
        """Return how often each client was asked for a vector, shape (population,)."""
        total: NDArray[np.int64] = self._counts.sum(axis=0)
        return total

    @property
    def last_round(self) -> int:
        """The latest round that was charged for; 0 where none was."""
        return max((key[0] for key in self._contributions), default=0)

    def figures(self, delta: float | None = None) -> dict[str, Any]:
        """Return every observer's epsilon so far.

        Parameters
        ----------
        delta : float, optional
            Default: the experiment's.

        Returns
        -------
        dict
            Keys "sum", "local", "release"; each a dict with value (None is infinite), delta,
            slack, adjacency, unit, accountant, participations, assumptions, reason.
        """
        delta = self._privacy.delta if delta is None else delta
        if not self._privacy.private:
            return {observer: refused(delta, NO_NOISE) for observer in OBSERVERS}
        state = (delta, len(self._sums), self._asked, self.sampling)
        if self._cache is None or self._cache[0] != state:
            masked = self._secagg.protocol != "none"
            result = all_figures(self.terms, self.tally(), self.sampling, delta, masked=masked)
            self._note(result)
            self._cache = (state, result)
        return {observer: dict(value) for observer, value in self._cache[1].items()}

    def client_figure(self, client: int, delta: float | None = None) -> dict[str, Any]:
        """Return epsilon_local of one client, by its own contributions alone.

        Parameters
        ----------
        client : int
            Roster index.
        delta : float, optional
            Default: the experiment's.
        """
        delta = self._privacy.delta if delta is None else delta
        if not self._privacy.private:
            return refused(delta, NO_NOISE)
        own = zip(self._counts[:, client].tolist(), self._sizes[:, client].tolist(), strict=True)
        tally = replace(self.tally(), worst=(tuple(own),))
        only = ("local",)
        found = all_figures(self.terms, tally, self.sampling, delta, masked=True, observers=only)
        return found["local"]

    def kind_figures(self, kind: str, delta: float | None = None) -> dict[str, Any]:
        """Return every observer's epsilon of one kind of private sum, were there no other.

        Parameters
        ----------
        kind : str
            One of ``kinds``.
        delta : float, optional
            Default: the experiment's.
        """
        delta = self._privacy.delta if delta is None else delta
        if not self._privacy.private:
            return {observer: refused(delta, NO_NOISE) for observer in OBSERVERS}
        whole, at = self.tally(), self.kinds.index(kind)

        def alone(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(value if i == at else 0 for i, value in enumerate(values))

        worst = tuple(
            tuple(pair if i == at else (0, 0) for i, pair in enumerate(client))
            for client in whole.worst
        )
        tally = replace(
            whole,
            worst=worst,
            opened=alone(whole.opened),
            smallest=alone(whole.smallest),
            draws=alone(whole.draws),
        )
        masked = self._secagg.protocol != "none"
        return all_figures(self.terms, tally, self.sampling, delta, masked=masked)

    def tally(self) -> Participation:
        """Return what was asked for and opened so far."""
        by_kind = {kind: [k for k in self._contributions if k[2] == kind] for kind in self.kinds}
        sizes = [[self._contributions[k][0] for k in keys] for keys in by_kind.values()]
        # A round's groups are topped up, or replaced by noise, each: one draw more.
        groups = self._secagg.groups
        rounds = [len({k[:2] for k in keys}) for keys in by_kind.values()]
        draws = [
            sum(len(self._contributions[k][1]) for k in keys) + groups * count
            for keys, count in zip(by_kind.values(), rounds, strict=True)
        ]
        opened = [len({k[:2] for k in self._sums if k[2] == kind}) for kind in self.kinds]
        return Participation(
            self._worst(),
            tuple(opened),
            largest=tuple(max(of, default=0) for of in sizes),
            smallest=tuple(min(of, default=0) for of in sizes),
            draws=tuple(draws),
        )

    def _worst(self) -> tuple[Worst, ...]:
        """Return the clients whom no other exceeds in every count (one, mostly)."""
        kinds = len(self.kinds)
        return tuple(
            tuple((int(row[i]), int(row[kinds + i])) for i in range(kinds))
            for row in self._exceeded_by_none
        )

    def _follow_worst(self, clients: list[int]) -> None:
        """Note whom no other exceeds, now that these clients' counts have grown.

        Whoever was exceeded before and was not asked still is; rows from before, of clients who
        were asked, are exceeded by their own. So a round costs what its cohort does.
        """
        grown = np.concatenate([self._counts[:, clients], self._sizes[:, clients]]).T
        rows = np.unique(np.concatenate([self._exceeded_by_none, grown]), axis=0)[::-1]
        kept: list[NDArray[np.int64]] = []
        for row in rows:
            if not any((other >= row).all() for other in kept):
                kept.append(row)
        self._exceeded_by_none = np.array(kept, dtype=np.int64).reshape(-1, 2 * len(self.kinds))

    def _note(self, figures: dict[str, dict[str, Any]]) -> None:
        if self._secagg.corruption > 0:
            note = f"at most {self._secagg.corruption:g} of the roster collude and omit their noise"
            figures["sum"]["assumptions"].append(note)
        if self._secagg.groups > 1:
            note = f"the server sees the sums of {self._secagg.groups} groups, each with all of V"
            figures["sum"]["assumptions"].append(note)
        if self._secagg.protocol == "ideal":
            told = figures["sum"]["assumptions"]
            told[:] = [
                *(note for note in told if note != MASKED),
                "the sum is formed by a trusted party",
            ]
        if self._seeded:
            for name in OBSERVERS:
                figures[name]["assumptions"].append(SECRET_SEED)

    def _check_kind(self, key: Key) -> None:
        if key[2] not in self.kinds:
            raise UnknownKindError(f"no privacy terms for a private sum of kind {key[2]!r}")

    def _count_contributions(self, key: Key, cohort: int, clients: list[int]) -> None:
        row = self.kinds.index(key[2])
        self._counts[row, clients] += 1
        self._sizes[row, clients] += cohort
        self._asked += len(clients)
        added = np.array(clients, dtype=np.uint32)
        cohort, known = self._contributions.get(key, (cohort, added[:0]))
        self._contributions[key] = cohort, np.union1d(known, added)
        self._follow_worst(clients)

    def _count_survivors(self, key: Key, cohort: int, survived: int) -> bool:
        """Follow dropouts; return whether they make abandonment cost more."""
        self._ended.add(key)
        if not self._attendance.note(cohort, survived):
            return False
        if self.sampling.kind != "poisson" or not self._privacy.private:
            return False
        higher = sampling_terms(
            self._privacy,
            self._secagg,
            self._drawn,
            self._population,
            observed=self._attendance.charged,
        )
        # The maximum over rates is found to a relative 1e-3: a wider range must not lower it.
        self.sampling = replace(higher, p=max(higher.p, self.sampling.p))
        return True

    def _header(self, sampling: SamplingSpec) -> dict[str, Any]:
        return {
            "type": "run",
            "population": self._population,
            "model": self._privacy.model,
            "protocol": self._secagg.protocol,
            "corruption": self._secagg.corruption,
            "dropout": self._secagg.dropout,
            "groups": self._secagg.groups,
            "sampling": sampling.model_dump(),
            "kinds": {k: t.description() for k, t in self.terms.items()} or list(self.kinds),
        }

    def _open(self, sampling: SamplingSpec) -> None:
        header = self._header(sampling)
        if self._path is None:
            return
        lines = []
        if self._path.exists():
            lines = _complete_lines(self._path, cut=not self._read_only)
        if not lines:
            self._append(header)
            return
        try:
            records = [json.loads(line) for line in lines]
            if records[0] != header:
                raise LedgerMismatchError(
                    f"{self._path} is the ledger of a run with other privacy parameters"
                )
            for record in records[1:]:
                self._recall(record)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            if isinstance(error, LedgerMismatchError):
                raise
            raise LedgerMismatchError(
                f"{self._path} is damaged ({error}): what was spent is not known any more"
            ) from None

    def _recall(self, record: dict[str, Any]) -> None:
        number, attempt, kind, group = record["key"]
        key = (int(number), int(attempt), str(kind), int(group))
        self._check_kind(key)
        if record["type"] == "survived":
            cohort, survived = int(record["cohort"]), int(record["survived"])
            if not 0 <= survived <= cohort:
                raise ValueError(f"{survived} survived of a cohort of {cohort}")
            if key not in self._ended:
                self._count_survivors(key, cohort, survived)
            return
        self._before[key[0], key[2]] = max(self._before.get((key[0], key[2]), 0), key[1] + 1)
        if record["type"] == "sum":
            if key not in self._contributions:
                raise ValueError(f"{key} has no contributions to sum")
            self._sums.add(key)
            return
        clients = [int(client) for client in record["clients"]]
        if any(not 0 <= client < self._population for client in clients):
            raise ValueError(f"clients lie in 0..{self._population - 1}")
        if not 1 <= int(record["cohort"]) <= self._population:
            raise ValueError(f"a cohort of {record['cohort']} of {self._population} clients")
        self._count_contributions(key, int(record["cohort"]), clients)

    def _append(self, record: dict[str, Any]) -> None:
        if self._path is None or self._read_only:
            return
        append_durably(self._path, json.dumps(record, separators=(",", ":")).encode() + b"\n")


def sampling_terms(
    privacy: PrivacySpec,
    secagg: SecAggSpec,
    sampling: SamplingSpec,
    population: int,
    *,
    observed: float | None = None,
) -> Sampling:
    """Return what sampling and abandonment contribute to the release figure.

    Abandonment is charged at the worst dropout rate up to the assumed one, or up to ``observed``.

    With G groups, each a Poisson sample at q/G, the probability that a client is in the cohort
    and its group opened only because of it, given that the round was opened, is at most G times
    that of one group given that this one was opened. A group that fails is not visible in a
    release, whose noise is the same, so that no more than this changes.

    Raises
    ------
    ValueError
        If the cohort is missing or above the population.
    """
    if sampling.kind != "poisson":
        return Sampling(sampling.kind, 1.0, 0.0, population, sampling.cohort or population)
    if sampling.cohort is None or sampling.cohort > population:
        raise ValueError(f"sampling.cohort = {sampling.cohort} of a population of {population}")
    q = sampling.cohort / population
    if not privacy.private:
        return Sampling("poisson", q, 0.0)

    needed = partial(survivors_needed, roster=population, secagg=secagg, privacy=privacy)
    groups = secagg.groups
    dropout = secagg.dropout if observed is None else observed
    rule = OpeningRule(population, q / groups, dropout, needed)
    p = min(1.0, groups * largest_opened_only_because_of_one(rule))
    return Sampling("poisson", q, p, dropout=dropout, observed=observed is not None)


def _complete_lines(path: Path, *, cut: bool) -> list[bytes]:
    """Return the whole lines; cut off, or leave out, a torn last one: it was never released."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if cut and whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    return content[:whole].splitlines()
