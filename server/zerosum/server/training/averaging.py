"""Average what a private sum opened: the direction of the server's step."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Subset

from zerosum.client.training.batches import normalised
from zerosum.client.training.examples import TensorExamples, as_examples
from zerosum.client.training.local import LocalTrainer
from zerosum.secagg.randomness import derive_seed, numpy_generator
from zerosum.server.config import ConfigError
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.private_sum.coordinator import RoundAbandoned
from zerosum.server.spec import Experiment, ServerSpec
from zerosum.server.training import robust_rules

if TYPE_CHECKING:
    from zerosum.client.task import Dataset


class Averaging:
    """Divides a sum, or has ``server.rule`` combine the contributions.

    Parameters
    ----------
    experiment : Experiment
        Checked.
    expected_cohort : float
        Clients in a round: the fixed divisor under DP.
    trainer : LocalTrainer
        Trains the server's own update under ``fltrust``.
    root : torch Dataset or pair of tensors, optional
        The records that it is trained on: see :func:`held_out`.
    """

    def __init__(
        self,
        experiment: Experiment,
        expected_cohort: float,
        trainer: LocalTrainer,
        root: "Dataset | None" = None,
    ) -> None:
        self._experiment = experiment
        self._expected_cohort = expected_cohort
        self._trainer = trainer
        self._root = root

    def average(
        self, aggregate: Aggregate, model: Callable[[], np.ndarray], number: int
    ) -> np.ndarray:
        """Average a round's contributions, by the rule of the experiment.

        Parameters
        ----------
        aggregate : Aggregate
            What was opened.
        model : callable
            Returns the vector of the round's request, which few rules need.
        number : int
            The round.

        Returns
        -------
        numpy.ndarray
            float64, shape (d,).

        Raises
        ------
        RoundAbandoned
            If the rule promises nothing of so few contributions.
        """
        if self._experiment.server.rule == "mean":
            return self._divided(aggregate)
        return self._ruled(aggregate, model, number)

    def noise_norm(self, aggregate: Aggregate) -> float | None:
        """Return the expected L2 norm of the noise in the average; None where a rule shapes it."""
        privacy, dimension = self._experiment.privacy, len(aggregate.total)
        if self._experiment.server.rule != "mean" and privacy.private:
            return None
        divisor = privacy.lot if privacy.sums_gradients else None
        parts = self._expected_cohort if divisor is None else divisor
        return float(aggregate.noise_std * np.sqrt(dimension) / parts)

    def _divided(self, aggregate: Aggregate) -> np.ndarray:
        """Divide by the fixed expected cohort or lot under DP, by what is there without."""
        lot = self._experiment.privacy.lot
        if lot is not None and self._experiment.privacy.sums_gradients:
            return aggregate.total / lot
        if self._experiment.privacy.private:
            return aggregate.total / self._expected_cohort
        if self._experiment.training.weighting == "examples":
            weight = aggregate.total[-1]
            return aggregate.total[:-1] / weight if weight > 0 else 0 * aggregate.total[:-1]
        return aggregate.total / len(aggregate.survivors)

    def _ruled(
        self, aggregate: Aggregate, model: Callable[[], np.ndarray], number: int
    ) -> np.ndarray:
        spec = self._experiment.server
        if aggregate.contributions is None:
            raise ValueError(f"the rule {spec.rule!r} needs contributions, and only a sum is known")
        vectors = np.stack(list(aggregate.contributions.values()))
        needed = robust_rules.fewest(spec.rule, spec.rule_malicious, spec.rule_selected)
        if len(vectors) < needed:
            reason = f'{len(vectors)} contributions, {needed} needed by server.rule = "{spec.rule}"'
            raise RoundAbandoned(f"{reason} ({spec.rule_settings})", aggregate.traffic)
        f, selected, bound = spec.rule_malicious or 0, spec.rule_selected, spec.rule_bound or 0.0
        match spec.rule:
            case "median":
                return robust_rules.median(vectors)
            case "trimmed-mean":
                return robust_rules.trimmed_mean(vectors, f)
            case "krum":
                return robust_rules.krum(vectors, f)
            case "multi-krum":
                return robust_rules.multi_krum(vectors, f, selected)
            case "bulyan":
                return robust_rules.bulyan(vectors, f)
            case "geometric-median":
                return robust_rules.geometric_median(vectors)
            case "norm-bound":
                return robust_rules.norm_bound(vectors, bound)
            case "fltrust":
                return robust_rules.fltrust(vectors, self._own_update(model(), number))
            case _:
                raise ValueError(f"there is no rule {spec.rule!r}")

    def _own_update(self, model: np.ndarray, number: int) -> np.ndarray:
        """Train on the root records as a client would on its own: the same again on a resume."""
        if self._root is None:
            raise ValueError("the rule fltrust needs root records")
        experiment, trainer = self._experiment, self._trainer
        seed = derive_seed(experiment.seed, "server's own update", number)
        trainer.set_rate(experiment.training.at(number, experiment.rounds))
        count = len(as_examples(self._root, trainer.dtype, trainer.device))
        return normalised(trainer.train(model, self._root, seed), count, trainer.spec)


def held_out(
    dataset: "Dataset | None", spec: ServerSpec, seed: int
) -> "tuple[Dataset | None, Dataset | None]":
    """Split public test data into what is tested on and the server's root records.

    Root records are drawn by the seed: data in the order of labels or sites have no fair end.

    Parameters
    ----------
    dataset : torch Dataset or pair of tensors, optional
        A task's test data.
    spec : ServerSpec
        ``rule_examples`` says how many; without it nothing is held out.
    seed : int
        The experiment's seed.

    Returns
    -------
    tested : torch Dataset or pair of tensors, or None
        What is tested on.
    root : torch Dataset or pair of tensors, or None
        The root records; None where none are held out.

    Raises
    ------
    ConfigError
        If there are no more records than the server is to hold.
    """
    if spec.rule_examples is None:
        return dataset, None
    examples = None if dataset is None else as_examples(dataset, torch.float32, torch.device("cpu"))
    count = 0 if examples is None else len(examples)
    if dataset is None or count <= spec.rule_examples:
        raise ConfigError(
            f"server.rule_examples = {spec.rule_examples}: they are taken from the task's public "
            f"test data, which has {count} records, and some must be left to test on: lower it"
        )
    order = numpy_generator(seed, "root records").permutation(count)
    root, rest = (np.sort(part) for part in np.split(order, [spec.rule_examples]))
    if isinstance(examples, TensorExamples):
        return _rows(examples, rest), _rows(examples, root)
    whole: Any = dataset
    return Subset(whole, rest.tolist()), Subset(whole, root.tolist())


def _rows(found: TensorExamples, rows: np.ndarray) -> "Dataset":
    at = torch.from_numpy(rows)
    return found.inputs[at], found.targets[at]
