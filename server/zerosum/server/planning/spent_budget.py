"""Say what a run has spent, from its folder alone, and write nothing into it."""

import json
import math
from collections.abc import Mapping
from typing import Any

from zerosum.client.protocol.protection import Protection
from zerosum.client.request import Kind
from zerosum.server.config import ConfigError
from zerosum.server.planning.plan import outlook
from zerosum.server.privacy.epsilons import OBSERVERS
from zerosum.server.privacy.protections import (
    components_protection,
    evaluation_protection,
    example_units,
)
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.runs.run_folder import LEDGER, METRICS, RunFolder
from zerosum.server.spec import Experiment

_FLOAT_ROUNDING = 1e-9
"""Relative distance of two figures of the same events."""


def run_spending(folder: RunFolder) -> dict[str, Any]:
    """Return what a run has spent against every observer, and what it was planned to spend.

    Works while the run goes on: what was charged when this is called, whether its sum was opened
    or not.

    Parameters
    ----------
    folder : RunFolder
        The run.

    Returns
    -------
    dict
        ``observers``: each with its figure, what all planned rounds were planned to cost and what
        is left of that; ``kinds``: sums opened, contributions of the client that made most, and
        figures of each kind of sum alone; ``participations``: the worst client's, of all kinds;
        ``name``, ``protocol``, ``rounds`` recorded, ``planned_rounds``.

    Raises
    ------
    ConfigError
        If the folder holds no ledger, or one that is damaged or of other settings.
    """
    experiment = folder.experiment
    header = ledger_header(folder)
    ledger = _ledger(folder, experiment, header)
    tally, figures = ledger.tally(), ledger.figures()
    planned = {name: told["value"] for name, told in planned_figures(experiment, header).items()}
    kinds = {
        kind: {
            "sums": tally.opened[at],
            "participations": max((client[at][0] for client in tally.worst), default=0),
            "epsilon": {name: f["value"] for name, f in ledger.kind_figures(kind).items()},
        }
        for at, kind in enumerate(ledger.kinds)
    }
    return {
        "kind": "run",
        "name": experiment.name,
        "protocol": experiment.secagg.protocol,
        "rounds": len(folder.read_lines(METRICS)),
        "planned_rounds": experiment.rounds,
        "participations": tally.most,
        "observers": {
            name: {
                **figures[name],
                "planned": planned.get(name),
                "left": _left(figures[name]["value"], planned.get(name)),
            }
            for name in OBSERVERS
        },
        "kinds": kinds,
    }


def _left(spent: float | None, planned: float | None) -> float | None:
    """Return what is left; None where either has no bound.

    A plan that was kept to the end sums the same events in another order: what floats make of
    that is nothing that could still be spent.
    """
    if spent is None or planned is None:
        return None
    return planned - spent if planned - spent > _FLOAT_ROUNDING * planned else 0.0


def ledger_header(folder: RunFolder) -> Mapping[str, Any]:
    """Return the first line of a run's ledger: what it says of the settings.

    Raises
    ------
    ConfigError
        If there is none, or it is damaged.
    """
    path = folder.path / LEDGER
    try:
        with path.open(encoding="utf-8") as file:
            header = json.loads(file.readline())
    except FileNotFoundError:
        raise ConfigError(f"{folder.path} holds no {LEDGER}: this run has not begun") from None
    except ValueError as error:
        raise ConfigError(f"{path} is damaged ({error})") from None
    if not isinstance(header, dict) or not _is_header(header):
        raise ConfigError(f"{path} is damaged: its first line says nothing of the run")
    return header


def _is_header(header: Mapping[str, Any]) -> bool:
    kinds = header.get("kinds")
    terms = kinds.values() if isinstance(kinds, dict) else ()
    described = isinstance(kinds, dict | list) and all(
        isinstance(each, dict) and type(each.get("length")) is int for each in terms
    )
    return described and type(header.get("population")) is int


def planned_figures(
    experiment: Experiment, header: Mapping[str, Any]
) -> Mapping[str, dict[str, Any]]:
    """Return what all planned rounds were planned to cost, by observer; nothing without noise.

    Raises
    ------
    ConfigError
        If the ledger's first line says what no run of these settings can have written.
    """
    if not experiment.privacy.private:
        return {}
    try:
        dimension = dimension_of(experiment, "train", header)
        planned = outlook(experiment, population=header["population"], dimension=dimension)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{LEDGER} is damaged, or not of this run: {header.get('population')} clients and "
            f"{header.get('kinds')!r:.200} cannot be planned with ({error})"
        ) from None
    figures: Mapping[str, dict[str, Any]] = planned.values["epsilon"]
    return figures


def _ledger(folder: RunFolder, experiment: Experiment, header: Mapping[str, Any]) -> RunLedger:
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
            population=header["population"],
            protections={kind: _protection(experiment, kind, header) for kind in header["kinds"]},
            examples=example_units(experiment),
            records=experiment.privacy.examples,
            read_only=True,
        )
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{folder.path / LEDGER} is damaged ({error!r})") from None


def dimension_of(experiment: Experiment, kind: Kind, header: Mapping[str, Any]) -> int:
    """Return a dimension that has the kind's length; 1 without noise, where only counts matter."""
    if not experiment.privacy.private:
        return 1
    bit = kind == "train" and experiment.privacy.adaptive
    return int(header["kinds"][kind]["length"]) - bit


def _protection(experiment: Experiment, kind: Kind, header: Mapping[str, Any]) -> Protection:
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
        cohort=max(2, experiment.sampling.cohort or header["population"]),
        dimension=dimension,
        rotation_seed=bytes(32),
    )
