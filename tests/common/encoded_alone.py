"""The vector that a sum of one encoded update is."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding
from zerosum.secagg.vectors.saturation import OnCut
from zerosum.secagg.vectors.vector_sum import VectorSum


def encode_clipped(
    code: Encoding, vector: NDArray[np.float32], rounding: Keystream, on_cut: OnCut | None = None
) -> NDArray[np.signedinteger[Any]] | None:
    """Return a vector that is encoded in one pass; None where that way steps aside."""
    alone = VectorSum(code.length)
    return alone.integers() if code.add_clipped(vector, rounding, alone, on_cut) else None
