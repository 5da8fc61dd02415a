"""Federated averaging on Flower, with nothing private: the clock runs for each round."""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

from zerosum.simulations.bench.apps.plain.plain_digits import digits

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train over all nodes and write the seconds of each round.

    Parameters
    ----------
    grid : Grid
        To the nodes.
    context : Context
        With the run's config.
    """
    run(grid, context, lambda strategy: strategy)


def run(grid: Grid, context: Context, around: Callable[[Strategy], Strategy]) -> None:
    """Train with a strategy that stands around Flower's own, and write the rounds' seconds.

    Parameters
    ----------
    grid : Grid
        To the nodes.
    context : Context
        With the run's config.
    around : callable
        Returns what is started.
    """
    config = context.run_config
    strategy = _Timed(fraction_evaluate=0.0, min_available_nodes=int(config["nodes"]))
    around(strategy).start(
        grid=grid,
        initial_arrays=ArrayRecord(digits().model().state_dict()),
        num_rounds=int(config["rounds"]),
    )
    Path(str(config["out"])).write_text(
        json.dumps(strategy.seconds), encoding="utf-8", newline="\n"
    )


class _Timed(FedAvg):
    """Flower's own averaging, and when each round began and ended."""

    seconds: list[float]
    _began = 0.0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if server_round == 1:
            self.seconds = []
        self._began = time.perf_counter()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        averaged = super().aggregate_train(server_round, replies)
        self.seconds.append(time.perf_counter() - self._began)
        return averaged
