"""Leave the weights of a wide Linear layer alone while a client trains, and move them at its end.

After steps of plain SGD the weights are W0 - lr * D'X, with the layer's inputs X and the gradients
of its outputs D, a row for each record so far. A product with them is one with W0 and two thin ones
with D and X. Where records are few, W0 is rounded to bfloat16 once a client in place of once a
step, and the float32 weights are read and written once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from zerosum.client.training.fast_layers import BoundLayer, Cast, Layer, Linear, Place


class Rows:
    """Inputs and output gradients of the records that one client has trained on so far.

    Attributes
    ----------
    weights : torch.Tensor
        Shape (fan-out, fan-in): what the client began with, in the dtype of activations.
    inputs, gradients : torch.Tensor
        Shapes (records, fan-in) and (records, fan-out); memory of the largest client.
    active : bool
        Whether this client's steps are deferred.
    count : int
        Records so far.
    """

    def __init__(self) -> None:
        self.weights = self.inputs = self.gradients = torch.zeros((0, 0))
        self.active, self.count = False, 0


@dataclass(frozen=True)
class DeferredLinear(Linear):
    """Outputs ``x @ weight.T + bias`` in another dtype than that of the weights.

    Attributes
    ----------
    dtype : torch.dtype
        Of its inputs.
    rows : Rows
        Of the client that trains.
    """

    dtype: torch.dtype
    rows: Rows = field(default_factory=Rows, compare=False)

    def begin(self, records: int) -> None:
        """Begin a client whose model is loaded, and who trains on so many records in all.

        Records of each epoch count anew. A record's thin products take up to
        records * (fan-in + fan-out) multiplications each way; deferred is what keeps these below
        the fan-in * fan-out of its product with the weights, under plain SGD.
        """
        rows, weight = self.rows, self.weight
        width, inputs = weight.matrix.shape
        rows.count = 0
        rows.active = weight.rate is not None and records * (inputs + width) <= inputs * width
        if not rows.active:
            return
        if len(rows.inputs) < records:
            rows.inputs = torch.zeros((records, inputs), dtype=self.dtype)
            rows.gradients = torch.zeros((records, width), dtype=self.dtype)
        if not len(rows.weights):
            rows.weights = torch.zeros((width, inputs), dtype=self.dtype)
        rows.weights.copy_(weight.matrix)

    def end(self) -> None:
        """Move the weights by what the steps of this client add up to."""
        rows, count = self.rows, self.rows.count
        if rows.active and count:
            self.weight.product(rows.gradients[:count].t(), rows.inputs[:count])
        rows.active = False

    def bind(self, place: Place) -> BoundLayer:
        """Bind to inputs of shape (n, fan-in)."""
        plain, deferred, rows = super().bind(place), self._deferred(place), self.rows
        return BoundLayer(
            lambda inputs: (deferred if rows.active else plain).forward(inputs),
            lambda gradient: (deferred if rows.active else plain).backward(gradient),
            plain.shape,
        )

    def _deferred(self, place: Place) -> BoundLayer:
        weight, bias, rows = self.weight, self.bias, self.rows
        count, width = place.shape[0], len(weight.matrix)
        outputs = place.take("outputs", (count, width))
        upstream = place.take("gradient", place.shape)

        def correct(result: torch.Tensor, like: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            """Add what the steps behind would have changed."""
            return result.addmm_(like, other, alpha=-(weight.rate or 0.0))

        def forward(inputs: torch.Tensor) -> torch.Tensor:
            behind, now = slice(rows.count), slice(rows.count, rows.count + count)
            torch.mm(inputs, rows.weights.t(), out=outputs)
            if rows.count:
                alike = torch.mm(inputs, rows.inputs[behind].t())
                correct(outputs, alike, rows.gradients[behind])
            rows.inputs[now].copy_(inputs)
            return outputs if bias is None else outputs.add_(bias.value)

        def backward(gradient: torch.Tensor) -> torch.Tensor:
            behind, now = slice(rows.count), slice(rows.count, rows.count + count)
            if not place.first:
                torch.mm(gradient, rows.weights, out=upstream)
                if rows.count:
                    alike = torch.mm(gradient, rows.gradients[behind].t())
                    correct(upstream, alike, rows.inputs[behind])
            rows.gradients[now].copy_(gradient)
            rows.count += count
            if bias is not None:
                bias.sums(gradient)
            return upstream

        return BoundLayer(forward, backward, (count, width))


def deferring(layers: Sequence[Layer]) -> list[Layer]:
    """Return layers of which each Linear in another dtype than its weights may be deferred.

    Between layers of one dtype it gains nothing: there is nothing to round.
    """
    made: list[Layer] = []
    dtype = None
    for layer in layers:
        if isinstance(layer, Cast):
            dtype = layer.dtype
        if isinstance(layer, Linear) and dtype not in (None, layer.weight.value.dtype):
            layer = DeferredLinear(layer.weight, layer.bias, dtype)
        made.append(layer)
    return made


def deferred(layers: Sequence[Layer]) -> list[DeferredLinear]:
    """Return the layers that are told when a client begins and when it ends."""
    return [layer for layer in layers if isinstance(layer, DeferredLinear)]


@contextmanager
def set_aside(layers: Sequence[Layer]) -> Iterator[None]:
    """Let the steps inside the block be those of another client."""
    kept = [(layer.rows, dict(vars(layer.rows))) for layer in deferred(layers)]
    for rows, _ in kept:
        vars(rows).update(vars(Rows()))
    try:
        yield
    finally:
        for rows, values in kept:
            vars(rows).update(values)
