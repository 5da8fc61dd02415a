"""Derive a benchmarked session, its keys and its dropouts from one setting."""

from dataclasses import dataclass
from math import ceil, floor, log2

from zerosum.secagg import IdentityKey, Roster, ServerMode, Session, request_digest
from zerosum.secagg.graph.auto_degree import auto_parameters
from zerosum.secagg.graph.failure_bounds import colluders_in
from zerosum.secagg.graph.parameters import graph_parameters
from zerosum.secagg.randomness import derive_seed, numpy_generator
from zerosum.simulations.bench.process import Values

REQUEST = request_digest(b"a benchmark", b"")
"""Request of every benchmarked session."""


@dataclass(frozen=True, kw_only=True)
class BenchedSession:
    """A session to be played.

    Attributes
    ----------
    n, d : int
        Clients, and coordinates of each one's vector.
    dropout : float
        floor(dropout x n) clients, drawn at random, vanish between share and contribute: the
        costliest moment for the server.
    corruption : float
        Fraction of clients that collude, for degree and threshold.
    server : str
        ``malicious`` or ``semi-honest``.
    degree : int or str
        ``complete``, ``auto`` (complete for small cohorts, else the smallest that is safe), or a
        number, of which nothing is checked.
    threshold : int, optional
        By default the one that goes with the degree; with a number, floor(2k/3) + 1.
    bits : int
        Bits of each value; the ring has ceil(log2 n) more.
    threads : int
        How many threads expand masks: less time, not less CPU time.
    seed : int
        Of vectors and dropouts; keys are drawn from the operating system.
    """

    n: int
    d: int
    dropout: float = 0.0
    corruption: float = 0.05
    server: str = "malicious"
    degree: int | str = "auto"
    threshold: int | None = None
    bits: int = 16
    threads: int = 1
    seed: int = 0

    def open(self) -> tuple[Session, dict[int, IdentityKey], Roster | None]:
        """Return a session with the keys of all its clients.

        Raises
        ------
        SecAggError
            If there is no such session.
        """
        n, mode = self.n, ServerMode(self.server)
        k, t = self._graph(mode)
        cohort = tuple(range(n))
        identities: dict[int, IdentityKey] = {}
        roster = None
        if mode is ServerMode.MALICIOUS:
            identities = {index: IdentityKey.generate() for index in cohort}
            roster = Roster(1, {index: key.public for index, key in identities.items()})
        permuted = mode is ServerMode.SEMI_HONEST and k < n - 1
        session = Session(
            run_id=b"zerosum bench",
            round=1,
            attempt=0,
            roster_version=1,
            cohort=cohort,
            threshold=t if self.threshold is None else self.threshold,
            min_survivors=1,
            ring_bits=self.bits + ceil(log2(n)),
            vector_length=self.d,
            degree=k,
            mode=mode,
            roster_digest=b"" if roster is None else roster.digest,
            graph_seed=derive_seed(self.seed, "bench graph") if permuted else b"",
        )
        return session, identities, roster

    def colluders(self) -> int:
        """Return how many clients are assumed to collude."""
        return colluders_in(self.n, self.n, self.corruption, self.server)

    def gone(self) -> frozenset[int]:
        """Return the clients that vanish between share and contribute."""
        rng = numpy_generator(self.seed, "bench dropouts")
        count = floor(self.dropout * self.n + 1e-9)
        return frozenset(rng.choice(self.n, count, replace=False).tolist())

    def described(self, session: Session) -> Values:
        """Return what every result says of its session."""
        return {
            "n": self.n,
            "d": self.d,
            "degree": session.degree,
            "threshold": session.threshold,
            "server": self.server,
            "dropout": self.dropout,
            "ring_bits": session.ring_bits,
        }

    def _graph(self, mode: ServerMode) -> tuple[int, int]:
        """Return the degree and the threshold."""
        if self.degree == "auto":
            chosen = auto_parameters(self.n, self.dropout, self.corruption, mode)
            return chosen.degree, chosen.threshold
        if self.degree == "complete":
            chosen = graph_parameters(
                self.n, self.dropout, self.corruption, mode, complete_below=self.n + 1
            )
            return chosen.degree, chosen.threshold
        k = int(self.degree)
        return k, 2 * k // 3 + 1
