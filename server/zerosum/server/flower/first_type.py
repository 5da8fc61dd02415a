"""The type of a strategy's first messages, where hello has to be of that type."""

import copy
import logging

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from zerosum.client.task_errors import FAILURES
from zerosum.server.flower.app_grid import StrategyGrid

log = logging.getLogger("flwr")


def first_type(
    strategy: Strategy,
    grid: Grid,
    arrays: ArrayRecord,
    train_config: ConfigRecord | None,
    evaluate_config: ConfigRecord | None,
) -> str | None:
    """Let a copy of a strategy configure its first round, and return the type of its messages.

    A strategy knows no node before it is met, and its app may answer no other type than the
    strategy's. Nothing is sent, and the strategy itself, its records included, stays as it is.

    Parameters
    ----------
    strategy : Strategy
    grid : flwr.serverapp.Grid
        Says which nodes are connected.
    arrays : flwr.app.ArrayRecord
        The first model.
    train_config, evaluate_config : flwr.app.ConfigRecord or None
        As the strategy is started with.

    Returns
    -------
    str or None
        That of its training, or else of its evaluation; None if it cannot be told.
    """
    around = StrategyGrid(grid, set(grid.get_node_ids()), _unsent)
    given = (("configure_train", train_config), ("configure_evaluate", evaluate_config))
    try:
        trial, model = copy.deepcopy((strategy, arrays))
        for name, config in given:
            own = ConfigRecord(dict(config or {}))
            for message in getattr(trial, name)(1, model, own, around):
                found: str = message.metadata.message_type
                return found
    except FAILURES as error:  # of somebody else's code, which may mind a copy: then nobody knows
        log.debug("no first message of a copy of the strategy: %r", error)
    return None


def _unsent(messages: list[Message]) -> list[Message]:
    raise NotImplementedError("a copy of a strategy sends nothing")
