"""Say what a comparison leaves out, and what its figures do not say."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from zerosum.server.runs.reference_words import not_better
from zerosum.simulations.report import words
from zerosum.simulations.terminal.printable import shell_command

if TYPE_CHECKING:
    from zerosum.simulations.report.compare import Comparison

Cautions = dict[str, tuple[str, ...]]
"""Each sentence with the runs or methods it is about, where they are several."""

_EARLY = "ended before the last planned round; epsilons are those of all planned rounds."

_OTHER_EPSILONS = (
    "Epsilons are of different deltas, units or adjacencies, and none says more or less than the "
    "other: no frontier is drawn."
)


@dataclass
class RunNotes:
    """Gathers what is to be said of single runs: a sentence for all that it holds of.

    Attributes
    ----------
    runs : int
        That there are in all.
    """

    runs: int
    _found: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    _sweeps: dict[Path, None] = field(default_factory=dict)

    def add(self, many: str, one: str, listed: str) -> None:
        """Note something of a run.

        Parameters
        ----------
        many : str
            What several do, after "3 of 5 runs".
        one : str
            The sentence of a single run.
        listed : str
            The run in a list of several.
        """
        self._found.setdefault(many, []).append((one, listed))

    def open(self, name: str, sweep: Path | None) -> None:
        """Note that a run has not finished, and the sweep that would complete it.

        Parameters
        ----------
        name : str
            Of the run.
        sweep : Path or None
            Folder of its sweep; None: of no sweep.
        """
        if sweep is not None:
            self._sweeps[sweep] = None
        said = "has not finished and is left out"
        self.add("have not finished and are left out", f"{name} {said}", name)

    @property
    def cure(self) -> str:
        """How the runs of sweeps are completed, in brackets; empty without any."""
        commands = [shell_command(["zerosum", "sweep", "--resume", str(p)]) for p in self._sweeps]
        completes = "completes" if len(commands) == 1 else "complete"
        return f" ({' and '.join(commands)} {completes} them)" if commands else ""

    def said(self) -> Cautions:
        """Return a sentence of each kind."""
        found: Cautions = {}
        for many, noted in self._found.items():
            alone = len(noted) == 1
            text = noted[0][0] if alone else f"{len(noted)} of {self.runs} runs {many}"
            cure = self.cure if many.startswith("have not finished") else ""
            text += cure.replace(" them)", " it)") if alone else cure
            found[f"{text}."] = () if alone else tuple(listed for _, listed in noted)
        return found


def of_figures(comparison: "Comparison") -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what the figures of the methods do not say.

    Parameters
    ----------
    comparison : Comparison

    Yields
    ------
    str, tuple of str
        As :data:`Cautions` has them.
    """
    shown, observer = comparison.shown, comparison.observer
    worse = _worse(comparison)
    if len(worse) > 1:
        told = tuple(f"{label}: {clause}" for label, clause in worse.items())
        several = f"{len(worse)} of {words.count(len(shown), 'method')}"
        yield f"{several} are no better than a predictor that looks at nothing.", told
    for label, clause in worse.items() if len(worse) == 1 else ():
        yield f"{label}: {clause}.", ()
    if single := sum(len(method.runs) == 1 for method in shown):
        whose = "Each method" if single == len(shown) else f"{words.count(single, 'method')}"
        has = "has" if single in (1, len(shown)) else "have"
        yield (
            f"{whose} {has} one finished run: nothing tells its figure from the luck of a seed.",
            (),
        )
    rounds = {run.experiment.rounds for method in shown for _, run in method.runs}
    if len(rounds) > 1:
        yield "The methods have different numbers of rounds: look at the curves too.", ()
    if ended := sum(bool(run.summary.ended_by) for method in shown for _, run in method.runs):
        yield f"{words.count(ended, 'run')} {_EARLY}", ()
    kinds = {
        (bound.delta, bound.unit, bound.adjacency)
        for method in shown
        if observer is not None and comparison.finite(method, observer)
        for bound in (method.bounds[observer],)
    }
    if len(kinds) > 1:
        yield _OTHER_EPSILONS, ()


def _worse(comparison: "Comparison") -> Mapping[str, str]:
    """Return the methods with a run no better than a constant predictor, with the clause."""
    found = {}
    for method in comparison.shown:
        clause = next((w for _, run in method.runs if (w := not_better(run.summary))), "")
        if clause:
            found[method.label] = clause
    return found
