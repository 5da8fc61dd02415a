"""Write images as part of a page."""

import base64
import io

import numpy as np
from matplotlib.image import imsave
from numpy.typing import NDArray


def png_of(image: NDArray[np.uint8], side: int) -> str:
    """Return an image as the address of an ``img``, coarser where it is wider than ``side``.

    Parameters
    ----------
    image : numpy.ndarray
        uint8, shape (h, w) or (h, w, 3).
    side : int
        Longest side wanted, in pixels.

    Returns
    -------
    str
        A ``data:`` address.
    """
    step = max(1, -(-max(image.shape[:2]) // side))
    file = io.BytesIO()
    imsave(file, image[::step, ::step], cmap="gray", vmin=0, vmax=255, format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
