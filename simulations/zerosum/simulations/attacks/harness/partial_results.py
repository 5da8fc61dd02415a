"""Keep the outcomes of plays as they come, so that a run that was interrupted can continue."""

import hashlib
import io
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from zerosum.client.files.durable_append import replace_file
from zerosum.server.config import ConfigError
from zerosum.simulations.attacks.harness.interface import ThreatModel, parameters_of
from zerosum.simulations.attacks.harness.metrics import Mean, Proportion, Ranking, Units
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.partial_results import read_request, write_request

ASKED, PLAYS = "attack.json", "plays"

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (Proportion, Mean, Ranking)}

_PLAIN = ("number", "seed", "status", "note", "epsilon", "delta", "cpu_seconds")

_DAMAGED = (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, BadZipFile)
"""Errors that numpy, JSON and the classes raise for a damaged file."""


@dataclass(frozen=True)
class AttackRequest:
    """The request that a run of attacks answers, so that continuing it asks for nothing.

    Attributes
    ----------
    names, settings : sequence of str
        Attacks, and ``--set`` of their parameters, as the command takes them.
    suite : str
        ``"quick"`` or ``"full"``.
    seeds : int
        Seeds of each figure.
    version : str
        Of zerosum: figures of one table are of one version.
    cells : str
        SHA-256 of what the cells are; empty until they are known.
    complete : bool
        Whether all was played, so that there is nothing to continue.
    only : sequence of str
        Words of the cells that are played; none: all cells.
    task, run : str
        Of the user's, that are attacked; empty for the scenes that attacks bring.
    """

    names: Sequence[str]
    settings: Sequence[str]
    suite: str
    seeds: int
    version: str = version("zerosum")
    cells: str = ""
    complete: bool = False
    only: Sequence[str] = ()
    task: str = ""
    run: str = ""

    def write(self, folder: Path) -> None:
        """Write it into the run's folder, whole or not at all."""
        write_request(folder / ASKED, self)

    @classmethod
    def read(cls, folder: Path, *, continues: bool = True) -> "AttackRequest":
        """Read what the run in a folder was asked for.

        Parameters
        ----------
        folder : Path
        continues : bool
            Whether something is to be played, of which a complete run has nothing.

        Returns
        -------
        AttackRequest

        Raises
        ------
        ConfigError
            If the folder holds no run of attacks, another version's, or one that is complete.
        """
        asked = f"--resume {folder}" if continues else str(folder)
        request = read_request(
            folder / ASKED,
            cls,
            absent=f"{asked}: it holds no run of attacks (no {ASKED})",
            cure="restore it, or play all anew, with --out",
        )
        if request.version != version("zerosum"):
            raise ConfigError(
                f"{asked}: it was played by zerosum {request.version}, and this is "
                f"{version('zerosum')}; play all anew, with --out"
            )
        if request.complete and continues:
            raise ConfigError(
                f"{asked}: all was played; draw figures with zerosum report {folder} --plots pdf, "
                "or play it anew, with --out"
            )
        return request

    def asks(self, other: "AttackRequest") -> bool:
        """Return whether another request is for the same, however far this one is answered.

        Parameters
        ----------
        other : AttackRequest

        Returns
        -------
        bool
        """
        return _asked_for(self) == _asked_for(other)

    def check_cells(self, cells: Sequence[Cell], folder: Path) -> None:
        """Refuse to put plays of other cells into one table.

        Parameters
        ----------
        cells : sequence of Cell
            Of the run that continues.
        folder : Path
            Of the run that it continues.

        Raises
        ------
        ConfigError
            If the cells are not those that the run began with.
        """
        if self.cells != digest(cells):
            raise ConfigError(
                f"--resume {folder}: the attacks or their settings were changed since; play all "
                "anew, with --out"
            )


def _asked_for(request: AttackRequest) -> tuple[object, ...]:
    of = (request.names, request.settings, request.only)
    return *map(list, of), request.suite, request.seeds, request.task, request.run


def digest(cells: Sequence[Cell]) -> str:
    """Return SHA-256 of what cells are called and how their attacks are set."""
    whole = [f"{cell.label} {dict(parameters_of(cell.attack))!r}" for cell in cells]
    return hashlib.sha256("\n".join(whole).encode()).hexdigest()


