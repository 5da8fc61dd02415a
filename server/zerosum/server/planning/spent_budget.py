"""Compute what a run has spent, from its folder alone, and write nothing into it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zerosum.client.protocol.protection import Protection
from zerosum.server.config import ConfigError
from zerosum.server.planning.plan import outlook
from zerosum.server.privacy.calibration import planned_run
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.ledger_file import RunHeader, read_header
from zerosum.server.privacy.observers import OBSERVERS, ObserverName
from zerosum.server.privacy.protections import (
    components_protection,
    evaluation_protection,
    example_units,
)
from zerosum.server.privacy.run_ledger import Figures, RunLedger
from zerosum.server.privacy.unrun_rounds import UnrunRounds, unrun_rounds, whole_run_figures
from zerosum.server.runs.records import bound_document, or_null
from zerosum.server.runs.run_folder import LEDGER, RunFolder
from zerosum.server.runs.run_outcome import values
from zerosum.server.spec import Experiment

_SAME_EVENTS = 1e-9
"""Relative distance of two epsilons of the same events that is not spent, nor left.

Plan and ledger compose the same events in another order, and a sum of a few thousand float terms
differs by some 1e-13 of itself; the accountants' grids and tolerances are 1e-4 and coarser. So what
lies below 1e-9 is neither. This is no slack of a bound: nothing that is charged depends on it.
"""


@dataclass(frozen=True)
class ObserverSpending:
    """The spending against one observer.

    Attributes
    ----------
    bound : EpsilonBound
        So far.
    planned : float or None
        Epsilon of all planned rounds; None without noise.
    """

    bound: EpsilonBound
    planned: float | None

    @property
    def left(self) -> float | None:
        """Return the rest of the plan; None where either is infinite."""
        if self.planned is None or not (self.bound.finite and math.isfinite(self.planned)):
            return None
        left = self.planned - self.bound.value
        return left if left > _SAME_EVENTS * self.planned else 0.0


@dataclass(frozen=True)
class KindSpending:
    """The cost of one kind of private sum, had there been no other.

    Attributes
    ----------
    sums : int
        Sums opened.
    participations : int
        Contributions of the client that made most.
    epsilon : mapping of str to float
        By observer; infinite where nothing bounds it.
    """

    sums: int
    participations: int
    epsilon: Mapping[ObserverName, float]


@dataclass(frozen=True)
class RunSpending:
    """The spending of a run, and its plan.

    Attributes
    ----------
    name, protocol : str
        Of the experiment; of its private sums.
    rounds, planned_rounds : int
        Recorded; planned.
    participations : int
        Contributions of the client that made most, of all kinds.
    observers : mapping of str to ObserverSpending
        By observer.
    kinds : mapping of str to KindSpending
        By kind of private sum.
    ended : bool
        Whether the run ended with fewer rounds than planned: then all of them are spent.
    """

    name: str
    protocol: str
    rounds: int
    planned_rounds: int
    participations: int
    observers: Mapping[ObserverName, ObserverSpending]
    kinds: Mapping[str, KindSpending]
    ended: bool = False

    def document(self) -> dict[str, Any]:
        """Return what ``zerosum budget --json`` writes: null is infinite, or unknown."""
        return {
            "kind": "run",
            "name": self.name,
            "protocol": self.protocol,
            "rounds": self.rounds,
            "planned_rounds": self.planned_rounds,
            "ended": self.ended,
            "participations": self.participations,
            "observers": {
                name: {
                    **bound_document(spent.bound),
                    "planned": or_null(spent.planned),
                    "left": spent.left,
                }
                for name, spent in self.observers.items()
            },
            "kinds": {
                kind: {
                    "sums": spent.sums,
                    "participations": spent.participations,
                    "epsilon": {name: or_null(value) for name, value in spent.epsilon.items()},
                }
                for kind, spent in self.kinds.items()
            },
        }


def run_spending(folder: RunFolder) -> RunSpending:
    """Compute what a run has spent against every observer, and what it was planned to spend.

    Works while the run goes on: what was charged when this is called, whether its sum was opened
    or not.

    Parameters
    ----------
    folder : RunFolder

    Raises
    ------
    ConfigError
        If the folder holds no ledger, or one that is damaged or of other settings.
    """
    experiment = folder.experiment
    header = ledger_header(folder)
    ledger = _ledger(folder, experiment, header)
    tally, unrun = ledger.tally(), _unrun(folder, experiment)
    figures = ledger.figures()
    if unrun is not None:
        run = planned_run(experiment, header.population, dimension_of(experiment, "train", header))
        figures = whole_run_figures(ledger, experiment.privacy, run, unrun)
    planned = planned_figures(experiment, header)
    return RunSpending(
        ended=unrun is not None,
        name=experiment.name,
        protocol=experiment.secagg.protocol,
        rounds=len(folder.read_rounds()),
        planned_rounds=experiment.rounds,
        participations=tally.most,
        observers={
            name: ObserverSpending(figures[name], planned[name].value if name in planned else None)
            for name in OBSERVERS
        },
        kinds={
            kind: KindSpending(
                sums=tally.opened[at],
                participations=max((client[at][0] for client in tally.worst), default=0),
                epsilon=values(ledger.kind_figures(kind)),
            )
            for at, kind in enumerate(ledger.kinds)
        },
    )


def _unrun(folder: RunFolder, experiment: Experiment) -> UnrunRounds | None:
    """Return what is left of a run that ended before its last planned round; None of any other."""
    summary = folder.read_summary()
    if not summary.ended_by or summary.planned_rounds != experiment.rounds:
        return None
    if summary.rounds != len(folder.read_rounds()):  # it has gone on since
        return None
    every = experiment.evaluation.federated_every
    by_caller = summary.ended_by == "caller"
    return unrun_rounds(summary.rounds, experiment.rounds, every, by_caller=by_caller)


def ledger_header(folder: RunFolder) -> RunHeader:
    """Read what a run's ledger says of its settings.

    Raises
    ------
    ConfigError
        If there is no ledger, or it is damaged.
    """
    return read_header(folder.path / LEDGER)


def planned_figures(experiment: Experiment, header: RunHeader) -> Figures:
    """Compute what all planned rounds were planned to cost; nothing without noise.

    Parameters
    ----------
    experiment : Experiment
        Of the run folder.
    header : RunHeader
        Of its ledger: knows population and dimension, so that no task need be loaded.

    Returns
    -------
    mapping of str to EpsilonBound
        By observer; empty without noise.

    Raises
    ------
    ConfigError
        If the ledger's first line says what no run of these settings can have written.
    """
    if not experiment.privacy.private:
        return {}
    try:
        dimension = dimension_of(experiment, "train", header)
        planned = outlook(experiment, population=header.population, dimension=dimension)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{LEDGER} is damaged, or not of this run: {header.population} clients and "
            f"{header.kinds!r:.200} cannot be planned with ({error})"
        ) from None
    return planned.epsilon


def _ledger(folder: RunFolder, experiment: Experiment, header: RunHeader) -> RunLedger:
    """Read the ledger; its own comparison with the settings checks what is rebuilt here.

    A vector's length stands in the ledger's first line, so that neither a task nor a model need be
    loaded: another dimension of the same padded length has the same terms.
    """
    try:
        return RunLedger(
            folder.path / LEDGER,
            privacy=experiment.privacy,
            secagg=experiment.secagg,
            sampling=experiment.sampling,
            population=header.population,
            protections={kind: _protection(experiment, kind, header) for kind in header.kinds},
            examples=example_units(experiment),
            records=experiment.privacy.examples,
            read_only=True,
        )
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{folder.path / LEDGER} is damaged ({error!r}); restore the file"
        ) from None


def dimension_of(experiment: Experiment, kind: str, header: RunHeader) -> int:
    """Return a dimension that has the kind's length; 1 without noise, where only counts matter.

    Parameters
    ----------
    experiment : Experiment
        Whether a bit of adaptive clipping stands at the end of the vector.
    kind : str
        Of the private sum.
    header : RunHeader
        Has the length of its vector.

    Returns
    -------
    int
        Trainable parameters, or padded ones.

    Raises
    ------
    KeyError
        If the header does not know the kind, or no length of it.
    """
    if not experiment.privacy.private:
        return 1
    if not isinstance(header.kinds, dict):
        raise KeyError(kind)
    bit = kind == "train" and experiment.privacy.adaptive
    return int(header.kinds[kind]["length"]) - bit


def _protection(experiment: Experiment, kind: str, header: RunHeader) -> Protection:
    dimension = dimension_of(experiment, kind, header)
    privacy, encoding = experiment.privacy, experiment.encoding
    if kind == "components":
        privacy, encoding = components_protection(experiment)
    elif kind == "evaluate":
        privacy, encoding = evaluation_protection(experiment)
        if privacy.norm == "l1":  # as many metrics as a strategy named
            privacy = privacy.model_copy(update={"clip": math.sqrt(dimension)})
    return Protection.build(
        privacy,
        encoding,
        cohort=max(2, experiment.sampling.cohort or header.population),
        dimension=dimension,
        rotation_seed=bytes(32),
    )
