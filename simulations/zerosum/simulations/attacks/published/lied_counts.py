"""Count people with real clients, of which one lies: what it sends is its code's affair."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from zerosum.client.flower.client_app import build_app
from zerosum.client.protocol.client_vector import Future, OnCollection, Work
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.client.request import MAX_RECORDS
from zerosum.client.task import ClientInfo
from zerosum.secagg.randomness import numpy_generator
from zerosum.server.analytics.ask import ask
from zerosum.server.analytics.asks import QueryAbandoned
from zerosum.server.analytics.ledger import QueryLedger
from zerosum.server.analytics.query_plan import PlanFile
from zerosum.server.analytics.stored_answers import StoredAnswers
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.simulations.attacks.harness.interface import Defense, Scene, View
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.harness.to_specs import DELTA
from zerosum.simulations.attacks.published.asked_tables import composed, plan_for
from zerosum.simulations.engine.grid import InProcessGrid, nodes
from zerosum.simulations.queries.builders import count
from zerosum.simulations.queries.clients import TableEnvironment
from zerosum.simulations.queries.setting import header_of, run_id, secagg_of, terms_of
from zerosum.simulations.queries.tables import DealtTable, dealt_of

LIAR = 0
"""The client that lies."""


@dataclass(frozen=True)
class LiedCountsView(View):
    """Hold what a client that lies knows, and what comes of it.

    Attributes
    ----------
    clients : int
        n, itself included.
    max_records : int
        That a client may count at most: public.
    own : tuple of int
        Its own part of each count.
    counts : ndarray or None
        int64, shape (counts,): as they were released. None beforehand, and where the server refused
        the sums.
    """

    clients: int = 0
    max_records: int = 0
    own: tuple[int, ...] = ()
    counts: np.ndarray | None = None


@dataclass(frozen=True)
class LiedCounts:
    """Ask for counts of which one client is asked for its part as all are, and adds to it.

    Attributes
    ----------
    clients : int
        Of which client 0 lies.
    counts : int
        Asked one by one, each of a group of its own.
    people : int
        In all groups, dealt at random.
    max_records : int
        Records of a client that count at most.
    """

    clients: int = 10
    counts: int = 5
    people: int = 1_000
    max_records: int = MAX_RECORDS

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        return f"a count over {self.clients} clients, of {self.max_records:,} records at most"

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Ask the liar for what it adds, and for the counts; see :class:`~.interface.Setting`.

        The liar's move is ``attack.craft(view, rng)``: an integer, which it adds to each count.
        """
        dealt = _dealt(self, protection, seed)
        truth, own = (np.bincount(one.columns["group"], minlength=self.counts) for one in dealt[1:])
        before = LiedCountsView(
            threat=attack.threat,
            protection=protection,
            clients=self.clients,
            max_records=self.max_records,
            own=tuple(map(int, own)),
        )
        added = int(attack.craft(sealed(before), numpy_generator(seed, "craft")))
        honest, _, _ = _counted(self, protection, seed, 0)
        found, refused, epsilon = _counted(self, protection, seed, added)
        view = replace(before, counts=None if refused else np.array(found), stopped=refused)
        known = {"counts": truth, "without": np.array(honest)}
        return Scene(view, known, epsilon, DELTA)
