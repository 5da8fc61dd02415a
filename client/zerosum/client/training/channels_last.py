"""Lay images out channels-last where that changes nothing but the time of convolutions."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from zerosum.client.training.flat_parameters import FlatModel
from zerosum.client.training.initial_model import draw_weights
from zerosum.client.training.torch_seed import seeded

_TOLERANCE = 1e-3
"""Difference of outputs, in parts of the largest, at which both layouts compute the same.

Sums in another order differ by float32 rounding, 1e-6 for a deep model. A model that reads its
inputs in the order of memory differs by the outputs themselves.
"""


class ChannelsLast:
    """Converts batches of images for a model that convolves on a CPU.

    A user's model may look at the order in memory, as by ``view``, or drop units by their place in
    it. Whether it does is found out once for each shape of images, on random images and weights:
    no client's data decide.

    Parameters
    ----------
    flat : FlatModel
        The model, whose weights and statistics are put back after each comparison.
    put_back : callable
        Puts back what else a pass moves in the model.
    """

    def __init__(self, flat: FlatModel, put_back: Callable[[], None]) -> None:
        self._flat = flat
        self._put_back = put_back
        self._convolves = flat.weights.device.type == "cpu" and any(
            isinstance(module, nn.Conv2d) for module in flat.model.modules()
        )
        self._same: dict[tuple[int, ...], bool] = {}

    def lay_out(self, inputs: Any) -> Any:
        """Return a batch, channels-last in memory if it holds images (n, channels, rows, columns).

        Anything else is returned as it is, as are images that the model would treat otherwise.
        """
        images = isinstance(inputs, torch.Tensor) and inputs.dim() == 4
        if not images or not self._convolves or not inputs.is_floating_point():
            return inputs
        shape = tuple(inputs.shape[1:])
        if shape not in self._same:
            self._same[shape] = self._computes_the_same(shape)
        if not self._same[shape]:
            return inputs
        return inputs.contiguous(memory_format=torch.channels_last)

    def _computes_the_same(self, shape: tuple[int, ...]) -> bool:
        weights, running = self._flat.weights, self._flat.running
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn((2, *shape), generator=generator, dtype=weights.dtype)
        before = weights.clone()
        statistics = [statistic.value.clone() for statistic in running.moving]
        outputs = []
        try:
            draw_weights(self._flat.views(), generator)
            for images in (inputs, inputs.contiguous(memory_format=torch.channels_last)):
                with seeded(0), torch.no_grad():
                    outputs.append(self._flat.model(images))
            one, other = outputs
            largest = one.abs().max().item()
            return 0 < largest < math.inf and torch.allclose(
                one, other, rtol=0, atol=_TOLERANCE * largest
            )
        except Exception:  # of a model that views its inputs as contiguous, or needs other ones
            return False
        finally:
            weights.copy_(before)
            self._put_back()
            # put_back gives the statistics that training started from. Shapes of images may differ
            # from batch to batch, so these may have moved since.
            for statistic, value in zip(running.moving, statistics, strict=True):
                statistic.value.copy_(value)
