"""Both apps of queries with noise that follows from the plan's seed: for tests alone."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol.noise_source import Entropy, SeededEntropy
from zerosum.server.flower.query_app import serve
from zerosum.server.flower.serving import show_log

SEED = 0


class SeededNode(DeployedEnvironment):
    """A deployed node but for its noise."""

    entropy: Entropy = SeededEntropy(SEED)


client = build_app(SeededNode)

server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Do what a deployed server does, with the same noise each time."""
    show_log()
    serve(grid, context, SeededEntropy(SEED))
