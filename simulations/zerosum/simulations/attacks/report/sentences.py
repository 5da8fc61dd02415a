"""Say in one sentence what an attack learns, and which protections stop it, from its rows."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from zerosum.simulations.attacks.harness.interface import OF_THE_RUN
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.results import Row
from zerosum.simulations.attacks.report.protections import Judged, judged
from zerosum.simulations.attacks.report.table import (
    baseline_text,
    epsilon_text,
    figure_text,
    interval_text,
    seeds_text,
    threats_text,
    value_text,
)

_MOST_NAMED = 6
"""Protections of one clause; the matrix has all."""

_RUNS = "the run's "

DECIDED = ("above baseline", "at baseline", "not applicable")
"""Verdicts of a cell that says something."""


@dataclass(frozen=True)
class Finding:
    """What the rows of one attack say.

    Attributes
    ----------
    attack, threat : str
        Its name, and whose place the attacker has.
    text : str
        One sentence, without the name.
    """

    attack: str
    threat: str
    text: str


def findings(shown: Sequence[Row], cells: Sequence[Cell]) -> list[Finding]:
    """Return a sentence for each attack.

    Parameters
    ----------
    shown : sequence of Row
        The strongest of each cell, pooled.
    cells : sequence of Cell

    Returns
    -------
    list of Finding
    """
    return [
        Finding(attack, threats_text([each.row for each in of]), sentence(of))
        for attack, of in judged(shown, cells).items()
    ]


def sentence(of: Sequence[Judged]) -> str:
    """Return what one attack shows, which protections stop it, and the weakest noise that does.

    A protection counts as stopping an attack only where the attack shows something without it. A
    control, where nothing can be learnt, is stopped by nothing.

    Parameters
    ----------
    of : sequence of Judged
        The attack's cells, in the order of the matrix.

    Returns
    -------
    str
        Ends with a full stop.
    """
    released = [each for each in of if each.released]
    of = [each for each in of if not each.released]
    controls, of = [e for e in of if e.control], [e for e in of if not e.control]
    above = [each for each in of if each.verdict == "above baseline"]
    plain = [each for each in of if each.kind == "none"]
    idle = any(each.verdict == "at baseline" for each in plain)
    # Seen above its baseline under a protection alone, it is stopped by none: luck, or a new leak.
    works = any(each.kind == "none" for each in above) or (bool(above) and not idle)
    clauses = [*_released(released), *_unprotected(of, above)]
    clauses += [*(_protected(of) if works else ()), *_controls(controls)]
    clauses += [*_undecided(of, works), *_unknown([*of, *controls, *released])]
    text = "; ".join(clauses)
    return text[:1].upper() + text[1:] + "."


def _released(of: Sequence[Judged]) -> Iterator[str]:
    """Yield what is told by a run's released model, and by one that was never trained."""
    for each in sorted(of, key=lambda each: each.control):
        known = value_text(each.row)
        figure = f"{known} {interval_text(each.row)}" if known else figure_text(each.row)
        if each.control:
            doubt = ", above its baseline too: doubt all of these"
            yield f"the {each.released} {figure}{doubt if each.verdict == 'above baseline' else ''}"
            continue
        beats = "beats" if each.verdict == "above baseline" else "does not beat"
        seeds = f" in {seeds_text(each.row)}" if each.row.few_seeds else ""
        guess = f", a guess {baseline_text(each.row)}, which it {beats}{seeds}" if known else ""
        yield f"the {each.released}{_epsilon(each)}: {each.row.metric} {figure}{guess}"


