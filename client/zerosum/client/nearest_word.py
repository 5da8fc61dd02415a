"""Hint at the known word that a mistyped one is closest to."""

import difflib
from collections.abc import Iterable


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
        None where no word is close enough: a far-fetched hint misleads more than none.
    """
    return next(iter(difflib.get_close_matches(word, list(known), 1, likeness)), None)


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
