"""Convolve and pool channels-last images, with backward rules derived by hand."""

from dataclasses import dataclass
from typing import Any

import torch

from zerosum.client.training.fast_layers import (
    BoundLayer,
    Parameter,
    Place,
    Shape,
    UnsupportedLayer,
)
from zerosum.client.training.products import product_of
from zerosum.client.training.torch_internals import kernels

PATCH_CHANNELS = 2
"""A first convolution of at most this many channels is one product over patches: of 5x5 pixels in \
one channel in a sixth of the time, of three channels no faster."""


@dataclass(frozen=True)
class Geometry:
    """The moves of a window over an image: (height, width) of everything."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    def output(self, height: int, width: int) -> tuple[int, int]:
        """Return the number of positions of a window, down and across.

        Parameters
        ----------
        height, width : int
            Of the image, in pixels.

        Returns
        -------
        down, across : int
            Positions of the window.

        Raises
        ------
        UnsupportedLayer
            If the window is larger than the image.
        """
        sizes = [
            (size + 2 * pad - step * (kernel - 1) - 1) // stride + 1
            for size, pad, step, kernel, stride in zip(
                (height, width), self.padding, self.dilation, self.kernel, self.stride, strict=True
            )
        ]
        if min(sizes) < 1:
            raise UnsupportedLayer(
                f"a window of {self.kernel} does not fit {height}x{width} pixels"
            )
        return sizes[0], sizes[1]


@dataclass(frozen=True)
class Conv2d:
    """Convolution without groups, zeros around the image."""

    weight: Parameter
    bias: Parameter | None
    geometry: Geometry

    def bind(self, place: Place) -> BoundLayer:
        """Bind to inputs of shape (n, channels, height, width)."""
        width, channels = self.weight.value.shape[:2]
        if len(place.shape) != 4 or place.shape[1] != channels:
            raise UnsupportedLayer(
                f"a convolution of {channels} channels is given {place.shape[1:]}"
            )
        size = self.geometry.output(*place.shape[2:])
        shape = (place.shape[0], width, *size)
        if place.first and channels <= PATCH_CHANNELS:
            return self._patches(place, shape)
        return self._convolution(place, shape)

    def _convolution(self, place: Place, shape: Shape) -> BoundLayer:
        weight, bias, shift = self.weight, self.bias, self.geometry
        options = (list(shift.stride), list(shift.padding), list(shift.dilation), False, [0, 0], 1)
        sizes = None if bias is None else [shape[1]]
        needed = [not place.first, True, bias is not None]
        operators = kernels()
        kernel, load = place.read(weight.value)
        offsets, load_offsets = (None, load) if bias is None else place.read(bias.value)
        seen = kernel

        def forward(inputs: torch.Tensor) -> torch.Tensor:
            nonlocal seen
            load()
            load_offsets()
            seen = inputs.contiguous(memory_format=torch.channels_last)
            return operators.convolution(seen, kernel, offsets, *options)

        def backward(gradient: torch.Tensor) -> torch.Tensor:
            nonlocal seen
            upstream, by_weight, by_bias = operators.convolution_backward(
                gradient, seen, kernel, sizes, *options, needed
            )
            seen = kernel  # nothing of a batch outlives its step
            weight.take(by_weight)
            if bias is not None:
                bias.take(by_bias)
            return gradient if upstream is None else upstream

        return BoundLayer(forward, backward, shape)

    def _patches(self, place: Place, shape: Shape) -> BoundLayer:
        """Multiply by a matrix of patches, one row an entry of the kernel.

        That order copies whole lines of the image at a time.
        """
        weight, bias = self.weight, self.bias
        count, width, height, across = shape
        padded, inner, windows = self._windows(place, shape)
        patches = place.take("patches", tuple(windows.shape))
        rows = patches.view(-1, count * height * across).t()
        matrix, load = place.read(weight.matrix)
        offsets, load_offsets = (None, load) if bias is None else place.read(bias.value)
        outputs = place.take("outputs", (len(rows), width))
        images = outputs.view(count, height, across, width).permute(0, 3, 1, 2)
        entries = rows.shape[1]
        product = product_of(entries, len(rows), width, outputs.dtype)
        by_entry = place.take("gradient of the kernel", (entries, width))

        def forward(inputs: torch.Tensor) -> torch.Tensor:
            inner.copy_(inputs)
            patches.copy_(windows)
            load()
            load_offsets()
            if offsets is None:
                torch.mm(rows, matrix.t(), out=outputs)
            else:
                torch.addmm(offsets, rows, matrix.t(), out=outputs)
            return images

        def backward(gradient: torch.Tensor) -> torch.Tensor:
            flat = gradient.permute(0, 2, 3, 1).reshape(-1, width)
            # The long side inside, and the patches on the left as they lie: a third of the time.
            by_weight = product(rows.t(), flat, by_entry)
            weight.take(by_weight.t().reshape(weight.value.shape))
            if bias is not None:
                bias.take(flat.sum(0))
            return padded

        return BoundLayer(forward, backward, shape)

    def _windows(self, place: Place, shape: Shape) -> tuple[torch.Tensor, ...]:
        """Return padded images, their inside, and their view (channels, kernel, n, positions)."""
        count, channels, height, width = place.shape
        (up, left), (down, right) = self.geometry.padding, self.geometry.stride
        # The key names the shape: zeros around one image would lie inside another.
        padded = place.take(
            f"padded {height}x{width}", (count, channels, height + 2 * up, width + 2 * left)
        )
        inner = padded[:, :, up : up + height, left : left + width]
        image, plane, line, _ = padded.stride()
        steps = self.geometry.dilation
        windows = padded.as_strided(
            (channels, *self.geometry.kernel, count, *shape[2:]),
            (plane, steps[0] * line, steps[1], image, down * line, right),
        )
        return padded, inner, windows


@dataclass(frozen=True)
class Pooling:
    """Maximum or average over windows; ``options`` are those of aten after the input."""

    maximum: bool
    options: tuple[Any, ...]

    def bind(self, place: Place) -> BoundLayer:
        """Bind to inputs of shape (n, channels, height, width)."""
        if len(place.shape) != 4:
            raise UnsupportedLayer(f"pooling is given {place.shape[1:]}")
        probe = torch.zeros((1, *place.shape[1:]), dtype=place.dtype or place.arena.dtype)
        shape = (place.shape[0], *self._pool(probe)[0].shape[1:])
        seen, indices = probe, probe
        apart = self._apart(probe.dtype)
        size = list(place.shape[2:])

        def forward(inputs: torch.Tensor) -> torch.Tensor:
            nonlocal seen, indices
            seen = inputs
            outputs, indices = self._pool(inputs)
            return outputs

        def backward(gradient: torch.Tensor) -> torch.Tensor:
            nonlocal seen, indices
            if apart:
                upstream = kernels().max_unpool2d(gradient, indices, size)
            elif self.maximum:
                rule = kernels().max_pool2d_backward
                upstream = rule(gradient, seen, *self.options, indices)
            else:
                upstream = kernels().avg_pool2d_backward(gradient, seen, *self.options)
            seen = indices = probe
            return upstream

        return BoundLayer(forward, backward, shape)

    def _apart(self, dtype: torch.dtype) -> bool:
        """Tell whether to put gradients where maxima were, because no two windows share one.

        The general rule adds them up in float32, which takes bfloat16 twice the time. The operator
        refuses where a user lets torch refuse what two writes to one place would make random.
        """
        if not self.maximum or dtype != torch.bfloat16:
            return False
        kernel, stride = self.options[:2]
        disjoint = all(step >= width for width, step in zip(kernel, stride or kernel, strict=True))
        spread = self.options[3] != [1, 1]
        return disjoint and not spread and not torch.are_deterministic_algorithms_enabled()

    def _pool(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.maximum:
            return kernels().max_pool2d(inputs, *self.options)
        return kernels().avg_pool2d(inputs, *self.options), inputs
