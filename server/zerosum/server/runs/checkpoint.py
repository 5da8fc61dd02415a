"""Crash-safe checkpoints: one file, replaced whole, from which a run continues bit for bit."""

import json
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from zerosum.client.files.durable_append import FLUSHED, Flush
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import CHECKPOINT, RunFolder

STATE = f"{CHECKPOINT}/state.safetensors"
_MODEL = "model"
_COMPONENTS = "components"
_OPTIMIZER = "optimizer."


@dataclass(frozen=True)
class Checkpoint:
    """State after a round.

    Parameters
    ----------
    round : int
        Rounds that are over.
    model : torch.Tensor
        float32, shape (d,): the flat global model.
    optimizer_tensors, optimizer_scalars : dict
        The server optimizer's state.
    order_seed : bytes
        Seed of the order of ``once`` sampling.
    configuration : str
        Digest of everything in the configuration that may not change.
    files : dict
        Size and SHA-256 of the ledger and the metrics as they were.
    clip : float, optional
        The clip of the next round, where it adapts.
    components : torch.Tensor, optional
        float32, flat: the principal components that inputs are projected on, where they are.
    """

    round: int
    model: torch.Tensor
    optimizer_tensors: dict[str, torch.Tensor]
    optimizer_scalars: dict[str, float]
    order_seed: bytes
    configuration: str
    files: dict[str, tuple[int, str]]
    clip: float | None = None
    components: torch.Tensor | None = None


def save_checkpoint(folder: RunFolder, checkpoint: Checkpoint, after: Flush = FLUSHED) -> None:
    """Replace the run's checkpoint.

    Parameters
    ----------
    folder : RunFolder
        Where it is written, whole or not at all.
    checkpoint : Checkpoint
        State after a round.
    after : Flush
        Of a file that it names, which is on the disk before it.
    """
    tensors = {_MODEL: checkpoint.model}
    if checkpoint.components is not None:
        tensors[_COMPONENTS] = checkpoint.components
    for name, tensor in checkpoint.optimizer_tensors.items():
        tensors[_OPTIMIZER + name] = tensor
    facts = {
        "round": checkpoint.round,
        "optimizer_scalars": checkpoint.optimizer_scalars,
        "order_seed": checkpoint.order_seed.hex(),
        "configuration": checkpoint.configuration,
        "files": checkpoint.files,
        "clip": checkpoint.clip,
    }
    folder.write(STATE, save(tensors, metadata={"zerosum": json.dumps(facts)}), after)


def load_checkpoint(folder: RunFolder) -> Checkpoint | None:
    """Read the run's checkpoint; None where the run ended before its first.

    Parameters
    ----------
    folder : RunFolder

    Returns
    -------
    Checkpoint or None
        State after the last round that was over.

    Raises
    ------
    ConfigError
        If the file is damaged.
    """
    path = folder.path / STATE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        tensors = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        facts = json.loads(header["__metadata__"]["zerosum"])
        return Checkpoint(
            round=facts["round"],
            model=tensors.pop(_MODEL),
            components=tensors.pop(_COMPONENTS, None),
            optimizer_tensors={k.removeprefix(_OPTIMIZER): v for k, v in tensors.items()},
            optimizer_scalars=facts["optimizer_scalars"],
            order_seed=bytes.fromhex(facts["order_seed"]),
            configuration=facts["configuration"],
            files={name: (size, digest) for name, (size, digest) in facts["files"].items()},
            clip=facts["clip"],
        )
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"--resume {folder.path}: {path.name} is damaged ({error}); start the run anew"
        ) from None
