"""Run DP-SGD at one client: sum clipped gradients of a Poisson sample of its examples.

Abadi et al., "Deep learning with differential privacy" (2016), Algorithm 1. Distributed, a client
answers with one such sum, which the envelope noises and masks; inside local training it adds the
noise itself, to integers, and takes step after step.
"""

import logging
import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from zerosum.client.privacy.local_dp_noise import local_lot, noise_inside
from zerosum.client.protocol.saturation_log import CutTally, log_cut
from zerosum.client.protocol.training_outcomes import (
    EMPTY_SAMPLE,
    NOISE_ALONE,
    NOT_FINITE_CURE,
    Notes,
)
from zerosum.client.spec import PrivacySpec, TrainSpec
from zerosum.client.task import Task, TaskError, error_line
from zerosum.client.task_errors import FAILURES
from zerosum.client.training.evaluation import per_example_losses
from zerosum.client.training.examples import Examples, as_examples, draw
from zerosum.client.training.independent_examples import known_loss
from zerosum.client.training.local import TRIAL_RECORDS, LocalTrainer
from zerosum.client.training.per_example_clipping import ClippedGradients
from zerosum.client.training.precision import refuse_bf16
from zerosum.client.training.torch_seed import all_seeded
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.saturation import Cut

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerosum.client.task import Dataset

    Load = Callable[[], Dataset]

log = logging.getLogger("zerosum.client")

BATCH = 256
"""Examples whose gradients are computed at once: enough to keep a CPU's products busy."""

# The sum of clipped gradients is computed in float64, whose rounding could make one example's part
# exceed the clip by about 1e-16 times the additions. A billionth covers ten million of them, and
# costs no accuracy that anybody could measure.
_WITHIN = 1 - 1e-9
"""Gradients are cut to this part of the clip."""


