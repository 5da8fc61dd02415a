"""Choose cells by words of their protection and setting: ``--only``."""

import re
from collections.abc import Sequence

from zerosum.client.nearest_word import did_you_mean
from zerosum.server.config import ConfigError
from zerosum.simulations.attacks.harness.play import Cell

_MOST_LISTED = 40
"""Protections and settings that a message names."""


def only_with(cells: Sequence[Cell], filters: Sequence[str]) -> list[Cell]:
    """Return the cells that have all words of at least one filter; all cells without any.

    Parameters
    ----------
    cells : sequence of Cell
    filters : sequence of str
        Each of one word or several, as "masked" or "noise 0.1": whole words, in any order and
        case, of the protection's or the setting's name.

    Returns
    -------
    list of Cell
        In their order.

    Raises
    ------
    ConfigError
        For a filter without words, or one that no cell has all words of.
    """
    if not filters:
        return list(cells)
    words = [_words(f"{c.case.protection.name} {c.case.setting.name}") for c in cells]
    chosen: set[int] = set()
    for text in filters:
        wanted = _words(text)
        hit = {n for n, of in enumerate(words) if wanted and wanted <= of}
        if not hit:
            raise ConfigError(f"--only {text!r}: {_why(wanted, set().union(*words), cells)}")
        chosen |= hit
    return [cells[number] for number in sorted(chosen)]


def _words(text: str) -> set[str]:
    """Return the words of a text: 0.1 and 1e-5 are one each, and never a part of another."""
    found = re.findall(r"[\w.%-]+", text.lower())
    return {word.strip(".-") for word in found} - {""}


def _why(wanted: set[str], known: set[str], cells: Sequence[Cell]) -> str:
    unknown = sorted(wanted - known)
    names = dict.fromkeys(name for c in cells for name in (c.case.protection.name,))
    names |= dict.fromkeys(c.case.setting.name for c in cells)
    listed = [*names][:_MOST_LISTED]
    more = f", and {len(names) - len(listed)} more" if len(names) > len(listed) else ""
    there = f"write words of: {'; '.join(listed)}{more}"
    if not wanted:
        return f"it has no words; {there}"
    if not unknown:
        return f"no cell has all of these words; {there}"
    near = did_you_mean(unknown[0], sorted(known))
    return f"no protection and no setting has {unknown[0]!r}{near}; {there}"
