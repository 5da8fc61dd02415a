"""Draw records beside guesses: images as they are, colours as grey, and of tables nothing."""

from collections.abc import Mapping, Sequence

import numpy as np


def picture_pairs(
    true: np.ndarray, guesses: np.ndarray, shape: Sequence[int]
) -> Mapping[str, np.ndarray]:
    """Return pairs of a true image and its guess, where records are images.

    Parameters
    ----------
    true, guesses : ndarray
        Shape (k, pixels) each.
    shape : sequence of int
        Of a record: (height, width) or (channels, height, width); anything else is no image.

    Returns
    -------
    mapping of str to ndarray
        "reconstruction": shape (k, 2, height, width); empty where records are no images.
    """
    if len(shape) not in (2, 3):
        return {}
    pairs = np.stack([true, guesses], axis=1).reshape(len(true), 2, -1, *shape[-2:])
    return {"reconstruction": pairs[:, :, 0] if pairs.shape[2] == 1 else pairs.mean(axis=2)}
