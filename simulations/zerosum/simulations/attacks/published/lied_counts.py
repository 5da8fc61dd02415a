"""Count people with real clients, one of which lies: what it sends is its own code's affair."""

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from zerosum.client.protocol.client_vector import Future, OnCollection, Work
from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.request import MAX_RECORDS
from zerosum.client.spec import SecAggSpec
from zerosum.client.task import ClientInfo
from zerosum.secagg.randomness import numpy_generator
from zerosum.server.analytics.asks import QueryAbandoned
from zerosum.simulations.attacks.harness.interface import Defense, Scene, View
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.harness.to_specs import DELTA
from zerosum.simulations.attacks.published.asked_tables import checked, federation, released
from zerosum.simulations.queries.builders import count
from zerosum.simulations.queries.clients import TableEnvironment
from zerosum.simulations.queries.tables import DealtTable


@dataclass(frozen=True)
class LiedCountsView(View):
    """Hold what a client that lies knows, and what comes of it.

    Attributes
    ----------
    clients : int
        n, itself included.
    max_records : int
        Of each client that count at most: public.
    groups : int
        That are counted, one by one.
    counts : ndarray or None
        int64, shape (groups,): as they were released. None before, and where the server refused the
        sums.
    """

    clients: int = 0
    max_records: int = 0
    groups: int = 0
    counts: np.ndarray | None = None


@dataclass(frozen=True)
class LiedCountsSetting:
    """Count groups one by one, with a client that adds to each count.

    It is asked how much by ``craft(view, rng)``, which returns an integer.

    Attributes
    ----------
    clients : int
        Client 0 lies.
    groups : int
        Each of people of its own.
    size : int
        People of a group, dealt to the clients at random.
    max_records : int
        Of each client that count at most.
    """

    clients: int = 10
    groups: int = 5
    size: int = 200
    max_records: int = MAX_RECORDS

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        return f"a count over {self.clients} clients of {self.max_records:,} records at most"

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Ask the liar, then for the counts; see :class:`~.interface.Setting`."""
        before = LiedCountsView(
            threat=attack.threat,
            protection=protection,
            clients=self.clients,
            max_records=self.max_records,
            groups=self.groups,
        )
        added = int(attack.craft(sealed(before), numpy_generator(seed, "craft")))
        honest, _, _ = _counted(self, protection, seed, 0)
        counts, refused, epsilon = _counted(self, protection, seed, added)
        view = replace(before, counts=None if refused else counts, stopped=refused)
        truth = {"sizes": np.full(self.groups, self.size), "without": honest}
        return Scene(view, truth, epsilon, DELTA)


@lru_cache(maxsize=8)
def _counted(
    setting: LiedCountsSetting, protection: Defense, seed: int, added: int
) -> tuple[np.ndarray, str, float]:
    """Return the counts, or why the server refused them, and their epsilon."""
    columns = {"group": np.repeat(np.arange(setting.groups), setting.size)}
    epsilon = checked(protection).epsilon
    found = []
    with federation(
        columns,
        {"group": {"integer": [0, setting.groups - 1]}},
        protection,
        clients=setting.clients,
        seed=seed,
        max_records=setting.max_records,
        environment=partial(_Lying, added),
    ) as asked:
        refused = ""
        try:
            for group in range(setting.groups):
                answer = asked.ask(count(where=f"group = {group}", epsilon=epsilon))
                found.append(int(answer.noisy[0]))
        except QueryAbandoned as error:
            refused = str(error)
        return np.array(found, dtype=np.int64), refused, released(asked).epsilon(DELTA)


class _Lying(TableEnvironment):
    """Clients of which the first adds to each cell of its vector, noise and all.

    It takes its code's last step itself: what it adds is held against no bound of its own code.
    """

    def __init__(self, added: int, dealt: DealtTable, entropy: Entropy, secagg: SecAggSpec) -> None:
        super().__init__(dealt, entropy, secagg)
        self._added = added

    def compute(self, work: Work, client: ClientInfo) -> Future:
        """Return what a client sends, and more of the liar."""
        honest = super().compute(work, client)
        if client.index or not self._added:
            return honest
        return OnCollection(lambda: honest.result().astype(np.int64) + self._added)
