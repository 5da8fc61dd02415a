"""Private sums without messages: what a coordinator of trusted clients would open."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zerosum.client.privacy.counts import counting_mechanism
from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.queries.encode import encode
from zerosum.client.queries.table import Table
from zerosum.client.request import QueryRequest
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.private_sum.coordinator import RoundAbandoned
from zerosum.server.private_sum.transport import Traffic


class Killed(BaseException):
    """The process died here."""


class TrustedSums:
    """Opens sums of tables, calling the ledger as a coordinator does.

    Parameters
    ----------
    tables : sequence of Table
        One a client.
    entropy : Entropy
        Of all noise.
    kill_at : str
        Die after this charge: "contributions", "sum", "survived"; or "asked", before any.
    abandon : callable
        Of round and attempt: whether this sum is given up, and at which stage.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        entropy: Entropy,
        *,
        kill_at: str = "",
        abandon: Callable[[int, int], str] = lambda round, attempt: "",
    ) -> None:
        self._tables, self._entropy = tables, entropy
        self.kill_at, self._abandon = kill_at, abandon
        self.opened: list[tuple[int, int]] = []
        self.released: dict[tuple[int, int], bytes] = {}

    def private_sum(
        self,
        request: QueryRequest,
        groups: Sequence[Sequence[int]],
        *,
        round: int,
        attempt: int = 0,
        charge: Any = None,
    ) -> Aggregate:
        self._die("asked")
        clients = tuple(groups[0])
        charge("contributions", 0, clients)
        self._die("contributions")
        if self._abandon(round, attempt) == "contribute":
            raise RoundAbandoned("too few clients at contribute", Traffic())
        charge("sum", 0, clients)
        self._die("sum")
        self.opened.append((round, attempt))
        total = self._total(request, round, attempt)
        self.released.setdefault((round, attempt), total.tobytes())
        charge("survived", 0, clients)
        self._die("survived")
        if self._abandon(round, attempt) == "unmask":
            raise RoundAbandoned("a secret cannot be recovered", Traffic())
        return Aggregate(total, clients, 1.0, Traffic())

    def _total(self, request: QueryRequest, round: int, attempt: int) -> np.ndarray:
        question, privacy = request.question, request.question.privacy
        total = np.zeros(request.dimension, dtype=np.int64)
        for index, table in enumerate(self._tables):
            total += encode(
                question.query,
                question.domains,
                table,
                unit=privacy.unit,
                cap=privacy.cap,
                max_records=question.max_records,
                payload=request.payload,
                secret=bytes(32),
                coins=self._entropy.keystream("coins", round, attempt, index),
                epsilon=privacy.scale if privacy.noise_inside else None,
            )
        if privacy.noise_inside:
            return total
        n = len(self._tables)
        mechanism = counting_mechanism(
            privacy.law, privacy.scale, n, privacy.honest_fraction, request.encoding.moves
        )
        noise = self._entropy.keystream("noise", round, attempt, 0)
        return total + mechanism.noise(n, request.dimension, noise)

    def _die(self, where: str) -> None:
        if self.kill_at == where:
            self.kill_at = ""
            raise Killed(where)
