"""The parts of a run with somebody else's strategy."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr.app import UserConfig

from zerosum.client.protocol.noise_source import Entropy
from zerosum.server.flower.app_grid import AppGrid
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.runs.left_out import LeftOut
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.spec import Experiment


@dataclass(frozen=True)
class AppRun:
    """The parts of a run with somebody else's strategy.

    Parameters
    ----------
    experiment : Experiment
        Checked, with its noise multiplier resolved.
    nodes : Nodes
        All clients.
    grid : AppGrid
        Carries the coordinator's stages.
    coordinator : Coordinator
        Runs the private sums.
    ledger : RunLedger
        Charged ahead of each.
    folder : RunFolder
        Where everything is written.
    entropy : Entropy
        Draws cohorts and groups.
    weight_key : str
        Name of the number of examples in the strategy's metrics.
    left_out : LeftOut
        Clients who are not asked, whoever draws them.
    rounds : int
        Rounds of training that the strategy was started for.
    guarded : str
        Name of a strategy whose own code may not read replies; empty for one that may.
    metrics : mapping of str to float
        Metrics that an evaluation sums, and their largest magnitudes.
    run_config : mapping
        The run config that every app is handed in its context.
    own_cohorts : bool
        Whether cohorts are the strategy's; otherwise ``experiment.sampling`` draws them.
    simulated : bool
        Whether Flower's simulation runtime plays the nodes.
    """

    experiment: Experiment
    nodes: Nodes
    grid: AppGrid
    coordinator: Coordinator
    ledger: RunLedger
    folder: RunFolder
    entropy: Entropy
    weight_key: str
    left_out: LeftOut
    rounds: int
    guarded: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    run_config: UserConfig = field(default_factory=dict)
    own_cohorts: bool = True
    simulated: bool = False
