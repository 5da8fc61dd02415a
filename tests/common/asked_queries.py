"""Queries for tests, and simulated clients with a small table each."""

from typing import Any

import numpy as np
from narrowed import UNUSED

from zerosum.client.flower.client_app import build_app
from zerosum.client.flower.simulated_node import OPEN_POLICY
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.protocol.query_answer import columns_read
from zerosum.client.queries.predicate import parse
from zerosum.client.queries.query import Count, Histogram
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.client.request import QueryQuestion, QueryRequest
from zerosum.client.spec import SecAggSpec
from zerosum.client.spec.query_privacy import QueryPrivacy
from zerosum.secagg import IdentityKey, SharedCache
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.simulations.engine.grid import InProcessGrid, nodes
from zerosum.simulations.engine.simulated_clients import SimulatedEnvironment, roster_of

SCHEMA = Schema.of(
    {
        "age": {"integer": [17, 90]},
        "sex": ["Female", "Male"],
        "income": {"number": [0.0, 1e5]},
        "word": {"text": 4, "alphabet": "ab"},
    }
)
OLD = parse("age >= 65", SCHEMA)
COUNT, HISTOGRAM = Count(where=OLD), Histogram(columns=("sex",))
CLIENTS = 9
IDENTITIES = [IdentityKey.generate() for _ in range(CLIENTS)]


def privacy_of(**changes) -> QueryPrivacy:
    """Geometric noise of epsilon 0.1 for a count, unless a test says otherwise."""
    values: dict[str, Any] = {"law": "geometric", "scale": 10.0}
    return QueryPrivacy(**(values | changes))


LOCAL: dict[str, Any] = {
    "model": "local",
    "law": "randomized-response",
    "scale": 1.0,
    "unit": "client",
    "adjacency": "replace",
    "cap": 1,
}


def query_request(query: Any = COUNT, payload: bytes = b"", **changes) -> QueryRequest:
    """A query; its fields of privacy are given by the name that they have there."""
    own = {name: changes.pop(name) for name in [*changes] if name in QueryPrivacy.model_fields}
    values: dict[str, Any] = {"round": 1, "seed": 0, "population": CLIENTS}
    values |= {"domains": SCHEMA, "query": query, "privacy": privacy_of(**own)}
    return QueryRequest(QueryQuestion(**(values | changes)), payload)


def rows_of(client: int) -> dict[str, list[Any]]:
    """The rows of a simulated client, drawn from its index."""
    rng = np.random.default_rng(client)
    size = 20 + client
    return {
        "age": rng.integers(17, 91, size).tolist(),
        "sex": rng.choice(["Female", "Male", "other"], size).tolist(),
        "income": rng.uniform(0, 1e5, size).tolist(),
        "word": rng.choice(["ab", "abba", "b"], size).tolist(),
    }


class TableClients(SimulatedEnvironment):
    """Clients that have a table and train nothing."""

    def __init__(self, policy=OPEN_POLICY):
        super().__init__(
            UNUSED,
            SeededEntropy(0),
            identities=IDENTITIES,
            cache=SharedCache(4),
            policy=policy,
        )

    def table(self, question, client):
        return Table.of(rows_of(client.index), columns_read(question))


def coordinator(environment, protocol="pairwise", server="malicious", dropout=0.3):
    """A coordinator of these clients, with seeded noise."""
    return Coordinator(
        InProcessGrid(build_app(lambda context: environment), CLIENTS),
        Nodes(nodes(CLIENTS), roster_of(IDENTITIES)),
        SecAggSpec(protocol=protocol, server=server, dropout=dropout),
        run_id=b"queries",
        entropy=SeededEntropy(0),
    )