class ExampleTrainer(LocalTrainer):
    """Answers for one client after another, in float64, one example at a time protected.

    An example that cannot be read, or whose gradient raises or is not finite, contributes nothing,
    logged at home, and leaves all others as they are: one example moves a sum by the clip at most,
    whatever is in it. Which of a model's units are dropped is told by coins that nobody else
    knows: an example more shifts those of the examples behind it, which moves the sum by many
    clips if they are known. Unknown, they are independent of the data and of one another, as many
    as there are examples: the sum without an example has the law of the sum with it in which all
    others keep their coins, and for whatever these are it moves by the clip at most. A mixture over
    coins is no easier to tell apart than its worst part. (In floats: the coins are those of torch's
    generator from a secret seed of 64 bits, taken to be independent.)

    Where a task's ``data`` raises, there are no examples, and the sum is zero: whether the disk or
    the network fails is no example's doing. A task that raises there *because of* one example (a
    bad line in a file) lets that example decide over the client's whole sum, and nothing here can
    mend it: such a task has to leave the example out itself, or raise in ``__getitem__``.

    Parameters
    ----------
    task : Task
        Supplies the model and the loss.
    spec : TrainSpec
        Steps, learning rate and the rest of local training.
    privacy : PrivacySpec
        Of unit "example".
    seed : int
        The experiment's seed: fixes parameters that are not trained.
    device : str
        Where gradients are computed.
    notes : Notes, optional
        Where failures are noted, for a simulation to count.
    """

    def __init__(
        self,
        task: Task,
        spec: TrainSpec,
        privacy: PrivacySpec,
        *,
        seed: int = 0,
        device: str = "cpu",
        notes: Notes | None = None,
    ) -> None:
        refuse_bf16(spec, 'it is for privacy.unit = "client": gradients of examples are float64')
        super().__init__(task, spec, seed=seed, dtype=torch.float64, device=device)
        if self.layout.statistics:
            raise TaskError(
                'training.batchnorm = "average" is for privacy.unit = "client": running '
                "statistics of a batch are of no example"
            )
        self._privacy = privacy
        self._clip = math.inf if privacy.clip is None else privacy.clip * _WITHIN
        self._failed: set[int] = set()
        self._notes = Notes() if notes is None else notes
        self._clipped = ClippedGradients(
            self._flat,
            partial(per_example_losses, task),
            apart=known_loss(task.loss),
            watched=(task,),
        )

    def descent(self, start: np.ndarray, load: "Load", coins: Keystream) -> np.ndarray:
        """Return the negated sum of clipped gradients of one Poisson sample of a client's examples.

        Parameters
        ----------
        start : numpy.ndarray
            The global model, shape (d,).
        load : callable
            Returns the client's records.
        coins : Keystream
            Draws the examples and dropout.

        Returns
        -------
        numpy.ndarray
            float64, shape (d,).
        """
        self._load(start)
        total = self._sum(self._examples(load), coins)
        self._restore_buffers()
        return -total.cpu().numpy()

    def train_privately(
        self, start: np.ndarray, load: "Load", coins: Keystream, clients: int
    ) -> np.ndarray:
        """Run DP-SGD on one client's examples and return the change, which may be released.

        Each step's sum is rounded to integers and given binned Gaussian noise; the expected lot
        of a client, by which it is divided, is ``privacy.lot / clients``.

        Parameters
        ----------
        start, load
            As for :meth:`descent`.
        coins : Keystream
            Draws the examples, dropout, the rounding and the noise.
        clients : int
            Clients that share the examples.

        Returns
        -------
        numpy.ndarray
            float64, shape (d,): local model minus ``start``.
        """
        origin = self._load(start)
        examples = self._examples(load)
        code, mechanism = noise_inside(self._privacy, self.layout.length)
        lot = local_lot(self._privacy, clients)
        tally = CutTally()

        def tell(cut: Cut) -> None:
            if tally.worth(cut):
                log_cut("a step's sum of gradients", cut)

        for step in range(self.spec.steps or 0):
            encoded = code.encode(self._sum(examples, coins).cpu().numpy(), coins, tell)
            noised = code.decode(mechanism.apply(encoded, coins)) / lot
            self._flat.gradients.copy_(torch.from_numpy(noised))
            self._descend(origin, step == 0)
        delta: np.ndarray = (self._flat.weights - origin).cpu().numpy()
        self._restore_buffers()
        return delta

    def trial_step(self, vector: np.ndarray, dataset: "Dataset") -> bool:
        """Compute the gradient of each of the first records by itself, and keep nothing.

        A model that cannot have a gradient of one example fails for every record. In training each
        such failure is the record's own, so that the model would be trained on nothing but noise,
        without a word.

        Parameters
        ----------
        vector : numpy.ndarray
            The global model, shape (d,).
        dataset : torch Dataset or pair of tensors
            Some client's records.

        Returns
        -------
        bool
            False where there are no records.

        Raises
        ------
        TaskError
            If none has a finite gradient, or the model moves a buffer or a parameter by itself.
        """
        self._load(vector)
        examples = self._examples_of(dataset, alike=True)
        self.model.train()
        tried = min(TRIAL_RECORDS, len(examples))
        failed: list[str] = []
        with all_seeded(0):
            for place in range(tried):
                try:
                    self._check_gradient(examples, torch.tensor([place]))
                except Exception as error:
                    failed.append(error_line(error))
        self._restore_buffers()
        if tried and len(failed) == tried:
            raise TaskError(
                f'no example has a gradient of its own, for which unit = "example" asks: '
                f"{failed[0]}; correct model() or loss(), or protect whole clients"
            )
        for moved in sorted(self._clipped.moved, key=str):
            if moved.kind != "attribute":
                raise TaskError(
                    f"model: {moved} is moved while it computes, which carries one example into "
                    'others, and unit = "example" cannot allow; keep it still, or train it by its '
                    "gradient"
                )
        return tried > 0

    def _check_gradient(self, examples: Examples, one: torch.Tensor) -> None:
        self._gradients(examples, one)  # the way that training goes
        if not bool(self._clipped.lone_gradients(*examples.take(one)).isfinite().all()):
            raise ValueError("it is NaN or infinite")

    def _examples(self, load: "Load") -> Examples:
        self._failed.clear()
        try:
            examples: Examples = self._examples_of(load(), alike=True)
            count, public = len(examples), self._privacy.examples
        except FAILURES as error:
            self._notes.fail(error)
            log.exception("the data cannot be had: %s", EMPTY_SAMPLE)
            none = torch.zeros(0, dtype=self.dtype)
            return as_examples((none, none), self.dtype, self.device)
        if public is not None and count > public:
            # Said at home only: how many there are is as private as they are. A refusal, or a sum
            # of fewer, would show the server whether one record more is there. Each is protected
            # as before: the noise and the rate of drawing do not depend on how many there are.
            log.warning(
                "%d examples here, but privacy.examples = %d says how many all clients have: "
                "delta is not below 1/examples; leave the public test records out (hold-out=true "
                "in the node config), or have the experiment's examples and lot corrected",
                count, public,
            )  # fmt: skip
        return examples

    def _sum(self, examples: Examples, coins: Keystream) -> torch.Tensor:
        total = torch.zeros_like(self._flat.weights)
        self.model.train()
        drawn = draw(len(examples), self._privacy.example_rate, coins)
        failed = len(self._failed)
        with all_seeded(coins.take(8)):
            for part in torch.split(drawn, BATCH) if len(drawn) else ():
                try:
                    total += self._gradients(examples, part)
                except FAILURES as error:
                    log.info("examples are taken one at a time, because one fails: %s", error)
                    total += self._each_alone(examples, part)
        if len(drawn) and bool(total.any()):
            self._notes.learnt = True
        if len(self._failed) - failed == len(drawn) > 1:
            # At home only: that all fail is as private as they are.
            log.error("none of the %d examples drawn has a gradient: %s", len(drawn), NOISE_ALONE)
        return total

    def _each_alone(self, examples: Examples, part: torch.Tensor) -> torch.Tensor:
        """Return the sum over a batch of which some example raises: those that do add nothing."""
        total = torch.zeros_like(self._flat.weights)
        for one in torch.split(part, 1):
            try:
                total += self._gradients(examples, one)
            except FAILURES as error:
                if int(one) not in self._failed:
                    self._notes.fail(error)
                    self._notes.examples_failed += 1
                    # The first one's traceback is enough where all fail alike.
                    message = "example %d has no gradient: it contributes nothing"
                    log.warning(message, int(one), exc_info=not self._failed)
                    self._failed.add(int(one))
        return total

    def _gradients(self, examples: Examples, part: torch.Tensor) -> torch.Tensor:
        total = self._clipped.clipped_sum(*examples.take(part), self._clip)
        if lost := self._clipped.not_finite:
            fault = "the gradient of an example is NaN or infinite"
            if self._notes.error is None:  # once a client, however many steps it takes
                log.warning("%s, it contributes nothing: %s", fault, NOT_FINITE_CURE)
            self._notes.fail(f"{fault}: {NOT_FINITE_CURE}")
            self._notes.examples_failed += lost
        return total
