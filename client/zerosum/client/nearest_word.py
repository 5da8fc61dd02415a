"""Hint at the known word that a mistyped one is closest to."""

import difflib
from collections.abc import Iterable
from itertools import islice

LONGEST, MOST = 100, 1000
"""Characters of a word, and known words, beyond which there is no hint: a search takes as long as
the product of all lengths, and a request can name both sides of it."""


def nearest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """Find the known word closest to a mistyped one.

    Parameters
    ----------
    word : str
        What was typed.
    known : iterable of str
        What could have been meant.
    likeness : float
        Least ratio of matching characters, in [0, 1], at which a word is a plausible slip.

    Returns
    -------
    str or None
        None where no word is close enough, of the first thousand that are of at most 100
        characters: a far-fetched hint misleads more than none.
    """
    some = [each for each in islice(known, MOST) if len(each) <= LONGEST]
    return next(iter(difflib.get_close_matches(word[:LONGEST], some, 1, likeness)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error message, ``; did you mean "x"?``, or nothing.

    Parameters
    ----------
    word : str
        What was typed.
    known : iterable of str
        What could have been meant.

    Returns
    -------
    str
        To append to a message, which it ends.
    """
    close = nearest(word, known)
    return "" if close is None else f'; did you mean "{close}"?'