def save_outcome(folder: Path, outcome: Outcome) -> None:
    """Keep an outcome that playing again would give again.

    A failed outcome is played again. So is one whose units are of an attack's own class: reading
    them back would run code from the folder.

    Parameters
    ----------
    folder : Path
        Of the run.
    outcome : Outcome
    """
    scored = (*outcome.units.values(), *outcome.baseline.values())
    if outcome.status == "failed" or any(type(units) not in _KINDS.values() for units in scored):
        return
    arrays: dict[str, Any] = {}
    facts: dict[str, Any] = {name: getattr(outcome, name) for name in _PLAIN}
    for side in ("units", "baseline"):
        facts[side] = [
            _split(units, metric, f"{side}{place}", arrays)
            for place, (metric, units) in enumerate(getattr(outcome, side).items())
        ]
    facts["pictures"] = list(outcome.pictures)
    for place, picture in enumerate(outcome.pictures.values()):
        arrays[f"pictures{place}"] = np.asarray(picture)
    threat = outcome.threat
    facts["threat"] = None if threat is None else asdict(threat) | {"knows": sorted(threat.knows)}
    data = io.BytesIO()
    np.savez_compressed(data, facts=np.array(json.dumps(facts)), **arrays)
    (folder / PLAYS).mkdir(exist_ok=True)
    replace_file(folder / PLAYS / _name(outcome.number, outcome.seed), data.getvalue())


def _split(units: Units, metric: str, key: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Put the arrays of units under names of their own, and return their other fields."""
    rest: dict[str, Any] = {"metric": metric, "kind": type(units).__name__}
    for each in fields(units):  # type: ignore[arg-type]
        value = getattr(units, each.name)
        if isinstance(value, np.ndarray):
            arrays[f"{key}.{each.name}"] = value
        else:
            rest[each.name] = value
    return rest


def kept_outcomes(folder: Path, cells: Sequence[Cell], seeds: Collection[int]) -> list[Outcome]:
    """Return the outcomes that a folder has of these cells and seeds.

    Parameters
    ----------
    folder : Path
        Of the run.
    cells : sequence of Cell
    seeds : collection of int

    Returns
    -------
    list of Outcome

    Raises
    ------
    ConfigError
        If a file cannot be read.
    """
    outcomes = []
    for number in range(len(cells)):
        for seed in seeds:
            path = folder / PLAYS / _name(number, seed)
            try:
                data = io.BytesIO(path.read_bytes())
                with np.load(data, allow_pickle=False) as arrays:
                    outcomes.append(_outcome({name: arrays[name] for name in arrays.files}))
            except FileNotFoundError:
                continue
            except _DAMAGED as error:
                raise ConfigError(
                    f"--resume {folder}: {path.name} is damaged ({error}); delete it, and it is "
                    "played again"
                ) from None
    return outcomes


def _outcome(arrays: Mapping[str, np.ndarray]) -> Outcome:
    facts = json.loads(str(arrays["facts"]))
    sides: dict[str, dict[str, Units]] = {}
    for side in ("units", "baseline"):
        sides[side] = {
            each.pop("metric"): _joined(each, f"{side}{place}.", arrays)
            for place, each in enumerate(facts[side])
        }
    threat = facts["threat"]
    if threat is not None:
        threat = ThreatModel(**threat | {"knows": frozenset(threat["knows"])})
    pictures = {name: arrays[f"pictures{place}"] for place, name in enumerate(facts["pictures"])}
    plain = {name: facts[name] for name in _PLAIN}
    given: dict[str, Any] = plain | sides | {"pictures": pictures, "threat": threat}
    return Outcome(**given)


def _joined(facts: dict[str, Any], key: str, arrays: Mapping[str, np.ndarray]) -> Units:
    kind = _KINDS[facts.pop("kind")]
    own = {name.removeprefix(key): value for name, value in arrays.items() if name.startswith(key)}
    units: Units = kind(**facts, **own)
    return units


def mark_complete(folder: Path) -> None:
    """Note in a run's request that nothing is left to play; figures can still be drawn.

    Parameters
    ----------
    folder : Path
        Of the run.
    """
    if (folder / ASKED).is_file():
        replace(AttackRequest.read(folder), complete=True).write(folder)


def _name(number: int, seed: int) -> str:
    return f"{number}-{seed}.npz"
