"""Name what of a run is public: settings, parts of a round's line, and the epsilon of a release.

A public report and every logger take what they show from these lists. What a later version records
stays inside until somebody adds it here.
"""

from dataclasses import replace
from typing import Any, Final

from zerosum.server.config import ConfigError
from zerosum.server.planning.spent_budget import planned_figures
from zerosum.server.privacy.epsilon_bound import EpsilonBound, no_bound
from zerosum.server.privacy.ledger_file import RunHeader
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.rounding import epsilon_up
from zerosum.server.privacy.run_ledger import NO_NOISE, SECRET_SEED
from zerosum.server.runs.records import RoundRecord
from zerosum.server.runs.run_folder import LEDGER
from zerosum.server.spec import Experiment
from zerosum.server.spec.app_settings import without_app_settings

SETTINGS: Final = (
    "name",
    "task",
    "rounds",
    "model",
    "training",
    "privacy",
    "encoding",
    "secagg",
    "sampling",
    "server",
    "evaluation",
)
"""What of an experiment is public."""

WITHHELD: Final = (
    "seed",
    "engine",
    "workers",
    "device",
    "trainer",
    "log",
    "baselines",
    "data",
    "faults",
    "deployment",
)
"""What is not: it names machines and files, or would let cohorts be drawn again."""

RELEASED: Final = (
    "round",
    "status",
    "lr",
    "server_lr",
    "average_norm",
    "clip",
    "fraction_within_clip",
    "fraction_within_clip" + NOISE_STD,
    "federated_status",
)
"""What a round's line says of its release, beside its metrics."""

_HIGHER_RATE: Final = (
    "the ledger's figure is above the one that the settings alone give, as where more clients "
    "dropped out than they assume, or rounds were asked again; it is rounded up"
)

_COVERED: Final = (
    "more clients dropped out than the settings assume; the figure covers what was charged for that"
)

_OF_THE_PLAN: Final = ("dropout at most ", "a round is opened only because ")
"""Beginnings of assumptions of the plan's figure that a run's own dropouts can refute."""


def public_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that every client was told, as JSON has them."""
    return without_app_settings(experiment.model_dump(mode="json", include=set(SETTINGS)))


def public_line(line: RoundRecord, experiment: Experiment) -> RoundRecord:
    """Return what a round's line says of its release.

    Parameters
    ----------
    line : RoundRecord
        Of ``metrics.jsonl``.
    experiment : Experiment
        Of the run.

    Returns
    -------
    RoundRecord
        Every field is public.
    """
    public = {name: value for name, value in line.items() if name in RELEASED}
    public |= sorted(line.metrics.items())  # their order would tell what else was measured
    # Noise that is not brought to a constant total tells how many survived.
    constant = _noise_is_constant(experiment)
    return RoundRecord(
        **{name: v for name, v in public.items() if constant or not name.endswith(NOISE_STD)}
    )


def _noise_is_constant(experiment: Experiment) -> bool:
    privacy = experiment.privacy
    topped_up = privacy.model == "distributed" and privacy.top_up
    return topped_up or privacy.model in ("central", "none")


def release_bound(
    experiment: Experiment,
    charged: EpsilonBound | None,
    header: RunHeader | None,
    *,
    noise_from_seed: bool,
) -> EpsilonBound:
    """Compute epsilon_release as the settings give it; take the ledger's if that is more.

    The ledger's figure depends on counts in its last digits (noise drawn), and beyond them where
    cohorts are accounted as known. The plan's, of all rounds opened, follows from the settings: it
    is stated wherever it covers what the ledger charged.

    Parameters
    ----------
    experiment : Experiment
        Of the run.
    charged : EpsilonBound or None
        The ledger's figure; None where there is none.
    header : RunHeader or None
        Of the ledger; None where that is gone.
    noise_from_seed : bool
        Whether noise and cohorts can be drawn again from the seed.

    Returns
    -------
    EpsilonBound
        Without counts.

    Raises
    ------
    ConfigError
        If there is a figure and no ledger.
    """
    privacy = experiment.privacy
    if not privacy.private or charged is None or not charged.finite:
        reason = "no figure is recorded that holds for outsiders" if privacy.private else NO_NOISE
        return no_bound("release", privacy.delta, reason, unit=privacy.unit)
    if header is None:
        raise ConfigError(
            f"{experiment.name} holds no {LEDGER}: what was spent is not known any more"
        )
    planned = planned_figures(experiment, header)["release"]
    assumptions = list(planned.assumptions)
    if noise_from_seed:
        assumptions.append(SECRET_SEED)
    higher = planned.value < charged.value
    refuted = any(
        note.startswith(_OF_THE_PLAN) and note not in charged.assumptions for note in assumptions
    )
    if higher or refuted:
        assumptions = [note for note in assumptions if not note.startswith(_OF_THE_PLAN)]
        assumptions.append(_HIGHER_RATE if higher else _COVERED)
    if not higher:
        assumptions.append("counted as if every planned round was opened")
    return replace(
        planned,
        # Rounded, since the digits beyond hang on how much noise was drawn, which is a count.
        value=stated_epsilon(planned, charged.value),
        slack=0.0,
        participations=None,
        assumptions=tuple(assumptions),
    )


def stated_epsilon(planned: EpsilonBound, charged: float) -> float:
    """Return the epsilon that outsiders are told.

    Parameters
    ----------
    planned : EpsilonBound
        Of all planned rounds, by the settings.
    charged : float
        The ledger's figure.

    Returns
    -------
    float
        Rounded up.
    """
    return epsilon_up(max(planned.value, charged))
