"""Compute principal components from a private sum of second moments.

Abadi et al., "Deep learning with differential privacy" (2016), section 4.1, after Dwork et al.,
"Analyze Gauss" (2014): second moments of records of norm at most 1, noised, and their largest
eigenvectors. Here the noise is the mechanism's, and the sum goes through the masks.
"""

import math

import numpy as np
from numpy.typing import NDArray

_WITHIN = 1 - 1e-6
"""Records are cut to this norm: what float64 rounding of their sum can add."""


def second_moments(records: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of x x^T.

    Formal guarantees: each record is scaled to norm 1 if its norm is above, and one that is not
    finite adds nothing, so that a record moves the result by a Frobenius norm of |x|^2 <= 1.

    Parameters
    ----------
    records : ndarray of float64
        Shape (n, inputs), uncentred.

    Returns
    -------
    ndarray of float64
        Shape (inputs, inputs).
    """
    usable = records[np.isfinite(records).all(axis=1)]
    largest = np.maximum(np.abs(usable).max(axis=1, initial=1.0, keepdims=True), 1.0)
    usable = usable / largest  # no square overflows
    norms = np.linalg.norm(usable, axis=1, keepdims=True)
    unit = usable * _WITHIN / np.maximum(norms, 1.0 / largest)
    moments: NDArray[np.float64] = unit.T @ unit
    return moments


def triangle(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a symmetric matrix's upper triangle, row by row, with the norm of the whole.

    Entries off the diagonal are multiplied by sqrt(2).
    """
    rows, columns = np.triu_indices(len(matrix))
    entries: NDArray[np.float64] = matrix[rows, columns] * _scales(rows, columns)
    return entries


def principal_components(
    total: NDArray[np.float64], inputs: int, count: int
) -> NDArray[np.float32]:
    """Return the eigenvectors of the largest eigenvalues of a noised sum of second moments.

    Parameters
    ----------
    total : ndarray of float64
        Shape (moments_length(inputs),): the :func:`triangle` of their sum, and noise.
    inputs, count : int
        Length of a record; directions wanted, at most ``inputs``.

    Returns
    -------
    ndarray of float32
        Shape (inputs, count), columns of norm 1 from the largest eigenvalue on, the largest entry
        of each positive.
    """
    rows, columns = np.triu_indices(inputs)
    matrix = np.zeros((inputs, inputs))
    matrix[columns, rows] = total / _scales(rows, columns)
    vectors = np.linalg.eigh(matrix, UPLO="L")[1][:, ::-1][:, :count]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(count)])
    components: NDArray[np.float32] = (vectors * signs).astype(np.float32)
    return components


def _scales(rows: NDArray[np.intp], columns: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the weights under which a triangle has the norm of its whole matrix."""
    return np.where(rows == columns, 1.0, math.sqrt(2.0))
