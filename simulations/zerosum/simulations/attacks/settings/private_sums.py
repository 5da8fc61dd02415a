"""Ask real clients for private sums, and charge a ledger as a run does."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerosum.client.protocol.protection import Protection
from zerosum.client.request import ModelQuestion, ModelRequest
from zerosum.client.spec import DataSpec, ModelSpec, TrainSpec
from zerosum.secagg.randomness import derive_seed
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.spec import SamplingSpec
from zerosum.simulations.attacks.harness.interface import Defense
from zerosum.simulations.attacks.harness.to_specs import encoding_of, privacy_of, secagg_of
from zerosum.simulations.attacks.settings.malicious_server import PolicyClients, request_for
from zerosum.simulations.engine.grid import InProcessGrid, nodes


@dataclass(frozen=True)
class SumRequest:
    """The request of every sum.

    Attributes
    ----------
    task : str
    model : ModelSpec
    training : TrainSpec
    vector : ndarray
        float32, shape (d,): the model that is sent.
    """

    task: str
    model: ModelSpec
    training: TrainSpec
    vector: np.ndarray


class PrivateSums:
    """Asks cohorts, over the simulator's grid, and charges a ledger as a run does.

    Parameters
    ----------
    asked : SumRequest
    protection : Defense
    clients : PolicyClients
    grid : InProcessGrid
        On which these clients are.
    population : int
    cohort : int
        Clients in a sum, by which noise is divided.
    sampling : SamplingSpec
        How cohorts come about.
    seed : int
    purpose : str
        What the sums are for: names the run.
    """

    def __init__(
        self,
        asked: SumRequest,
        protection: Defense,
        clients: PolicyClients,
        grid: InProcessGrid,
        *,
        population: int,
        cohort: int,
        sampling: SamplingSpec,
        seed: int,
        purpose: str,
    ) -> None:
        self._asked, self._protection, self._seed = asked, protection, seed
        self._population = population
        self._privacy = privacy_of(protection, cohort, len(asked.vector))
        secagg = secagg_of(protection)
        built = Protection.build(
            self._privacy,
            encoding_of(protection),
            cohort=cohort,
            dimension=len(asked.vector),
            rotation_seed=bytes(32),
        )
        self._ledger = RunLedger(
            None,
            privacy=self._privacy,
            secagg=secagg,
            sampling=sampling,
            population=population,
            protections={"train": built},
        )
        self._coordinator = Coordinator(
            grid,
            Nodes(nodes(population), clients.roster),
            secagg,
            run_id=derive_seed(seed, purpose)[:16],
            entropy=clients.entropy,
            cache=clients.cache,
        )

    def open(self, number: int, cohort: Sequence[int]) -> Aggregate:
        """Ask a cohort and open the sum.

        Parameters
        ----------
        number : int
            Of the sum, from 1; each is asked once.
        cohort : sequence of int
            Ascending.

        Returns
        -------
        Aggregate

        Raises
        ------
        RoundAbandoned
            If no sum was released.
        """
        charge = self._ledger.charging(number, 0, "train", [cohort])
        return self._coordinator.private_sum(
            self._request(number), [cohort], round=number, charge=charge
        )

    def epsilons(self) -> dict[str, float]:
        """Return what the ledger says by observer, "sum", "local" and "release".

        Infinite without noise.
        """
        return {name: bound.value for name, bound in self._ledger.figures().items()}

    def epsilon(self) -> float:
        """Return the figure of a server: of sums where contributions are masked, else of each."""
        return self.epsilons()["sum" if self._protection.masked else "local"]

    def _request(self, number: int) -> ModelRequest:
        question = ModelQuestion(
            kind="train",
            round=number,
            seed=self._seed,
            population=self._population,
            task=self._asked.task,
            data=DataSpec(),
            model=self._asked.model,
            training=self._asked.training,
            privacy=self._privacy,
            encoding=encoding_of(self._protection),
            noise_draw="per_client",
            max_loss=1.0,
        )
        return request_for(question, self._asked.vector, self._protection.request_hash)
