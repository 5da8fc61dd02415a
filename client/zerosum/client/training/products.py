"""Multiply matrices by the library that makes the most of this processor."""

from collections.abc import Callable

import torch

from zerosum.client.training.torch_internals import mkl_is_narrow, onednn_product

Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""From a left and a right matrix and memory for the result to the result, there or elsewhere."""

LARGE = 3_000_000
"""Multiplications and additions from which oneDNN's setting up pays."""


def product_of(
    rows: int, shared: int, columns: int, dtype: torch.dtype, *, stacked: bool = False
) -> Product:
    """Return the fastest product of (rows, shared) by (shared, columns).

    Where MKL leaves half of the processor's width unused, oneDNN takes half the time. Which of
    them is taken follows from the shape and the processor, so that equal arguments give equal bits.

    Parameters
    ----------
    rows, shared, columns : int
        Of the matrices.
    dtype : torch.dtype
        Of both.
    stacked : bool
        Whether there are as many of each as clients, along a first axis.

    Returns
    -------
    Product
        The function.
    """
    if stacked:
        return lambda left, right, out: torch.bmm(left, right, out=out)
    large = 2 * rows * shared * columns >= LARGE
    if dtype == torch.float32 and large and mkl_is_narrow():
        return lambda left, right, out: product_with_transpose(left, right.t(), out)
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


def product_with_transpose(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Multiply a matrix by the transpose of another, in their own precision.

    In float32 by oneDNN, which asks the processor what it can do. MKL asks who made it: on an AMD
    with AVX-512 its products run at half the rate.

    Parameters
    ----------
    left, right : torch.Tensor
        float32 or float64, shapes (m, k) and (n, k), strided in any way.
    out : torch.Tensor, optional
        Shape (m, n): may be written to.

    Returns
    -------
    torch.Tensor
        Shape (m, n), in ``out`` or elsewhere.
    """
    fast = onednn_product(left, right) if left.dtype == torch.float32 else None
    return torch.mm(left, right.t(), out=out) if fast is None else fast
