"""Stand-ins for a node's own files where Flower's simulation runtime plays the nodes.

There one owner runs server and clients, and a node has an index and nothing else: no folder for
its decisions, no policy, no keys. That a node is simulated is told by this process alone, never by
a message, a run config or a context: whatever a server sends, a deployed client stays one.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, ClassVar, Final, get_args

from flwr.app import ConfigRecord, Context, RecordDict

from zerosum.client.flower.flower_internals import in_simulation_runtime
from zerosum.client.privacy.spending import BudgetRule, Price, Spending
from zerosum.client.protocol.decision_store import ROUNDS_KEPT, newer_mark
from zerosum.client.protocol.node_keys import Credentials
from zerosum.client.request import MOST_COORDINATES
from zerosum.client.session_limits import Openings
from zerosum.client.spec import ClientPolicy, PrivacyModel
from zerosum.client.spec.app_query_policy import AppQueryPolicy
from zerosum.client.spec.query_policy import QueryPolicy
from zerosum.secagg import IdentityKey, Roster
from zerosum.secagg.randomness import derive_seed

OPEN_POLICY = ClientPolicy(
    models=list(get_args(PrivacyModel)),
    mechanisms="any",
    servers=["malicious", "semi-honest"],
    protocols=["pairwise", "ideal", "none"],
    min_noise_multiplier=0.0,
    max_contributions=2**62,
    min_cohort=2,
    corruption=0.0,
    max_epsilon=math.inf,
    # Nobody begins sessions for their draws where one owner plays both sides: a store in memory
    # does not count them, and one divides 2^-40 by nothing.
    max_openings_per_run=1,
    max_openings_per_day=1,
    tasks="any",
    queries=QueryPolicy(
        columns="any",
        units=["record", "client"],
        max_epsilon_per_query=math.inf,
        max_cells=MOST_COORDINATES,
        max_records=2**62,
    ),
    app_queries=AppQueryPolicy(
        units=["record", "client"], max_epsilon_per_query=math.inf, max_cells=MOST_COORDINATES
    ),
)
"""Simulated clients take part in anything: what they would insist on is an experiment's matter."""

GIVEN: Final = frozenset({"partition-id", "num-partitions"})
"""Node config of a simulated node. A node that has any more is somebody's."""

DECISIONS: Final = "zerosum.decisions"


def is_simulated(context: Context) -> bool:
    """Return whether Flower's simulation runtime plays this node, which has nothing of its own."""
    return in_simulation_runtime() and context.node_config.keys() == GIVEN


class ContextStore:
    """Decisions of a simulated client, in the state that the runtime keeps for its node.

    The runtime hands that state from actor to actor, as long as the run lasts. It is lost with a
    message that fails, which nothing but a simulation could be content with.

    Parameters
    ----------
    state : RecordDict
        Of the node's context.
    """

    accounts: ClassVar[bool] = False

    def __init__(self, state: RecordDict) -> None:
        if DECISIONS not in state.config_records:
            state[DECISIONS] = ConfigRecord({"contributions": 0})
        self._kept: Any = state[DECISIONS]

    def exclusive(self, longest: float = math.inf) -> AbstractContextManager[None]:
        """Do nothing: a node is sent one message at a time."""
        return nullcontext()

    def lines(self, session: bytes) -> tuple[bytes, ...]:
        """Return the lines of a session."""
        return tuple(self._kept["lines"]) if self._kept.get("session") == session else ()

    def append(self, session: bytes, lines: tuple[bytes, ...]) -> None:
        """Keep lines of the newest session only: an older one is refused by its number."""
        self._kept["lines"] = [*self.lines(session), *lines]
        self._kept["session"] = session

    def raise_high_water(
        self,
        run_id: bytes,
        round: int,
        attempt: int,
        session: bytes = b"",
        most: Openings | None = None,
    ) -> None:
        """Admit a session newer than all before of its run; another run begins anew.

        A ServerApp may open several, as of two grids that ask in turn: each has its own numbers.
        """
        mark = self._kept.get("mark") if self._kept.get("run") == run_id else None
        before = None if mark is None else (mark[0], mark[1])
        self._kept["mark"] = list(newer_mark(before, (round, attempt)))
        self._kept["run"] = run_id

    def is_over(self, run_id: bytes, round: int) -> bool:
        """Return whether a round lies further back than two open ones can."""
        mark = self._kept.get("mark") if self._kept.get("run") == run_id else None
        return mark is not None and round < mark[0] - ROUNDS_KEPT

    def admit_roster(self, version: int, digest: bytes) -> None:
        """Do nothing: the roster follows from the run."""

    @property
    def contributions(self) -> int:
        """Vectors sent."""
        return int(self._kept["contributions"])

    @property
    def spending(self) -> Spending:
        """Return the number of vectors: a simulated client has no budget."""
        return Spending(contributions=self.contributions)

    @property
    def spent(self) -> tuple[float, ...] | None:
        """Return an empty spending: a simulated client has no budget."""
        return None if self.contributions else ()

    def open_budget(
        self, order: int | None, max_epsilon: float, delta: float, rule: BudgetRule = "renyi"
    ) -> int | None:
        """Fix the order, unless one is fixed."""
        if order is None:
            return None
        self._kept["order"] = int(self._kept.get("order", order))
        return int(self._kept["order"])

    def count_contribution(
        self,
        cost: Price | Sequence[float] | None = None,
        run_id: bytes = b"",
        flower_run: str = "",
    ) -> None:
        """Count one more vector."""
        self._kept["contributions"] = self.contributions + 1


def simulated_credentials(context: Context) -> Credentials:
    """Return a simulated node's key and the roster of its run."""
    count, index = (int(context.node_config[key]) for key in ("num-partitions", "partition-id"))
    identity = _identity(context.run_id, index)
    return Credentials.of(identity, simulated_roster(context.run_id, count), index)


@lru_cache(maxsize=1)
def simulated_roster(run_id: int, count: int) -> Roster:
    """Return the roster of a simulated run: keys derived from the run's id, which hide nothing.

    Parameters
    ----------
    run_id : int
        Of Flower.
    count : int
        Nodes.

    Returns
    -------
    Roster
        Of version 1.
    """
    return Roster(1, {index: _identity(run_id, index).public for index in range(count)})


def _identity(run_id: int, index: int) -> IdentityKey:
    return IdentityKey(derive_seed(run_id, "simulated identity", index))
