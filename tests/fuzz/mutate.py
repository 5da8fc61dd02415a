"""Mutates valid bytes and gives them to every reader: ``python tests/fuzz/mutate.py --runs N``.

The same seed makes the same inputs. An input that breaks the rules is printed in hex.
"""

import argparse
import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence

from readers import Target, targets

INTERESTING = (0, 1, 2, 7, 8, 9, 1 << 16, 1 << 31, 1 << 32, 1 << 40, 1 << 62, (1 << 64) - 1)
# What a reader may take at once: some for what it computes, and a multiple of its input.
MOST = 1 << 20
TIMES = 64
MEASURED = 32


class Greedy(Exception):
    """A reader took more memory than its input can justify."""


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return bytes with a few changes."""
    out = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 5))):
        _change(rng, out, others)
    return bytes(out)


def _change(rng: random.Random, out: bytearray, others: Sequence[bytes]) -> None:
    at, length = rng.randrange(len(out) + 1), rng.choice((1, 2, 4, 8, 16, 32, 36, 64, 88))
    match rng.randrange(8):
        case 0 if at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        case 1 if at < len(out):
            out[at] = rng.randrange(256)
        case 2:
            del out[at : at + length]
        case 3:
            out[at:at] = rng.randbytes(length)
        case 4:
            out[at:at] = out[at : at + length]
        case 5:
            number = rng.choice(INTERESTING).to_bytes(8, rng.choice(("big", "little")))
            size = rng.choice((4, 8))
            out[at : at + size] = number[-size:]
        case 6:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            out[at : at + length] = other[start : start + length]
        case _:
            del out[at:]


def run(runs: int, seed: int, found: Sequence[Target] | None = None) -> Counter[str]:
    """Give so many inputs to the readers in turn, and return how many each got.

    Raises
    ------
    Exception
        Whatever a reader raised that it must not, with the input in a note.
    """
    every, rng = list(targets()) if found is None else found, random.Random(seed)
    counts: Counter[str] = Counter()
    for turn in range(runs):
        target = every[turn % len(every)]
        data = mutated(rng, rng.choice(target.seeds), target.seeds)
        if rng.random() < 0.8:
            data = target.repair(data)
        try:
            _read(target, data, measured=rng.randrange(MEASURED) == 0)
        except Exception as error:
            error.add_note(f"input {turn} of seed {seed} to {target.name}: {data.hex()}")
            raise
        counts[target.name] += 1
    return counts


def _read(target: Target, data: bytes, measured: bool) -> None:
    if not measured:
        target.read(data)
        return
    tracemalloc.start()
    try:
        target.read(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > MOST + TIMES * len(data):
        raise Greedy(f"{peak} bytes for an input of {len(data)}")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before = time.perf_counter()
    counts = run(arguments.runs, arguments.seed)
    seconds = time.perf_counter() - before
    print(f"{sum(counts.values())} inputs to {len(counts)} readers in {seconds:.0f} s: no finding")


if __name__ == "__main__":
    main()
