"""Check and describe the device on which a run computes: the CPU, or a GPU of this machine."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from zerosum.client.spec import DEVICE


def here() -> list[str]:
    """Return the devices of this machine: the CPU, and each GPU by its number."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ["cpu", *(f"cuda:{number}" for number in range(count))]


def missing(device: str) -> str | None:
    """Return why a device cannot be used here; None where it can.

    Parameters
    ----------
    device : str
        ``"cpu"``, ``"cuda"`` (the first GPU) or ``"cuda:N"``.
    """
    if not DEVICE.fullmatch(device):
        return 'a device is "cpu", "cuda" or "cuda:N"'
    if device == "cpu":  # without a look at GPUs, after which no process may fork
        return None
    available = here()
    if ("cuda:0" if device == "cuda" else device) in available:
        return None
    if len(available) > 1:
        return f"no such GPU; this machine has {', '.join(available)}"
    if torch.version.cuda or torch.version.hip:
        return "torch finds no GPU on this machine"
    return f"torch {torch.__version__} was built without CUDA"


def described(device: str) -> str:
    """Return a device as a report names it: with the name of the card."""
    if torch.device(device).type != "cuda":
        return device
    return f"{device} ({torch.cuda.get_device_name(device)})"


@contextmanager
def repeatable(device: str) -> Iterator[None]:
    """Let convolutions on a GPU be the same each time, and of float32 as on a CPU.

    Left to itself, cuDNN rounds their inputs to TF32, which has 10 bits, and may choose another
    algorithm each time.
    """
    if torch.device(device).type != "cuda":
        yield
        return
    with torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    ):
        yield
