"""Transform each record by itself, all alike: such features cost no privacy."""

from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import torch

from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import DataError, reading
from zerosum.simulations.data.datasets import Collection, Records
from zerosum.simulations.data.scattering import scattering
from zerosum.simulations.data.synthetic_strokes import stroke_directions

VERSION = 2
"""Of the features that are kept on disk: raised when they change."""

PROJECTION_SEED = 0
"""Directions are the same in every experiment."""

_ROWS = 1000


def transformed(collection: Collection, spec: DataSpec) -> Collection:
    """Return records as ``data.transform`` and ``data.project`` say.

    Parameters
    ----------
    collection : Collection
        Training and public test records.
    spec : DataSpec
        ``transform`` and ``project``.

    Returns
    -------
    Collection
        The same records with other inputs.

    Raises
    ------
    DataError
        If the records are no images that scatter.
    """
    return replace(
        collection,
        train=_transformed(collection.train, spec),
        test=_transformed(collection.test, spec),
    )


class _Same:
    """An array that equals itself alone: the key of a cache."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.array is other.array

    def __hash__(self) -> int:
        return id(self.array)


def _transformed(records: Records, spec: DataSpec) -> Records:
    inputs = records.inputs
    if spec.transform == "scattering":
        try:
            inputs = _scattered(_Same(inputs), spec.cache)
        except ValueError as error:
            raise DataError(f'data.transform = "scattering": {error}') from None
    elif spec.transform == "unit":
        flat = inputs.reshape(len(inputs), -1)
        norms = np.linalg.norm(flat, axis=1, keepdims=True)
        inputs = flat / np.maximum(norms, np.float32(1e-12))
    if spec.project is not None:
        flat = inputs.reshape(len(inputs), -1)
        inputs = projected(flat, *_directions(spec, flat.shape[1], records.inputs.shape))
    return replace(records, inputs=inputs)


def projected(features: np.ndarray, mean: torch.Tensor, directions: torch.Tensor) -> np.ndarray:
    """Return features (n, d) along directions (d, k), scaled to norm 1: float32, (n, k).

    Parameters
    ----------
    features : numpy.ndarray
        Shape (n, d).
    mean : torch.Tensor
        Subtracted first, shape (d,).
    directions : torch.Tensor
        Shape (d, k).

    Returns
    -------
    numpy.ndarray
        float32, shape (n, k), each row of norm 1.
    """
    coordinates = np.empty((len(features), directions.shape[1]), dtype=np.float32)
    for start in range(0, len(features), _ROWS):
        rows = (torch.from_numpy(features[start : start + _ROWS]).float() - mean) @ directions
        coordinates[start : start + _ROWS] = torch.nn.functional.normalize(rows).numpy()
    return coordinates


def _directions(
    spec: DataSpec, length: int, shape: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    width = spec.project or length
    if spec.directions == "random":
        generator = torch.Generator().manual_seed(PROJECTION_SEED)
        return torch.zeros(length), torch.randn(length, width, generator=generator)
    if spec.transform != "scattering" or len(set(shape[2:])) != 1:
        raise DataError(
            'data.directions = "strokes" are those of square images\' scattering features: set '
            'data.transform = "scattering", or data.directions = "random"'
        )
    mean, directions = stroke_directions(shape[2])
    if width > directions.shape[1]:
        raise DataError(f"data.project = {width}: strokes have {directions.shape[1]} directions")
    return mean, directions[:, :width]


@lru_cache(maxsize=2)
def _scattered(images: _Same, cache: str | None) -> np.ndarray:
    """Return features, kept for the next run of this process: they take minutes."""
    if cache is None:
        return scattering(images.array)
    name = f"scattering-{VERSION}-{sha256(images.array.tobytes()).hexdigest()[:32]}.npy"
    path = Path(cache).expanduser() / name
    if path.is_file():
        with reading(path, "features that were kept; delete the file to compute them anew"):
            cached: np.ndarray = np.load(path, allow_pickle=False)
            return cached
    features = scattering(images.array)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            np.save(file, features)
        Path(file.name).replace(path)
    except OSError as error:
        raise DataError(f'data.cache = "{cache}": nothing can be kept there: {error}') from None
    return features
