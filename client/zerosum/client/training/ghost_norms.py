"""Measure each example's weight gradient from a layer's inputs and output gradients.

With inputs A_i (positions x fan-in) and output gradients G_i (positions x outputs) of example i,
its weight gradient is G_i^T A_i. A sum over examples needs one product for all. Squared norms need
none for one position, |A_i|^2 |G_i|^2 (Goodfellow 2015); for several, either that product or
<A_i A_i^T, G_i G_i^T> ("ghost norm": Li et al. 2022, section 4; Bu et al. 2022 for convolutions),
whichever takes fewer multiplications. A product that is kept saves the second one: it is where it
is smaller than the layer's output, or fits the room that a caller has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.grad import conv2d_weight

from zerosum.client.training.products import multiplied
from zerosum.client.training.torch_internals import padding_of

LAYERS: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d)
"""Layers that are understood; subclasses may compute something else."""

CHUNK_ENTRIES = 1 << 19
"""Entries of unfolded inputs held at once: what stays in a processor's cache."""

KEPT_ENTRIES = 1 << 24
"""Entries of per-example weight gradients that one batch may keep for its sum: 128 MiB in float64.
A second product is what they save."""

ALONE_MULTIPLICATIONS = 1 << 20
"""From here on an example's weight gradient of a convolution is a call of its own on a CPU. The
library's own rule needs no unfolded copy of the inputs, of a kernel's size times theirs: 0.16 ms
instead of 0.4 an example of the benchmark's second layer. A call costs about 0.02 ms, the time of
these multiplications."""

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
        Each example's weight gradient, where it is kept: shape (n, ...), the entries of an example
        ordered outputs x rows x columns x channels.
    sums : torch.Tensor or None
        Each example's bias gradient of a layer with positions, shape (n, outputs).
    """

    capture: Capture
    squares: torch.Tensor
    products: torch.Tensor | None = None
    sums: torch.Tensor | None = None


class KeptProducts:
    """Memory for per-example weight gradients, the same for each batch.

    Memory that every batch takes anew is given back to the system after it and cleared by the
    system before the next one, which takes a fifth of a step's time.
    """

    def __init__(self) -> None:
        self._rows: dict[nn.Module, torch.Tensor] = {}
        self._left = KEPT_ENTRIES

    def clear(self) -> None:
        """Let the memory be used for another batch."""
        self._left = KEPT_ENTRIES

    def rows(self, layer: nn.Module, count: int, entries: int, like: torch.Tensor) -> Any:
        """Return uninitialised rows, one an example, or None where there is no room.

        Parameters
        ----------
        layer : nn.Module
            Whose gradients they are to hold.
        count, entries : int
            Their shape.
        like : torch.Tensor
            Of their dtype and device.

        Returns
        -------
        torch.Tensor or None
            Shape (count, entries).
        """
        if count * entries > self._left:
            return None
        self._left -= count * entries
        memory = self._rows.get(layer)
        if memory is None or memory.numel() < count * entries or memory.dtype != like.dtype:
            memory = self._rows[layer] = like.new_empty(count * entries)
        return memory[: count * entries].view(count, entries)


def measure(capture: Capture, kept: KeptProducts | None = None) -> MeasuredLayer:
    """Return the squared norms of a layer's per-example gradients, exactly.

    Parameters
    ----------
    capture : Capture
        The layer.
    kept : KeptProducts, optional
        Where per-example gradients may be kept for the sum.

    Returns
    -------
    MeasuredLayer
    """
    inputs, gradient = capture.inputs, capture.gradient
    lengths = _squares(gradient)
    if inputs.dim() == 2:
        fan_in = _squares(inputs) if capture.trains_weight else 0.0
        return MeasuredLayer(capture, lengths * (fan_in + float(capture.trains_bias)))
    convolves = isinstance(capture.layer, nn.Conv2d)
    squares, rows, sums = torch.zeros_like(lengths), None, None
    if capture.trains_weight:
        if convolves:
            raw, seen, rows = _convolution(capture, KeptProducts() if kept is None else kept)
        else:
            left = gradient.flatten(1, -2).transpose(1, 2)
            raw, seen, _ = _product(left, inputs.flatten(1, -2))
        squares = torch.maximum(raw, CANCELLED * lengths * seen)
    if capture.trains_bias:
        sums = gradient.sum((2, 3)) if convolves else gradient.flatten(1, -2).sum(1)
        positions = gradient[0].numel() // max(1, sums.shape[1])
        squares = squares + torch.maximum(_squares(sums), CANCELLED * lengths * positions)
    return MeasuredLayer(capture, squares, rows, sums)


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
    bias, place = places.get(layer.bias), places.get(layer.weight)
    if bias is not None:
        sums = capture.gradient if measured.sums is None else measured.sums
        bias.copy_(factors @ sums)
    if place is None:
        return
    if measured.products is not None:
        place.copy_(_from_products(layer, measured.products, factors))
        return
    weighed = capture.gradient * factors.view(-1, *[1] * (capture.gradient.dim() - 1))
    if isinstance(capture.layer, nn.Conv2d):
        place.copy_(_convolution_weight(layer, capture.inputs, weighed))
        return
    rows, inputs = weighed.flatten(0, -2), capture.inputs.flatten(0, -2)
    result = multiplied(rows.T, inputs, place if place.dtype == rows.dtype else None)
    if result is not place:
        place.copy_(result)


def _squares(rows: torch.Tensor) -> torch.Tensor:
    """Return the squared norm of each example's entries, read in the order of memory."""
    if rows.dim() == 4 and not rows.is_contiguous():
        rows = rows.permute(0, 2, 3, 1)  # channels-last, most likely: else it is copied below
    norms: torch.Tensor = torch.linalg.vector_norm(rows.flatten(1), dim=1)
    return norms.square()


