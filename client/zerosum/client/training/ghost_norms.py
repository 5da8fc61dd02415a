"""Measure each example's weight gradient from a layer's inputs and output gradients.

With inputs A_i (positions x fan-in) and output gradients G_i (positions x outputs) of example i,
its weight gradient is G_i^T A_i. A sum over examples needs one product for all. Squared norms need
none for one position, |A_i|^2 |G_i|^2 (Goodfellow 2015); for several, either that product, dropped
as soon as it is measured, or <A_i A_i^T, G_i G_i^T> ("ghost norm": Li et al. 2022, section 4;
Bu et al. 2022 for convolutions), whichever takes fewer multiplications. Only a product smaller
than the layer's output is kept: it saves the second one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.grad import conv2d_weight

from zerosum.client.training.torch_internals import padding_of

LAYERS: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d)
"""Layers that are understood; subclasses may compute something else."""

CHUNK_ENTRIES = 1 << 19
"""Entries of unfolded inputs held at once: what stays in a processor's cache."""

CANCELLED = 1e-6
"""A squared norm is never taken for less than this part of |A|^2 |G|^2. Where positions cancel to
less, rounding decides what is left of them: a norm could come out too small, and the example's part
of the sum larger than the clip."""


@dataclass(frozen=True)
class Capture:
    """One layer in one forward and backward pass.

    Attributes
    ----------
    layer : nn.Linear or nn.Conv2d
    inputs : torch.Tensor
        What it was given: shape (n, ..., fan-in), or (n, channels, height, width).
    gradient : torch.Tensor
        Gradient of the summed losses by its output, of the output's shape.
    """

    layer: Any
    inputs: torch.Tensor
    gradient: torch.Tensor

    @property
    def trains_weight(self) -> bool:
        """Return whether the layer's weight has a gradient."""
        return bool(self.layer.weight.requires_grad)

    @property
    def trains_bias(self) -> bool:
        """Return whether the layer has a bias, and that a gradient."""
        return self.layer.bias is not None and self.layer.bias.requires_grad

    def double(self) -> "Capture":
        """Return the same in float64."""
        return replace(self, inputs=self.inputs.double(), gradient=self.gradient.double())

    def where(self, usable: torch.Tensor) -> "Capture":
        """Return the same with zeros for the examples that are not usable, shape (n,)."""
        parts = [
            torch.where(usable.view(-1, *[1] * (part.dim() - 1)), part, 0.0)
            for part in (self.inputs, self.gradient)
        ]
        return replace(self, inputs=parts[0], gradient=parts[1])


@dataclass(frozen=True)
class MeasuredLayer:
    """A layer whose examples were measured.

    Attributes
    ----------
    capture : Capture
        The layer.
    squares : torch.Tensor
        Squared L2 norm of each example's gradient of the layer's parameters, shape (n,).
    products : torch.Tensor or None
        Each example's weight gradient, shape (n, groups, outputs, fan-in), where it is small.
    """

    capture: Capture
    squares: torch.Tensor
    products: torch.Tensor | None = None


def measure(capture: Capture) -> MeasuredLayer:
    """Return the squared norms of a layer's per-example gradients, exactly."""
    inputs, gradient = capture.inputs, capture.gradient
    if isinstance(capture.layer, nn.Conv2d):
        return _measure_convolution(capture)
    if inputs.dim() == 2:
        fan_in = _squares(inputs) if capture.trains_weight else 0.0
        return MeasuredLayer(capture, _squares(gradient) * (fan_in + float(capture.trains_bias)))
    left = gradient.flatten(1, -2).transpose(1, 2).unsqueeze(1)
    return MeasuredLayer(capture, _measure(capture, left, inputs.flatten(1, -2).unsqueeze(1))[0])


def write_weighted_sum(
    measured: MeasuredLayer, factors: torch.Tensor, places: Mapping[torch.Tensor, torch.Tensor]
) -> None:
    """Write the sums of a layer's gradients, each example weighed.

    Parameters
    ----------
    measured : MeasuredLayer
    factors : torch.Tensor
        One weight an example, shape (n,).
    places : mapping of Parameter to torch.Tensor
        Where each parameter's sum goes, of the parameter's shape.
    """
    capture = measured.capture
    layer: Any = capture.layer
    gradient = capture.gradient
    if measured.products is not None:
        places[layer.weight].copy_(_from_products(layer, measured.products, factors))
        if capture.trains_bias:
            places[layer.bias].copy_(factors @ gradient.sum((2, 3)))
        return
    weighed = gradient * factors.view(-1, *[1] * (gradient.dim() - 1))
    if isinstance(capture.layer, nn.Conv2d):
        if capture.trains_weight:
            places[layer.weight].copy_(_convolution_weight(layer, capture.inputs, weighed))
        if capture.trains_bias:
            places[layer.bias].copy_(weighed.sum((0, 2, 3)))
        return
    rows, inputs = weighed.flatten(0, -2), capture.inputs.flatten(0, -2)
    if capture.trains_weight:
        place = places[layer.weight]
        if place.dtype == rows.dtype:
            torch.mm(rows.T, inputs, out=place)
        else:
            place.copy_(rows.T @ inputs)
    if capture.trains_bias:
        places[layer.bias].copy_(rows.sum(0))