def _unprotected(of: Sequence[Judged], above: Sequence[Judged]) -> Iterator[str]:
    plain = [each for each in of if each.kind == "none"]
    if open_ones := [each for each in above if each.kind == "none"]:
        best = max(open_ones, key=lambda each: each.share)
        yield f"without protection: {_figure(best)}, baseline {baseline_text(best.row)}"
        return
    here = next((each for each in plain if each.verdict == "at baseline"), None)
    if here is not None:
        shows = "it shows nothing" if above else "it shows nothing even"
        seen = f"in {seeds_text(here.row)} {shows}" if here.undecided else shows
        yield f"{seen} without protection: {_figure(here)}, as its baseline"
    if above:
        worst = max(above, key=lambda each: each.share)
        figures = f"{_figure(worst)}, baseline {baseline_text(worst.row)}"
        yield f"at worst, under {_where(worst)}: {figures}"
    elif here is None and any(e.stopped or e.verdict == "not applicable" for e in of):
        yield "it shows nothing in any cell that was played"


def _protected(of: Sequence[Judged]) -> Iterator[str]:
    """Yield what stops an attack and what does not: protections by name, noise by its weakest."""
    others = [each for each in of if each.kind not in ("none", "local", "sum")]
    failing = _named(others, lambda e: e.verdict == "above baseline" and not e.beside)
    starving = _named(others, lambda e: e.verdict == "not applicable")
    stopping = _named(others, lambda e: e.stopped)
    if failing:
        yield f"{_listed(failing)} {_do(failing)} not stop it"
    if stopping:
        alone = "stop it" if _are_several(stopping) else "stops it"
        yield f"{_listed(stopping)} {_do(stopping) if failing else alone}"
    if starving:
        keep = "keep" if _are_several(starving) else "keeps"
        yield f"{_listed(starving)} {keep} from it what it needs"
    beside = [each for each in others if each.beside]
    for name in dict.fromkeys(each.row.protection for each in beside):
        left = max((e for e in beside if e.row.protection == name), key=lambda each: each.share)
        yield f"under {_where(left)}: still {_figure(left)}"
    series = _by_series([each for each in of if each.kind in ("local", "sum")])
    reached = [_weakest(members) for members in series]
    for found in _loosest([each for each in reached if each is not None]):
        before = "that does" if failing or stopping else "that stops it"
        noise = protection_in_words(found.row.protection)
        yield f"the weakest noise {before} is {noise}{_epsilon(found)}"
    for members, weakest in zip(series, reached, strict=True):
        most = _strongest_above(members) if weakest is None else None
        if most is not None:
            yield f"under {_where(most)}{_epsilon(most)}: still {_figure(most)}"


def _undecided(of: Sequence[Judged], works: bool) -> Iterator[str]:
    """Yield that too little was played to say what stops an attack, where more might tell.

    A noise that stops it, and has been named, needs no more.
    """
    noised = [each for each in of if each.kind in ("local", "sum")]
    others = [each for each in of if each.kind != "none" and each not in noised]
    if any(_weakest(members) for members in _by_series(noised)) if works else _is_idle(of):
        return
    if any(each.undecided for each in noised):
        what = "seeds" if any(each.row.few_seeds for each in noised) else "units"
        yield f"too few {what} to say which noise stops it"
    elif any(each.row.few_seeds for each in others):
        yield "too few seeds to say what stops it"


def _is_idle(of: Sequence[Judged]) -> bool:
    """Return whether the attack shows nothing without protection: nothing has to stop it."""
    return any(each.kind == "none" and each.stopped for each in of)


def _by_series(of: Sequence[Judged]) -> list[list[Judged]]:
    """Group cells whose protections differ in their noise alone."""
    series: dict[tuple[object, ...], list[Judged]] = {}
    for each in of:
        series.setdefault(each.series, []).append(each)
    return list(series.values())


def _controls(of: Sequence[Judged]) -> Iterator[str]:
    """Yield that an attack shows something where there is nothing to be learnt."""
    for each in of:
        if each.verdict == "above baseline":
            figure = f"{_figure(each)}, is above its baseline"
            yield f"its control ({each.differs}), {figure} too: doubt all of these"


