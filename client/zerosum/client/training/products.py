"""Multiply matrices by the library that makes the most of this processor."""

from collections.abc import Callable

import torch

from zerosum.client.training.torch_internals import mkl_is_narrow, onednn_product

Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""From a left and a right matrix and memory for the result to the result, there or elsewhere."""

LARGE = 3_000_000
"""Multiplications and additions from which oneDNN's setting up pays."""


def product_of(rows: int, shared: int, columns: int, dtype: torch.dtype) -> Product:
    """Return the fastest product of (rows, shared) by (shared, columns).

    Where MKL leaves half of the processor's width unused, oneDNN takes half the time. Which of
    them is taken follows from the shape and the processor, so that equal arguments give equal bits.

    Parameters
    ----------
    rows, shared, columns : int
        Of the matrices.
    dtype : torch.dtype
        Of both.

    Returns
    -------
    Product
        The function.
    """
    large = 2 * rows * shared * columns >= LARGE
    if dtype == torch.float32 and large and mkl_is_narrow():
        return _by_onednn
    return lambda left, right, out: torch.mm(left, right, out=out)


def multiplied(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply by a matrix, on any device, a CPU's by :func:`product_of`.

    Parameters
    ----------
    left : torch.Tensor
        Shape (..., shared).
    right : torch.Tensor
        Shape (shared, columns).
    out : torch.Tensor, optional
        Memory for a result of two dimensions.

    Returns
    -------
    torch.Tensor
        Shape (..., columns): ``out``, or another.
    """
    if left.dim() != 2 or not left.is_cpu:
        return torch.matmul(left, right, out=out)
    (rows, shared), columns = left.shape, right.shape[1]
    out = left.new_empty((rows, columns)) if out is None else out
    return product_of(rows, shared, columns, left.dtype)(left, right, out)


def _by_onednn(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    result = onednn_product(left, right.t())
    return torch.mm(left, right, out=out) if result is None else result
