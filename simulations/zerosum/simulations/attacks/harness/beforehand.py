"""Say before anything is played of which cells there will be no figure, and why."""

from collections.abc import Sequence

from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.results import ENOUGH, ENOUGH_SEEDS

_MOST_NAMED = 4


def said_beforehand(cells: Sequence[Cell], seeds: int) -> list[str]:
    """Return what a table of these cells and seeds will lack, a line each.

    Parameters
    ----------
    cells : sequence of Cell
        Of an attack with a method ``units_of_seed(setting)``, it is known how many units each seed
        has; of a setting with ``most_seeds``, for how many seeds there are records.
    seeds : int
        Of each figure.

    Returns
    -------
    list of str
        Empty where nothing is known to be missing.
    """
    lines = []
    if seeds < ENOUGH_SEEDS:
        lines.append(
            f"{seeds} seed{'s' * (seeds > 1)}: too few to say which noise stops an attack; give "
            f"--seeds {ENOUGH_SEEDS} or more"
        )
    few: dict[str, list[str]] = {}
    short: dict[tuple[str, int], list[str]] = {}
    for cell in cells:
        setting = cell.case.setting
        most = getattr(setting, "most_seeds", None)
        played = seeds if most is None else min(seeds, int(most))
        units = getattr(cell.attack, "units_of_seed", None)
        if units is not None and 0 < units(setting) * played < ENOUGH:
            few.setdefault(cell.attack.name, []).append(setting.name)
        if played < seeds:
            short.setdefault((setting.name, played), []).append(cell.attack.name)
    lines += [
        f"too few units for a figure (fewer than {ENOUGH}): {attack}: {_listed(settings)}"
        for attack, settings in few.items()
    ]
    lines += [
        f"{setting}: records for {played} of {seeds} seeds, which share none; of the others "
        f"nothing is played ({_listed(attacks)})"
        for (setting, played), attacks in short.items()
    ]
    return lines


def _listed(names: Sequence[str]) -> str:
    each = list(dict.fromkeys(names))
    more = f"; {len(each) - _MOST_NAMED} more" if len(each) > _MOST_NAMED else ""
    return "; ".join(each[:_MOST_NAMED]) + more