Measured = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""Squared norms of each example's weight gradient and of the inputs that its positions see, each of
shape (n,), and the gradients where they are kept."""


def _convolution(capture: Capture, kept: KeptProducts) -> Measured:
    """Measure a convolution's weight gradients, the cheapest way by its shape."""
    layer: nn.Conv2d = capture.layer
    gradient, entries = capture.gradient, layer.weight.numel()
    positions = gradient[0, 0].numel()
    alone = gradient.device.type == "cpu" and positions * entries >= ALONE_MULTIPLICATIONS
    rows = None
    if alone or entries <= gradient[0].numel():
        rows = kept.rows(layer, len(gradient), entries, gradient)
    outputs, fan_in = layer.out_channels // layer.groups, layer.weight[0].numel()
    if alone and (rows is not None or not _ghost_is_cheaper(outputs, positions, fan_in)):
        return _alone(capture, rows)
    return _over_patches(capture, rows)


def _alone(capture: Capture, rows: torch.Tensor | None) -> Measured:
    """Take one example after another by the library's own rule, which unfolds nothing."""
    layer: nn.Conv2d = capture.layer
    squares = []
    pairs = zip(torch.split(capture.inputs, 1), torch.split(capture.gradient, 1), strict=True)
    for place, (image, gradient) in enumerate(pairs):
        # In the order in which the library leaves them where images lie channels-last: no copy.
        product = _convolution_weight(layer, image, gradient).permute(0, 2, 3, 1).reshape(-1)
        squares.append(product @ product)
        if rows is not None:
            rows[place] = product
    return torch.stack(squares), _seen(layer, capture.inputs), rows


def _seen(layer: nn.Conv2d, inputs: torch.Tensor) -> torch.Tensor:
    """Return the squared norm of all that an image's positions see, what none sees left out."""
    padded, (_, right, _, down) = _padded(layer, inputs)
    squares = padded.square().sum(1, keepdim=True)
    window = squares.new_ones((1, 1, *layer.kernel_size))
    windows = nn.functional.conv2d(
        squares, window, None, layer.stride, (down, right), layer.dilation
    )
    return windows.flatten(1).sum(1)


def _over_patches(capture: Capture, rows: torch.Tensor | None) -> Measured:
    """Multiply output gradients by unfolded inputs, of some examples at a time."""
    layer: nn.Conv2d = capture.layer
    gradient, groups = capture.gradient, layer.groups
    padded, left_over = _padded(layer, capture.inputs)
    last = nn.functional.pad(padded, left_over).permute(0, 2, 3, 1).contiguous()
    size = max(1, CHUNK_ENTRIES // (layer.weight[0].numel() * groups * gradient[0, 0].numel()))
    parts = []
    for start in range(0, len(gradient), size):
        some = slice(start, start + size)
        left, right = gradient[some].flatten(2), _unfolded(layer, last[some], gradient.shape[2:])
        if groups == 1:
            right = right.squeeze(1)
        else:
            left = left.view(len(left), groups, -1, left.shape[2])
        *measured, product = _product(left, right, keep=rows is not None)
        if rows is not None and product is not None:
            rows[some] = product.flatten(1)
        parts.append(measured)
    squares, seen = (torch.cat(column) for column in zip(*parts, strict=True))
    return squares, seen, rows


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


def _product(left: torch.Tensor, right: torch.Tensor, *, keep: bool = False) -> Measured:
    """Return squared norms of left right, and the product if it is wanted.

    Parameters
    ----------
    left : torch.Tensor
        Output gradients, shape (n, ..., outputs, positions).
    right : torch.Tensor
        Inputs, shape (n, ..., positions, fan-in).
    keep : bool
        Compute the product even where a ghost norm is cheaper, and return it.
    """
    (outputs, positions), fan_in = left.shape[-2:], right.shape[-1]
    if not keep and _ghost_is_cheaper(outputs, positions, fan_in):
        theirs, seen = left.transpose(-2, -1) @ left, right @ right.transpose(-2, -1)
        traces = seen.diagonal(dim1=-2, dim2=-1).flatten(1).sum(1)
        return (theirs * seen).flatten(1).sum(1), traces, None
    product = left @ right
    return _squares(product), _squares(right), product if keep else None


def _ghost_is_cheaper(outputs: int, positions: int, fan_in: int) -> bool:
    """Compare the multiplications of both Gram matrices with those of the product."""
    return positions * (outputs + fan_in) < outputs * fan_in


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
