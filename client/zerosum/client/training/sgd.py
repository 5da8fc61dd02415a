"""Take a step of SGD: the update of ``torch.optim.SGD``, in one place for every trainer.

torch's own SGD is not used, because the first step of any of torch's optimizers imports its
compiler, which takes longer than the rounds of many a run. Who asks for another optimizer has
torch's (:mod:`zerosum.client.training.optimizers`).

Three places compute the same update without calling this one. The fast trainer fuses the plain step
into the product that gives a gradient (:class:`zerosum.client.training.fast_layers.Parameter`),
which saves a pass over the weights, and sums the steps of a first layer before it takes them
(:mod:`zerosum.client.training.fast_dual`). A client that can train on nothing but noise does so in
numpy (:func:`zerosum.client.privacy.local_dp_noise.train_on_noise`), because it may be unable to
import torch. Tests compare all with this module.
"""

from dataclasses import dataclass
from typing import Self

import torch

from zerosum.client.spec import TrainSpec


@dataclass(frozen=True)
class Sgd:
    """SGD with momentum without dampening, L2 penalty and FedProx's proximal term.

    The gradient of the proximal term, mu (w - w_global), is that of Li et al. 2020, equation 2. It
    is added after weight decay.

    Attributes
    ----------
    lr : float
        Learning rate.
    momentum, weight_decay : float
        As torch's; 0 for none.
    proximal : float
        FedProx's mu; 0 for none.
    """

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0

    @classmethod
    def of(cls, spec: TrainSpec) -> Self:
        """Return the update of a ``[training]`` section."""
        return cls(spec.lr, spec.momentum, spec.weight_decay, spec.proximal)

    @property
    def plain(self) -> bool:
        """Return whether a step is ``weights - lr * gradient`` and nothing else."""
        return not (self.momentum or self.weight_decay or self.proximal)

    def step(
        self,
        weights: torch.Tensor,
        gradient: torch.Tensor,
        buffer: torch.Tensor | None = None,
        origin: torch.Tensor | None = None,
        *,
        first: bool = False,
    ) -> None:
        """Move weights against a gradient, in place.

        Parameters
        ----------
        weights : torch.Tensor
            Any shape.
        gradient : torch.Tensor
            Of the same shape; left as it is, because autograd may hand out an expanded one.
        buffer : torch.Tensor, optional
            The velocity, of the same shape; overwritten. Needed with momentum.
        origin : torch.Tensor, optional
            The global weights, of the same shape. Needed with a proximal term.
        first : bool
            Whether this is the first step, at which torch's velocity is the gradient itself.

        Raises
        ------
        ValueError
            If a tensor that is needed is absent.
        """
        if self.weight_decay:
            gradient = gradient.add(weights, alpha=self.weight_decay)
        if self.proximal:
            if origin is None:
                raise ValueError("a proximal term needs the weights that it pulls towards")
            gradient = gradient.add(weights - origin, alpha=self.proximal)
        if self.momentum:
            if buffer is None:
                raise ValueError("momentum needs a buffer")
            if first:
                buffer.copy_(gradient)
            else:
                buffer.mul_(self.momentum).add_(gradient)
            gradient = buffer
        weights.add_(gradient, alpha=-self.lr)
