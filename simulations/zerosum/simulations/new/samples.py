"""Data for an app that was given none: small sets that ship with scikit-learn, written as files."""

from pathlib import Path

import numpy as np
import pandas as pd

from zerosum.server.config import ConfigError
from zerosum.simulations.new.kinds import Kind

_IMAGES = 500
"""Files are slow to write by the thousand."""

NAMES = {
    Kind.CSV: "sample.csv",
    Kind.PARQUET: "sample.parquet",
    Kind.NPZ: "sample.npz",
    Kind.IMAGES: "sample",
}


def write_sample(folder: Path, kind: Kind) -> Path:
    """Write sample records of a kind into a folder and return where they are.

    Tables hold 569 tumours by 30 measurements and their diagnosis, the others 8x8 digits.

    Parameters
    ----------
    folder : Path
        Absent until now.
    kind : Kind
        Of the sample.

    Returns
    -------
    Path
        The file, or the folder of images.

    Raises
    ------
    ConfigError
        If Parquet cannot be written here.
    """
    folder.mkdir()
    path = folder / NAMES[kind]
    if kind is Kind.CSV:
        _tumours().to_csv(path, index=False)
    elif kind is Kind.PARQUET:
        try:
            _tumours().to_parquet(path)
        except ImportError:
            raise ConfigError("--kind parquet: Parquet needs pyarrow: install it") from None
    elif kind is Kind.NPZ:
        images, labels = _digits()
        np.savez_compressed(path, images=images, labels=labels)
    else:
        _write_images(path)
    return path


def _tumours() -> pd.DataFrame:
    from sklearn.datasets import load_breast_cancer  # a second to import, and only needed here

    bunch = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in bunch.feature_names]
    frame = pd.DataFrame(bunch.data, columns=names)
    return frame.assign(diagnosis=bunch.target_names[bunch.target].astype(object))


def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return (bunch.images * (255 / 16)).round().astype(np.uint8), bunch.target.astype(np.int64)


def _write_images(path: Path) -> None:
    from PIL import Image

    images, labels = _digits()
    for name in np.unique(labels):
        (path / str(name)).mkdir(parents=True)
    pairs = zip(images[:_IMAGES], labels[:_IMAGES], strict=True)
    for number, (image, label) in enumerate(pairs):
        Image.fromarray(image).save(path / str(label) / f"{number:03d}.png")
