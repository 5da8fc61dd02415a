"""Rounds of Flower's SecAgg+, by Flower's own workflow and mod, with all clients in one process.

It uses what Flower keeps for its legacy API, and so may not be there in another version.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common import recorddict_compat
from flwr.server import LegacyContext
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.serverapp import Grid

FIT = Callable[[int], np.ndarray]
"""From a client's index to its vector: float32, shape (d,)."""


def app_of(fit: FIT) -> ClientApp:
    """Return an app whose clients answer with their vectors, behind Flower's mod."""

    class Client(NumPyClient):
        def __init__(self, index: int) -> None:
            self._index = index

        def fit(self, parameters: Any, config: Any) -> tuple[list[np.ndarray], int, dict[str, Any]]:
            return [fit(self._index)], 1, {}

    def client_fn(context: Context) -> Any:
        return Client(int(context.node_config["partition-id"])).to_client()

    return ClientApp(client_fn, mods=[secaggplus_mod])


def play(
    grid: Grid,
    d: int,
    rounds: int,
    *,
    shares: int,
    threshold: int,
    bits: int,
    clipping_range: float,
    begin: Callable[[], None],
) -> np.ndarray:
    """Play rounds and return the last model.

    Parameters
    ----------
    grid : Grid
        Of all clients.
    d : int
        Coordinates.
    rounds : int
    shares : int
        Of each secret, the client's own among them.
    threshold : int
        How many recover it.
    bits : int
        Of a value before masking.
    clipping_range : float
        Largest magnitude of a coordinate.
    begin : callable
        Called before each round and after the last.

    Returns
    -------
    numpy.ndarray
        Mean of the clients' vectors, shape (d,).
    """
    nodes = list(grid.get_node_ids())
    context = LegacyContext(
        Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={}),
        strategy=FedAvg(min_fit_clients=len(nodes), min_available_clients=len(nodes)),
    )
    for node in nodes:
        context.client_manager.register(GridClientProxy(node, grid, 1))
    start = ndarrays_to_parameters([np.zeros(d, np.float32)])
    state = context.state
    record = recorddict_compat.parameters_to_arrayrecord(start, True)
    state.array_records[MAIN_PARAMS_RECORD] = record
    workflow = SecAggPlusWorkflow(
        shares,
        threshold,
        max_weight=1.0,
        clipping_range=clipping_range,
        quantization_range=1 << bits,
    )
    for number in range(1, rounds + 1):
        begin()
        state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: number})
        workflow(grid, context)
    begin()
    record = state.array_records[MAIN_PARAMS_RECORD]
    parameters = recorddict_compat.arrayrecord_to_parameters(record, True)
    return np.asarray(parameters_to_ndarrays(parameters)[0])