def _squares(rows: torch.Tensor) -> torch.Tensor:
    norms: torch.Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1)
    return norms.square()


def _measure_convolution(capture: Capture) -> MeasuredLayer:
    layer: nn.Conv2d = capture.layer
    gradient, groups = capture.gradient, layer.groups
    padded, left_over = _padded(layer, capture.inputs)
    last = nn.functional.pad(padded, left_over).permute(0, 2, 3, 1).contiguous()
    fan_in, positions = layer.weight[0].numel(), gradient[0, 0].numel()
    size = max(1, CHUNK_ENTRIES // (fan_in * groups * positions))
    keep = capture.trains_weight and layer.weight.numel() <= gradient[0].numel()
    squares, products = [], []
    for start in range(0, len(gradient), size):
        part = gradient[start : start + size]
        left = part.reshape(-1, groups, layer.out_channels // groups, positions)
        right = _unfolded(layer, last[start : start + size], part.shape[2:])
        square, product = _measure(capture, left, right, keep=keep)
        squares.append(square)
        products.append(product)
    small = [product for product in products if product is not None]
    return MeasuredLayer(capture, torch.cat(squares), torch.cat(small) if small else None)


def _unfolded(layer: nn.Conv2d, images: torch.Tensor, size: torch.Size) -> torch.Tensor:
    """Return what each output position sees: (n, groups, positions, rows x columns x channels).

    Parameters
    ----------
    layer : nn.Conv2d
        Kernel, stride, dilation, groups.
    images : torch.Tensor
        Padded, contiguous, shape (n, height, width, channels): runs of memory stay whole.
    size : torch.Size
        Height and width of the output.
    """
    count, channels = len(images), images.shape[3] // layer.groups
    image, row, column, _ = images.stride()
    (down, right), (dy, dx) = layer.stride, layer.dilation
    shape = (count, layer.groups, *size, *layer.kernel_size, channels)
    strides = (image, channels, down * row, right * column, dy * row, dx * column, 1)
    return images.as_strided(shape, strides).reshape(count, layer.groups, size.numel(), -1)


def _measure(
    capture: Capture, left: torch.Tensor, right: torch.Tensor, *, keep: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return squared norms of left right, bias included, and the product if it is wanted.

    Parameters
    ----------
    capture : Capture
        Says which parameters are trained.
    left : torch.Tensor
        Output gradients, shape (n, groups, outputs, positions).
    right : torch.Tensor
        Inputs, shape (n, groups, positions, fan-in).
    keep : bool
        Compute the product even where a ghost norm is cheaper, and return it.
    """
    total, product = left.new_zeros(len(left)), None
    if capture.trains_weight:
        (outputs, positions), fan_in = left.shape[2:], right.shape[3]
        if not keep and positions * (outputs + fan_in) < outputs * fan_in:
            grams = left.transpose(2, 3) @ left, right @ right.transpose(2, 3)
            total = (grams[0] * grams[1]).sum((1, 2, 3))
            traces = [gram.diagonal(dim1=2, dim2=3).sum((1, 2)) for gram in grams]
            uncancelled = traces[0] * traces[1]
        else:
            product = left @ right
            total = _squares(product)
            uncancelled = _squares(left) * _squares(right)
        total = torch.maximum(total, CANCELLED * uncancelled)
    if capture.trains_bias:
        uncancelled = _squares(left) * left.shape[3]
        total = total + torch.maximum(_squares(left.sum(3)), CANCELLED * uncancelled)
    return total, product if keep else None


def _padded(layer: nn.Conv2d, inputs: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Return inputs, and how many zeros are to stand left, right, above and below.

    Other padding than the same zeros on both sides is done here.
    """
    zeros = layer.padding_mode == "zeros"
    if zeros and not isinstance(layer.padding, str):
        down, right = layer.padding
        return inputs, (right, right, down, down)
    mode = "constant" if zeros else layer.padding_mode
    around = padding_of(layer)
    return nn.functional.pad(inputs, around, mode), (0, 0, 0, 0)


def _from_products(layer: nn.Conv2d, products: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    flat = (factors @ products.flatten(1)).view(layer.out_channels, *layer.kernel_size, -1)
    return flat.permute(0, 3, 1, 2)


def _convolution_weight(
    layer: nn.Conv2d, inputs: torch.Tensor, gradient: torch.Tensor
) -> torch.Tensor:
    padded, (_, right, _, down) = _padded(layer, inputs)
    shape = list(layer.weight.shape)
    weight: torch.Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
        padded, shape, gradient, layer.stride, (down, right), layer.dilation, layer.groups
    )
    return weight
