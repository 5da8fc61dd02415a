"""Scattering features of small images: fixed wavelets, their moduli, averages. Nothing is learnt.

Mallat, "Group invariant scattering" (2012); Bruna and Mallat, "Invariant scattering convolution
networks" (2013); Oyallon et al. (2019) for the Morlet filters' parameters, those of Kymatio. Two
scales and eight angles: 81 channels at a quarter of the resolution, as Tramer and Boneh,
"Differentially private learning needs better features" (2021), use them.
"""

import math
from functools import cache

import numpy as np
import torch

SCALES, ANGLES = 2, 8
CHANNELS = 1 + SCALES * ANGLES + ANGLES**2
"""Averages of the image, of first moduli, of second moduli (from the finer to the coarser)."""
GROUPS = 27
"""Channels are normalised in groups of three."""
FEATURES = CHANNELS + SCALES + ANGLES
"""Channels after :func:`_centred`."""
COMMON = 0.35
"""Weight of what the eight angles have in common, which differs little between images."""

_AVERAGE = 2**SCALES
_BATCH = 50


def scattering(images: np.ndarray) -> np.ndarray:
    """Return normalised scattering features.

    Each image is described on its own, so features are as private as images, and no more.

    Parameters
    ----------
    images : numpy.ndarray
        float32, shape (n, 1, h, w), h and w multiples of 4 and at least 8.

    Returns
    -------
    numpy.ndarray
        float16, shape (n, 91 h w / 16). Groups of three channels have mean 0 and deviation 1; then
        each eight angles' mean is taken off them and stands beside them, smaller.

    Raises
    ------
    ValueError
        If the shape is another.
    """
    if images.ndim != 4 or images.shape[1] != 1 or any(s % 4 or s < 8 for s in images.shape[2:]):
        raise ValueError(f"scattering needs images of (1, 4h, 4w) pixels, not {images.shape[1:]}")
    places = images.shape[2] * images.shape[3] // _AVERAGE**2
    features = np.empty((len(images), FEATURES * places), dtype=np.float16)
    for start in range(0, len(images), _BATCH):
        part = torch.from_numpy(images[start : start + _BATCH, 0])
        channels = _centred(_normalised(_scattered(part)))
        features[start : start + _BATCH] = channels.flatten(1).half().numpy()
    return features


def _normalised(channels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.group_norm(channels, GROUPS)


def _centred(channels: torch.Tensor) -> torch.Tensor:
    """Take the mean off each eight angles, (n, 81, h, w) to (n, 91, h, w).

    Gradients are clipped: what nearly all images share would take up most of their norm.
    """
    count, _, *size = channels.shape
    average, angles = channels[:, :1], channels[:, 1:].reshape(count, -1, ANGLES, *size)
    common = angles.mean(2)
    apart = (angles - common.unsqueeze(2)).flatten(1, 2)
    return torch.cat([apart, COMMON * common, COMMON * average], dim=1)


def _scattered(images: torch.Tensor) -> torch.Tensor:
    """Return averaged moduli of images (n, h, w): shape (n, 81, h / 4, w / 4)."""
    margin = _AVERAGE // 2
    around = (margin, margin, margin, margin)
    padded = torch.nn.functional.pad(images.unsqueeze(1), around, mode="reflect").squeeze(1)
    height, width = padded.shape[1:]
    fine, coarse = _morlets(height, width)
    spectrum = torch.fft.fft2(padded).unsqueeze(1)
    first = torch.fft.ifft2(spectrum * fine).abs()
    second = torch.fft.ifft2(_halved(spectrum * coarse)).abs()
    moduli = torch.fft.fft2(first).unsqueeze(2) * coarse
    third = torch.fft.ifft2(_halved(moduli)).abs().flatten(1, 2)
    whole = torch.cat([padded.unsqueeze(1), first], dim=1)
    halves = torch.cat([second, third], dim=1)
    return torch.cat([_averaged(whole, 1), _averaged(halves, 2)], dim=1)


def _halved(spectrum: torch.Tensor) -> torch.Tensor:
    """Return the spectrum of every second row and column: folded, not cut."""
    *lead, height, width = spectrum.shape
    folded: torch.Tensor = spectrum.view(*lead, 2, height // 2, 2, width // 2).mean((-4, -2))
    return folded


def _averaged(maps: torch.Tensor, step: int) -> torch.Tensor:
    """Return Gaussian averages around every fourth pixel of maps (n, c, h / step, w / step)."""
    height, width = maps.shape[2] * step, maps.shape[3] * step
    rows, columns = _averages(height, step), _averages(width, step)
    return rows @ maps @ columns.T


@cache
def _averages(length: int, step: int) -> torch.Tensor:
    """Return a matrix of Gaussian weights, shape (length / 4 - 1, length / step)."""
    deviation = 0.8 * 2 ** (SCALES - 1)
    centres = torch.arange(_AVERAGE, length, _AVERAGE)[:, None] - _AVERAGE // 2 + 1.5
    places = torch.arange(0, length, step)[None, :]
    weights = torch.exp(-((places - centres) ** 2) / (2 * deviation**2))
    return weights / weights.sum(1, keepdim=True)


@cache
def _morlets(height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the filters' spectra at both scales, each real, shape (8, height, width)."""
    scales = []
    for scale in range(SCALES):
        filters = [
            _morlet(
                height, width, 0.8 * 2**scale, math.pi * angle / ANGLES, 0.75 * math.pi / 2**scale
            )
            for angle in range(ANGLES)
        ]
        scales.append(torch.stack(filters))
    return scales[0], scales[1]


def _morlet(
    height: int, width: int, deviation: float, angle: float, frequency: float
) -> torch.Tensor:
    """Return the spectrum of a Morlet wavelet: a Gabor function less what gives it a mean."""
    wave = _gabor(height, width, deviation, angle, frequency)
    envelope = _gabor(height, width, deviation, angle, 0.0)
    spectrum: torch.Tensor = torch.fft.fft2(wave - envelope * (wave.sum() / envelope.sum()))
    return spectrum.real.float()


def _gabor(
    height: int, width: int, deviation: float, angle: float, frequency: float
) -> torch.Tensor:
    """Return a wave under an elliptic Gaussian, made periodic, complex128 (height, width)."""
    slant = 4.0 / ANGLES
    cos, sin = math.cos(angle), math.sin(angle)
    rotation = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
    shape = torch.diag(torch.tensor([1.0, slant**2], dtype=torch.float64))
    curvature = rotation @ shape @ rotation.T / (2 * deviation**2)
    total = torch.zeros(height, width, dtype=torch.complex128)
    for down in range(-2, 3):
        for right in range(-2, 3):
            y = torch.arange(height, dtype=torch.float64)[:, None] + down * height
            x = torch.arange(width, dtype=torch.float64)[None, :] + right * width
            fall = curvature[0, 0] * y * y + 2 * curvature[0, 1] * y * x + curvature[1, 1] * x * x
            phase = frequency * (y * cos + x * sin)
            total += torch.exp(-fall + 1j * phase)
    return total / (2 * math.pi * deviation**2 / slant)
