"""The plain app's ServerApp, private by the line around its strategy."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.simulations.bench.apps.plain.plain_server import run

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train over all nodes in masked sums, and write the seconds of each round.

    Parameters
    ----------
    grid : Grid
        To the nodes.
    context : Context
        With the run's config.
    """
    config = context.run_config

    def around(strategy: Strategy) -> Strategy:
        return PrivateStrategy(
            strategy,
            privacy={"model": "none", "clip": "none"},
            encoding={"bits": 24, "range": 4.0},
            secagg={"server": config["server"], "dropout": 0.0},
            deployment={
                "roster": config["roster"],
                "authority": config["authority"],
                "stage_timeout": 300.0,
            },
            out=f"{config['out']}.run",
        )

    run(grid, context, around)
