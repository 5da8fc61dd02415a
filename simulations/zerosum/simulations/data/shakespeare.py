"""A text of plays, each speaker a client: sequences of characters, and the ones that follow.

The alphabet and the length of a sequence are written down here, not read from the text. A speaker's
lines are cut into sequences that share no character, so that each is an example of its own; what is
left over at the end is dropped, and a speaker with less than one sequence is left out. The last
sequences of every speaker are the public test data: the text does not say where a play ends.
"""

import string
from functools import lru_cache
from pathlib import Path

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import DataError, reading, required_file
from zerosum.simulations.data.datasets import Collection, Records

LENGTH = 64
"""Characters that are predicted in a sequence, each from those before it."""

ALPHABET = "\n " + string.ascii_letters + "!&'(),-.:;?\""
"""The characters with a symbol of their own; all others share the last symbol."""

SYMBOLS = len(ALPHABET) + 1

_KIND = 'a text of plays: speeches parted by empty lines, each headed by a line "SPEAKER:"'


def plays(spec: DataSpec) -> Collection:
    """Return the sequences of all speakers who have one.

    Parameters
    ----------
    spec : DataSpec
        ``path``: the text, in UTF-8. ``test_fraction``: part of each speaker's sequences, to the
        nearest number, that is held out: the last ones.

    Returns
    -------
    Collection
        Inputs and targets int64, shape (n, :data:`LENGTH`), codes below :data:`SYMBOLS`: a target
        is the character after its input. Owners are the speakers, by first appearance.

    Raises
    ------
    DataError
        If the text cannot be had or is none of plays, or one side of the split would be empty.
    """
    path = required_file(spec, "shakespeare", _KIND)
    sequences = _sequences(path, path.stat().st_mtime_ns)
    test_counts = [round(spec.test_fraction * len(own)) for own in sequences]
    sides = (
        [own[: len(own) - last] for own, last in zip(sequences, test_counts, strict=True)],
        [own[len(own) - last :] for own, last in zip(sequences, test_counts, strict=True)],
    )
    train, test = (_records(side) for side in sides)
    if not len(train) or not len(test):
        raise DataError(
            f"data.test_fraction = {spec.test_fraction} of each speaker's sequences, "
            f"{sum(map(len, sequences))} in all, leaves no {'test' if len(train) else 'training'} "
            "sequences; choose another fraction"
        )
    return Collection(train, test, SYMBOLS)


def speeches(text: str) -> dict[str, str]:
    """Return what each speaker says, in order, by first appearance.

    Parameters
    ----------
    text : str
        The plays: blocks that blank lines part, each begun by a speaker's name and a colon.

    Returns
    -------
    dict of str to str
        Speaker to text.

    Raises
    ------
    DataError
        If the text does not begin with a speaker.
    """
    found: dict[str, list[str]] = {}
    speaker: str | None = None
    for block in text.replace("\r\n", "\n").split("\n\n"):
        head, _, rest = block.strip("\n").partition("\n")
        if head.endswith(":"):
            speaker, block = head[:-1], rest
        if not block.strip():
            continue
        if speaker is None:
            raise DataError(f"data.path: it begins with no speaker; give {_KIND}")
        found.setdefault(speaker, []).append(block.strip("\n") + "\n")
    return {name: "".join(parts) for name, parts in found.items()}


def encoded(text: str) -> np.ndarray:
    """Return the code of each character, int64."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    codes = np.full(128, SYMBOLS - 1, dtype=np.int64)
    codes[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))
    return np.where(points < 128, codes[np.minimum(points, 127)], SYMBOLS - 1)


@lru_cache(maxsize=2)
def _sequences(path: Path, modified: int) -> list[np.ndarray]:
    """Return the sequences of each speaker who has one: int64, shape (n, LENGTH + 1)."""
    with reading(path, _KIND):
        text = path.read_text(encoding="utf-8-sig")
    symbols = [encoded(speech) for speech in speeches(text).values()]
    size = LENGTH + 1
    whole = [speech[: len(speech) // size * size].reshape(-1, size) for speech in symbols]
    return [own for own in whole if len(own)]


def _records(side: list[np.ndarray]) -> Records:
    rows = np.concatenate([np.empty((0, LENGTH + 1), dtype=np.int64), *side])
    owners = np.repeat(np.arange(len(side)), [len(own) for own in side])
    inputs, targets = (np.ascontiguousarray(part) for part in (rows[:, :-1], rows[:, 1:]))
    return Records(inputs, targets, owners.astype(np.int64))
