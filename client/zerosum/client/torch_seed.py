"""The only place where global generators are touched, and they are put back."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
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


@contextmanager
def all_seeded(seed: bytes | int) -> Iterator[None]:
    """Seed torch's, Python's and numpy's global generators inside the block and restore them.

    For code that is not ours and may draw from any of them, where coins have to be secret: a
    program that seeds Python's or numpy's, for its runs to be repeatable, has told them.

    Parameters
    ----------
    seed : bytes or int
        As for :func:`seeded`.
    """
    number = int.from_bytes(seed[:8], "little") if isinstance(seed, bytes) else seed % 2**64
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  # the task's, not ours
    words = np.array([number >> 32, number % 2**32], dtype=np.uint32)
    try:
        with seeded(number):
            _seed_widely(number)
            random.seed(number)
            np.random.seed(words)  # noqa: NPY002
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def _seed_widely(number: int) -> None:
    """Let all 64 bits of a seed decide: torch's Mersenne twister looks at 32, which can be tried.

    In its state the 624 words of the twister, eight bytes each, begin at byte 24.
    """
    words = np.random.SeedSequence(number).generate_state(624)
    state = torch.default_generator.get_state()
    state[24 : 24 + 8 * len(words)].view(torch.int64).copy_(
        torch.from_numpy(words.astype(np.int64))
    )
    torch.default_generator.set_state(state)


@contextmanager
def coins_apart() -> Iterator[None]:
    """Give the block coins of its own, drawn from torch's generator, which moves by one number.

    However many coins it draws, or if it seeds generators itself, all that is drawn after it is
    the same, and as secret as before.
    """
    with all_seeded(int(torch.randint(2**63 - 1, ()))):
        yield
