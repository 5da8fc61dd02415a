"""The write-ahead ledger of a run: charge before a release, and compute what was charged for.

A line is on disk before anything is asked for or opened. Lines are never taken back, so that no
figure ever decreases: not across rounds, restarts or aborted rounds. The file is
:mod:`zerosum.server.privacy.ledger_file`'s, the counts are
:mod:`zerosum.server.privacy.participation_counts`'.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from zerosum.client.protocol.protection import Protection
from zerosum.client.request import Kind
from zerosum.client.spec import PrivacySpec, SecAggSpec
from zerosum.server.config import ConfigError
from zerosum.server.privacy.assumptions import MASKED
from zerosum.server.privacy.dropout_rate import DropoutRate
from zerosum.server.privacy.epsilon_bound import EpsilonBound, no_bound
from zerosum.server.privacy.epsilons import all_figures
from zerosum.server.privacy.guarantees import ExampleUnit, Participation, terms_of
from zerosum.server.privacy.ledger_file import (
    ContributionsCharged,
    Key,
    LedgerEntry,
    LedgerFile,
    RunHeader,
    SessionEnded,
    SumCharged,
    damaged,
)
from zerosum.server.privacy.ledger_file import LedgerMismatchError as LedgerMismatchError
from zerosum.server.privacy.observers import OBSERVERS, ObserverName
from zerosum.server.privacy.participation_counts import ParticipationCounts
from zerosum.server.privacy.release_sampling import sampling_terms
from zerosum.server.spec import SamplingSpec

if TYPE_CHECKING:  # Flower takes seconds to import, and a figure needs none of it
    from zerosum.server.private_sum.coordinator import Charge, ChargeKind

log = logging.getLogger("zerosum.server")

Figures = Mapping[ObserverName, EpsilonBound]

NO_NOISE = 'privacy.model = "none": no noise, so no epsilon'
SECRET_SEED = "simulated: noise and cohorts follow from the seed, which must be secret"


class DeltaTooLargeError(ConfigError):
    """At this delta, exposing one client whole would count as private."""


class UnknownKindError(ValueError):
    """A private sum that no terms were agreed for: nothing would bound its cost."""


def check_delta(privacy: PrivacySpec, population: int) -> None:
    """Refuse delta >= 1/population, unless it is allowed by name.

    Parameters
    ----------
    privacy : PrivacySpec
        States delta, and ``allow_large_delta``.
    population : int
        Clients; under ``privacy.unit = "example"`` the examples of all clients.

    Raises
    ------
    DeltaTooLargeError
        If a mechanism at this delta could expose one of them whole.
    """
    if privacy.private and not privacy.allow_large_delta and privacy.delta * population >= 1:
        of = "privacy.examples" if privacy.by_example else "population"
        raise DeltaTooLargeError(
            f"privacy.delta = {privacy.delta:g} is not below 1/{of} = {1 / population:g}; "
            f"lower it, or set privacy.allow_large_delta = true"
        )


class RunLedger:
    """Charges a run's private sums ahead of each, and computes epsilon against each observer.

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
        self._file, self._path = LedgerFile(path, read_only=read_only), path
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
        self._counts = ParticipationCounts(self.kinds, population)
        self._attempts_before: dict[tuple[int, str], int] = {}
        self._cache: tuple[object, Figures] | None = None
        self._read()

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

        Raises
        ------
        UnknownKindError
            If nothing was agreed for this kind of sum.
        ValueError
            If the key was charged with another cohort, or a client is not in the roster.
        """
        self._check_kind(key)
        session = self.asked(key)
        if session is not None and session[0] != cohort:
            raise ValueError(f"{key} was charged with a cohort of {session[0]}, not {cohort}")
        new = sorted(set(map(int, clients)) - (session[1] if session else set()))
        if new and not 0 <= new[0] <= new[-1] < self._population:
            raise ValueError(f"clients lie in 0..{self._population - 1}")
        if session is not None and not new:
            return
        self._file.append(ContributionsCharged(key=key, cohort=cohort, clients=new))
        self._counts.add_contributions(key, cohort, new)

    def charging(
        self,
        number: int,
        attempt: int,
        kind: Kind,
        groups: Sequence[Sequence[int]],
        *,
        wait: bool = True,
    ) -> "Charge":
        """Return the call by which a coordinator charges the sessions of one private sum.

        Parameters
        ----------
        number, attempt : int
            Of the sum: see :meth:`charge_contributions`.
        kind : str
            Its kind.
        groups : sequence of sequence of int
            Roster indices, one sequence a session.
        wait : bool
            As for :meth:`note_survivors`. Charges are always waited for.

        Returns
        -------
        callable
            Of the stage that is charged, the session's place in ``groups``, and clients.
        """

        def charge(what: "ChargeKind", group: int, clients: tuple[int, ...]) -> None:
            key, cohort = (number, attempt, kind, group), len(groups[group])
            if what == "contributions":
                self.charge_contributions(key, clients, cohort=cohort)
            elif what == "survived":
                self.note_survivors(key, cohort=cohort, survived=len(clients), wait=wait)
            else:
                self.charge_sum(key)

        return charge

    def asked(self, key: Key) -> tuple[int, frozenset[int]] | None:
        """Return the session's n and who was asked under a key; None where nobody was."""
        return self._counts.session(key)

    def charge_sum(self, key: Key) -> None:
        """Record, durably, that a sum is about to be opened. Idempotent by key.

        Parameters
        ----------
        key : tuple of (round, attempt, kind, group)
            The session.

        Raises
        ------
        ValueError
            If no contributions were charged under this key.
        """
        self._check_kind(key)
        if self.asked(key) is None:
            raise ValueError(f"{key} has no contributions to sum")
        if not self._counts.opened(key):
            self._file.append(SumCharged(key=key))
            self._counts.add_sum(key)

    def note_survivors(self, key: Key, *, cohort: int, survived: int, wait: bool = True) -> None:
        """Record, durably, how many of a session that ended were there to its end.

        Opened or abandoned. The same key again is the same session. Where more have dropped out
        than was assumed, abandonment is charged at more from here on.

        Parameters
        ----------
        key : tuple of (round, attempt, kind, group)
        cohort, survived : int
            Clients of the session; those who vanished at no stage.
        wait : bool
            Whether it is on the disk when this returns, or when :meth:`settle` or the next charge
            does: it is no charge ahead of anything, and has to be there before anything is told.

        Raises
        ------
        UnknownKindError
            If nothing was agreed for this kind of sum.
        ValueError
            If more survived than were asked.
        """
        self._check_kind(key)
        if not 0 <= survived <= cohort:
            raise ValueError(f"{survived} cannot have survived of a cohort of {cohort}")
        if key in self._ended:
            return
        self._file.append(SessionEnded(key=key, cohort=cohort, survived=survived), wait=wait)
        if self._count_survivors(key, cohort, survived):
            log.warning(
                "dropouts: %d of %d client-rounds, more than secagg.dropout = %g allows for: "
                "epsilon_release is charged at up to %g; state a higher secagg.dropout",
                self._attendance.dropped,
                self._attendance.rostered,
                self._secagg.dropout,
                self._attendance.charged,
            )

    def settle(self) -> None:
        """Wait until all that was recorded is on the disk: before anything tells of its figures.

        Raises
        ------
        OSError
            If the disk refuses it.
        """
        self._file.settle()

    @property
    def excess_dropout(self) -> float | None:
        """The dropout rate that is charged because more was seen than assumed; None if not."""
        return self.sampling.dropout if self.sampling.observed else None

    def attempts(self, number: int, kind: str) -> int:
        """Return how many attempts at a sum were charged before this process began.

        With derived noise there is one at most, and a rerun is the same.

        Parameters
        ----------
        number : int
            The round.
        kind : str
            One of ``kinds``.

        Returns
        -------
        int
            The number of the next attempt.
        """
        return 0 if self._seeded else self._attempts_before.get((number, kind), 0)

    def participations(self) -> NDArray[np.int64]:
        """Return how often each client was asked for a vector, shape (population,)."""
        return self._counts.by_client()

    def times_asked(self, client: int) -> int:
        """Return how often one client was asked for a vector."""
        return sum(count for count, _ in self._counts.of_client(client))

    @property
    def last_round(self) -> int:
        """The latest round that was charged for; 0 where none was."""
        return self._counts.last_round

    def tally(self) -> Participation:
        """Return what was asked for and opened so far."""
        return self._counts.tally(self._secagg.groups)

    def figures(self, delta: float | None = None) -> Figures:
        """Compute the bound against every observer so far.

        Parameters
        ----------
        delta : float, optional
            Default: the experiment's.

        Returns
        -------
        mapping of str to EpsilonBound
            By observer; infinite, with a reason, where nothing bounds it.
        """
        delta = self._privacy.delta if delta is None else delta
        if not self._privacy.private:
            return self._without_noise(delta)
        # Everything that a figure depends on grows with one of these.
        state = (delta, self._counts.sums, self._counts.asked, self.sampling)
        if self._cache is None or self._cache[0] != state:
            self._cache = state, self.figures_of(self.tally(), delta)
        return self._cache[1]

    def figures_of(self, tally: Participation, delta: float | None = None) -> Figures:
        """Compute the bound against every observer of other sums on this run's terms.

        Parameters
        ----------
        tally : Participation
            In place of what was charged.
        delta : float, optional
            Default: the experiment's.

        Returns
        -------
        mapping of str to EpsilonBound
            By observer. Of a run with noise.
        """
        delta = self._privacy.delta if delta is None else delta
        masked = self._secagg.protocol != "none"
        bounds = all_figures(self.terms, tally, self.sampling, delta, masked=masked)
        return {name: self._noted(bound) for name, bound in bounds.items()}

    def rounds_asked(self, kind: str) -> int:
        """Return in how many rounds a kind of sum was asked for, attempts counted apart."""
        return self._counts.rounds(kind)

    def client_figure(self, client: int, delta: float | None = None) -> EpsilonBound:
        """Compute epsilon_local of one client, by its own contributions alone.

        Parameters
        ----------
        client : int
            Roster index.
        delta : float, optional
            Default: the experiment's.

        Returns
        -------
        EpsilonBound
            Against the observer "local".
        """
        delta = self._privacy.delta if delta is None else delta
        if not self._privacy.private:
            return self._without_noise(delta)["local"]
        tally = replace(self.tally(), worst=(self._counts.of_client(client),))
        only: tuple[ObserverName] = ("local",)
        bounds = all_figures(self.terms, tally, self.sampling, delta, masked=True, observers=only)
        return bounds["local"]

    def kind_figures(self, kind: str, delta: float | None = None) -> Figures:
        """Compute the bounds of one kind of private sum, were there no other.

        Parameters
        ----------
        kind : str
            One of ``kinds``.
        delta : float, optional
            Default: the experiment's.

        Returns
        -------
        mapping of str to EpsilonBound
            By observer.
        """
        delta = self._privacy.delta if delta is None else delta
        if not self._privacy.private:
            return self._without_noise(delta)
        tally = self.tally().of_kind(self.kinds.index(kind))
        masked = self._secagg.protocol != "none"
        return all_figures(self.terms, tally, self.sampling, delta, masked=masked)

    def _without_noise(self, delta: float) -> Figures:
        unit = self._privacy.unit
        return {name: no_bound(name, delta, NO_NOISE, unit=unit) for name in OBSERVERS}

    def _noted(self, bound: EpsilonBound) -> EpsilonBound:
        """Add the assumptions that follow from the run's protocol and its coins."""
        assumptions = list(bound.assumptions)
        if bound.observer == "sum":
            if self._secagg.protocol == "ideal":
                assumptions = [note for note in assumptions if note != MASKED]
            if self._secagg.corruption > 0:
                share = f"{self._secagg.corruption:g}"
                assumptions.append(f"at most {share} of the roster collude and omit their noise")
            if self._secagg.groups > 1:
                groups = self._secagg.groups
                assumptions.append(
                    f"the server sees the sums of {groups} groups, each with all of V"
                )
            if self._secagg.protocol == "ideal":
                assumptions.append("the sum is formed by a trusted party")
        if self._seeded:
            assumptions.append(SECRET_SEED)
        return replace(bound, assumptions=tuple(assumptions))

    def _check_kind(self, key: Key) -> None:
        if key[2] not in self.kinds:
            raise UnknownKindError(f"no privacy terms for a private sum of kind {key[2]!r}")

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

    def _header(self) -> RunHeader:
        kinds = {kind: terms.description() for kind, terms in self.terms.items()}
        return RunHeader(
            population=self._population,
            model=self._privacy.model,
            protocol=self._secagg.protocol,
            corruption=self._secagg.corruption,
            dropout=self._secagg.dropout,
            groups=self._secagg.groups,
            sampling=self._drawn.model_dump(),
            kinds=kinds or list(self.kinds),
        )

    def _read(self) -> None:
        """Count what an earlier process charged; begin the file where there is none."""
        for entry in self._file.open(self._header()):
            try:
                self._recall(entry)
            except ValueError as error:
                raise damaged(self._path or Path(), error) from None

    def _recall(self, entry: LedgerEntry) -> None:
        key = entry.key
        self._check_kind(key)
        if isinstance(entry, SessionEnded):
            if entry.survived > entry.cohort:
                raise ValueError(f"{entry.survived} survived of a cohort of {entry.cohort}")
            if key not in self._ended:
                self._count_survivors(key, entry.cohort, entry.survived)
            return
        number, attempt, kind, _ = key
        before = self._attempts_before.get((number, kind), 0)
        self._attempts_before[number, kind] = max(before, attempt + 1)
        if isinstance(entry, SumCharged):
            self._counts.add_sum(key)
            return
        if any(client >= self._population for client in entry.clients):
            raise ValueError(f"clients lie in 0..{self._population - 1}")
        if not 1 <= entry.cohort <= self._population:
            raise ValueError(f"a cohort of {entry.cohort} of {self._population} clients")
        self._counts.add_contributions(key, entry.cohort, entry.clients)
