"""Random pen strokes, drawn by this program: what handwriting looks like to somebody without data.

Their features' mean and principal directions stand in for those of private images: nobody's
record is read to choose a projection.
"""

from functools import cache

import numpy as np
import torch

from zerosum.simulations.data.scattering import scattering

DRAWINGS = 2000
_SEED = 0
_POINTS = 40


@cache
def stroke_directions(side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and principal directions of the scattering features of random strokes.

    Directions are scaled by the inverse root of the strokes' deviation along them: halfway to
    whitened.

    Parameters
    ----------
    side : int
        Height and width of the images.

    Returns
    -------
    mean, directions : torch.Tensor
        float32, shapes (d,) and (d, k), the strongest first, k at most :data:`DRAWINGS`.
    """
    drawn = strokes(DRAWINGS, side, _SEED)
    features = torch.from_numpy(scattering(drawn)).float()
    mean = features.mean(0)
    _, deviations, directions = torch.linalg.svd(features - mean, full_matrices=False)
    large = deviations > 1e-3 * deviations[0]
    return mean, directions[large].T / deviations[large].sqrt()


def strokes(count: int, side: int, seed: int) -> np.ndarray:
    """Draw one to three cubic curves an image, mostly joined, centred, in one of many widths.

    Parameters
    ----------
    count : int
        Number of images.
    side : int
        Height and width in pixels.
    seed : int
        Seed of all curves.

    Returns
    -------
    numpy.ndarray
        float32 in [0, 1], shape (count, 1, side, side).
    """
    generator = torch.Generator().manual_seed(seed)
    images = [_drawing(side, generator) for _ in range(count)]
    return torch.stack(images).unsqueeze(1).numpy()


def _drawing(side: int, generator: torch.Generator) -> torch.Tensor:
    path = _path(generator)
    low, high = path.amin(0), path.amax(0)
    reach = 19 / 28 * side  # of 28 pixels, digits take up 20
    path = (path - (low + high) / 2) * (reach / (high - low).max().clamp(min=1e-3))
    width = 1.0 + 0.6 * float(torch.rand(1, generator=generator))
    places = torch.arange(side, dtype=torch.float32) - (side - 1) / 2
    down = places[None, :, None] - path[:, 0, None, None]
    right = places[None, None, :] - path[:, 1, None, None]
    distance = (down.square() + right.square()).amin(0).sqrt()
    image = torch.sigmoid(2.5 * (width - distance))
    mass = image.sum()
    off = (float((image.sum(axis) * places).sum() / mass) for axis in (1, 0))
    return torch.roll(image, tuple(-round(shift) for shift in off), (0, 1))


def _path(generator: torch.Generator) -> torch.Tensor:
    """Return points along joined Bezier curves, shape (n, 2)."""
    t = torch.linspace(0, 1, _POINTS)
    weights = torch.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], dim=1)
    end = torch.rand(2, generator=generator) * 16 - 8
    parts = []
    for _ in range(int(torch.randint(1, 4, (1,), generator=generator))):
        corners = torch.rand(4, 2, generator=generator) * 20 - 10
        if float(torch.rand(1, generator=generator)) < 0.7:
            corners[0] = end
        end = corners[3]
        parts.append(weights @ corners)
    return torch.cat(parts)
