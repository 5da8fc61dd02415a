"""The only place where torch's global generator is touched, and it is put back."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: bytes | int) -> Iterator[None]:
    """Seed torch's generators inside the block and restore their state after it.

    For torch code that can be given no generator of its own: parameter initialisation and
    dropout. The generators belong to the process: threads must not enter at the same time.

    Parameters
    ----------
    seed : bytes or int
        The first 8 bytes, or the number modulo 2^64, become the seed.
    """
    number = int.from_bytes(seed[:8], "little") if isinstance(seed, bytes) else seed % 2**64
    # Seeding through torch.manual_seed would also queue a seed for a GPU not yet in use.
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda = list(range(torch.cuda.device_count())) if in_use else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(number)
        if cuda:
            torch.cuda.manual_seed_all(number)
        yield