def _unknown(of: Sequence[Judged]) -> Iterator[str]:
    open_ones = [e.verdict for e in of if e.verdict not in DECIDED]
    if open_ones:
        counts = Counter(open_ones)
        several = len(counts) > 1
        reasons = ", ".join(
            f"{verdict}: {n}" if several else verdict for verdict, n in counts.items()
        )
        cells = "1 cell says" if len(open_ones) == 1 else f"{len(open_ones)} cells say"
        yield f"{cells} nothing ({reasons})"


def _weakest(members: Sequence[Judged]) -> Judged | None:
    """Return the least noise from which on all that was played stops the attack, in all settings.

    Noise of which one setting says nothing is passed over; more of it decides.
    """
    levels: dict[tuple[float, float], list[Judged]] = {}
    for each in members:
        levels.setdefault(each.place[1:], []).append(each)
    found = None
    for level in sorted(levels, reverse=True):
        cells = levels[level]
        if any(each.verdict == "above baseline" for each in cells):
            return found
        silent = all(each.stopped or each.verdict == "not applicable" for each in cells)
        if silent and any(each.stopped for each in cells):
            found = cells[0]
    return found


def _loosest(found: Sequence[Judged]) -> list[Judged]:
    """Return the noise with the largest epsilon, which is compared and sigma is not."""
    return [min(found, key=lambda each: each.place[1:])] if found else []


def _strongest_above(members: Sequence[Judged]) -> Judged | None:
    above = [each for each in members if each.verdict == "above baseline"]
    return max(above, key=lambda each: (each.place, each.share), default=None)


def _named(cells: Sequence[Judged], fits: Callable[[Judged], bool]) -> list[str]:
    """Name the protections whose cells fit; with their settings, where others of them do not."""
    names = []
    for name in dict.fromkeys(each.row.protection for each in cells):
        of = [each for each in cells if each.row.protection == name]
        hit = [each for each in of if fits(each)]
        if len(hit) == len(of):
            names.append(protection_in_words(name))
        elif hit:
            names.append(_within(protection_in_words(name), [each.differs for each in hit]))
    return names


def _within(name: str, settings: Sequence[str]) -> str:
    """Return a protection's name with the settings that are meant: "masks of 2 and 10 clients"."""
    counts = [re.fullmatch(r"(\d+) clients", setting) for setting in settings]
    if name == "masks" and all(counts):
        return f"masks of {_listed([match[1] for match in counts if match])} clients"
    return f"{name} ({'; '.join(settings)})"


def protection_in_words(protection: str) -> str:
    """Return a protection's name as part of a sentence: "noise of 0.1 C", "masks with a clip".

    Parameters
    ----------
    protection : str
        As the table calls it.

    Returns
    -------
    str
        Unchanged where it follows no pattern of this package; quoted where it has a comma.
    """
    if "," in protection:  # in a list it would read as two
        return f"“{protection}”"
    if protection.startswith(OF_THE_RUN):
        return f"{_RUNS}{protection_in_words(protection.removeprefix(OF_THE_RUN))}"
    text = re.sub(r"\bnoise (?=[\d.])", "noise of ", protection)
    text = re.sub(r"^masked \+ ", "masks with ", text)
    plain = {"masked": "masks", "clip": "a clip alone", "masks with clip": "masks with a clip"}
    return plain.get(text, text)


def _listed(names: Sequence[str]) -> str:
    shown = [*names[:_MOST_NAMED]]
    if len(names) > _MOST_NAMED:
        shown.append(f"{len(names) - _MOST_NAMED} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _do(names: Sequence[str]) -> str:
    return "do" if _are_several(names) else "does"


def _are_several(names: Sequence[str]) -> bool:
    return len(names) > 1 or names[0].removeprefix(_RUNS).startswith("masks")


def _figure(each: Judged) -> str:
    return f"{each.row.metric} {value_text(each.row)}"


def _where(each: Judged) -> str:
    """Return protection and setting, as far as the attack has several."""
    differs = f", {each.differs}" if each.differs else ""
    return protection_in_words(each.row.protection) + differs


def _epsilon(each: Judged) -> str:
    return "" if each.row.epsilon is None else f" (epsilon {epsilon_text(each.row)})"
