"""Store reference models in a folder: one file each, and a manifest of their digests."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

MANIFEST = "manifest.json"


class ReferenceModelError(RuntimeError):
    """Raised if a reference model is missing or differs from what was written."""


@dataclass(frozen=True)
class References:
    """Hold models trained as the target was, and which candidates each was trained on.

    Attributes
    ----------
    vectors : ndarray
        float32, shape (r, d).
    holds : ndarray
        bool, shape (r, n): whether reference r was trained on candidate n.
    cpu_seconds : float
        CPU time of training all of them.
    """

    vectors: np.ndarray
    holds: np.ndarray
    cpu_seconds: float


def write_references(folder: Path, models: References, trained_as: str) -> None:
    """Write one file a model, and the manifest last: a folder without one is incomplete.

    Parameters
    ----------
    folder : Path
        New, or empty.
    models : References
    trained_as : str
        Protection and procedure, which :func:`read_references` compares.
    """
    folder.mkdir(parents=True, exist_ok=True)
    digests = {}
    for number, (vector, holds) in enumerate(zip(models.vectors, models.holds, strict=True)):
        data = save({"vector": vector, "holds": holds})
        name = f"reference-{number:04d}.safetensors"
        (folder / name).write_bytes(data)
        digests[name] = hashlib.sha256(data).hexdigest()
    manifest = {"trained_as": trained_as, "cpu_seconds": models.cpu_seconds, "files": digests}
    (folder / MANIFEST).write_text(
        json.dumps(manifest, indent=2) + "\n", encoding="utf-8", newline="\n"
    )


def read_references(folder: Path, trained_as: str) -> References:
    """Read all models that the manifest names.

    A missing one is an error: with fewer reference models the attack would be another one.

    Parameters
    ----------
    folder : Path
        As :func:`write_references` left it.
    trained_as : str
        Protection and procedure of the target.

    Returns
    -------
    models : References

    Raises
    ------
    ReferenceModelError
        If a file is missing or changed, or if the models were trained otherwise.
    """
    manifest = _manifest(folder, trained_as)
    files: dict[str, str] = manifest["files"]
    parts = [load(_checked(folder / name, digest, len(files))) for name, digest in files.items()]
    vectors, holds = (_stacked(parts, name) for name in ("vector", "holds"))
    return References(vectors, holds, float(manifest["cpu_seconds"]))


def _manifest(folder: Path, trained_as: str) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReferenceModelError(f"{path} is missing: {_CURE}") from None
    if manifest["trained_as"] != trained_as:
        raise ReferenceModelError(
            f"{folder} holds reference models trained as {manifest['trained_as']}, and the target "
            f"was trained as {trained_as}: {_CURE}"
        )
    return manifest


def _checked(path: Path, digest: str, count: int) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ReferenceModelError(
            f"{path} is missing, one of {count} reference models: {_CURE}"
        ) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise ReferenceModelError(f"{path} was changed after it was written: {_CURE}")
    return data


def _stacked(parts: Sequence[dict[str, np.ndarray]], name: str) -> np.ndarray:
    return np.stack([part[name] for part in parts])


_CURE = "remove the folder and train all reference models anew"
