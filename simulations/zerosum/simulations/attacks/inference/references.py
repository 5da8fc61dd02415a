"""Reference models in a folder: files, and a manifest that says which there have to be."""

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
    """A reference model is not there, or is not what was written."""


@dataclass(frozen=True)
class References:
    """Models trained as the target was, and on what.

    Attributes
    ----------
    vectors : ndarray
        float32, shape (r, d).
    holds : ndarray
        bool, shape (r, n): whether reference r was trained on candidate n.
    cpu_seconds : float
        That training all of them took.
    """

    vectors: np.ndarray
    holds: np.ndarray
    cpu_seconds: float


def write_references(folder: Path, made: References, trained_as: str) -> None:
    """Write one file a model, and the manifest last.

    Parameters
    ----------
    folder : Path
        New, or empty.
    made : References
    trained_as : str
        Protection and procedure, as :func:`read_references` will be asked for them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    digests = {}
    for number, (vector, holds) in enumerate(zip(made.vectors, made.holds, strict=True)):
        data = save({"vector": vector, "holds": holds})
        name = f"reference-{number:04d}.safetensors"
        (folder / name).write_bytes(data)
        digests[name] = hashlib.sha256(data).hexdigest()
    manifest = {"trained_as": trained_as, "cpu_seconds": made.cpu_seconds, "files": digests}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def read_references(folder: Path, trained_as: str) -> References:
    """Read all models that the manifest names: fewer would be another attack, so none is left out.

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
        raise ReferenceModelError(f"{path} was changed since it was written: {_CURE}")
    return data


def _stacked(parts: Sequence[dict[str, np.ndarray]], name: str) -> np.ndarray:
    return np.stack([part[name] for part in parts])


_CURE = "remove the folder and train all of them anew"
