"""Seed the global random generators for a while, and put them back: nothing else touches them."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator


@contextmanager
def seeded(seed: bytes | int) -> Iterator[None]:
    """Seed torch's, Python's and numpy's global generators inside the block and restore them.

    For code that can be given no generator of its own: parameter initialisation, dropout, and
    whatever a task draws in its data and augmentation. The generators belong to the process:
    threads must not enter at the same time.

    Parameters
    ----------
    seed : bytes or int
        The first 8 bytes, or the number modulo 2^64, become the seed.
    """
    number, cuda = _number(seed), _gpus()
    python = random.getstate()
    theirs, ours = get_bit_generator(), _spare()
    # Numpy's Gaussian in hand lies outside the bit generator, and goes when that is exchanged. To
    # read it takes 24 us, which a client of few records would notice: it is put back where a block
    # ends in which no other is, and inside one it is lost, whoever runs it and wherever.
    numpy_state = None if _inside() else np.random.get_state(legacy=False)  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=cuda):
            set_bit_generator(ours)
            _seed(number, cuda)
            yield
    finally:
        random.setstate(python)
        set_bit_generator(theirs)
        if numpy_state is not None and numpy_state["has_gauss"]:
            np.random.set_state(numpy_state)  # noqa: NPY002


@contextmanager
def many_seeded() -> Iterator[None]:
    """Restore the generators once, after all blocks of :func:`seeded_anew` inside this one."""
    with seeded(0):
        _MANY.append(get_bit_generator())
        try:
            yield
        finally:
            _MANY.pop()


@contextmanager
def seeded_anew(seed: bytes | int) -> Iterator[None]:
    """Seed all generators as :func:`seeded` does; in :func:`many_seeded` that alone restores them.

    For one client after another: what is drawn between them means nothing, and to restore the
    generators of each would take a third again of the time of a client of few records.
    """
    if _MANY and get_bit_generator() is _MANY[-1]:
        _seed(_number(seed), _gpus())
        yield
    else:
        with seeded(seed):
            yield


_MANY: list[Any] = []
"""Numpy's bit generators of the blocks of many that go on."""


def _number(seed: bytes | int) -> int:
    return int.from_bytes(seed[:8], "little") if isinstance(seed, bytes) else seed % 2**64


def _gpus() -> list[int]:
    # Seeding through torch.manual_seed would also queue a seed for a GPU not yet in use.
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return list(range(torch.cuda.device_count())) if in_use else []


def _seed(number: int, cuda: list[int]) -> None:
    torch.default_generator.manual_seed(number)
    if cuda:
        torch.cuda.manual_seed_all(number)
    random.seed(number)
    np.random.seed(number % 2**32)  # noqa: NPY002  # the task's, not ours; five times as quick


_SPARES: list[Any] = []
"""Bit generators that numpy draws from in nested blocks, the outermost's first.

To exchange one costs 0.2 us, and to save and load the state of one 50 us."""


def _spare() -> Any:
    """Return a bit generator that no block around this one uses."""
    depth = _SPARES.index(get_bit_generator()) + 1 if _inside() else 0
    if depth == len(_SPARES):
        _SPARES.append(np.random.MT19937())
    return _SPARES[depth]


def _inside() -> bool:
    """Tell whether a block seeded numpy's generator."""
    return get_bit_generator() in _SPARES


@contextmanager
def all_seeded(seed: bytes | int) -> Iterator[None]:
    """Do as :func:`seeded`, with all 64 bits of the seed in every generator on the CPU.

    For code that is not ours where coins have to be secret: a program that seeds Python's or
    numpy's, for its runs to be repeatable, has told them.

    Parameters
    ----------
    seed : bytes or int
        As for :func:`seeded`.
    """
    number = _number(seed)
    with seeded(number):
        _seed_widely(number)
        yield


def _seed_widely(number: int) -> None:
    """Let all 64 bits of a seed decide in numpy's twister and torch's: 32 can be tried.

    In its state the 624 words of the twister, eight bytes each, begin at byte 24.
    """
    np.random.seed((number >> 32, number % 2**32))  # noqa: NPY002
    key = np.random.SeedSequence(number).generate_state(624)
    state = torch.default_generator.get_state()
    state[24 : 24 + 8 * len(key)].view(torch.int64).copy_(torch.from_numpy(key.astype(np.int64)))
    torch.default_generator.set_state(state)


@contextmanager
def coins_apart() -> Iterator[None]:
    """Give the block coins of its own, drawn from torch's generator, which moves by one number.

    However many coins it draws, or if it seeds generators itself, all that is drawn after it is
    the same, and as secret as before.
    """
    with all_seeded(int(torch.randint(2**63 - 1, ()))):
        yield
