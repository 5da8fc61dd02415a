"""Define attacks: threat model, defense, view, guess and score.

A :class:`Setting` plays a scene with the simulator's own grid and parties. The scene has a
:class:`View`, which holds what the attacker's role receives, and the truth, which only the harness
sees. An :class:`Attack` turns the view into a :class:`Guess`, and the harness scores the guess
against the truth.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final, Literal, Protocol

import numpy as np
from annotated_types import Ge
from pydantic import ConfigDict, FiniteFloat, SkipValidation
from pydantic.dataclasses import dataclass as checked_dataclass

from zerosum.simulations.attacks.harness.metrics import Units

CHECKED = ConfigDict(arbitrary_types_allowed=True)
"""Of what attacks and settings hand over: pydantic refuses values that are not what they say.

Arrays are left as they are; units refuse those that no figure can be computed of.
"""

Role = Literal[
    "curious server",
    "malicious server",
    "colluding clients",
    "malicious client",
    "outsider",
    "analyst",
]

Noise = Literal["none", "local", "distributed", "central"]

Masking = Literal["none", "single", "double"]
"""No masks; pairwise masks alone, which no client of this library sends; those and self-masks."""


@checked_dataclass(frozen=True, config=CHECKED)
class ThreatModel:
    """An attacker's place, and its knowledge beside what it receives.

    Attributes
    ----------
    role : str
        Whose place the attacker has.
    colluders : int
        Clients that help the attacker, or are it.
    knows : frozenset of str
        As "labels", "learning rate", "steps", "clip", "sigma", "auxiliary data".
    rounds : int
        In how many rounds.
    """

    role: Role
    colluders: int = 0
    knows: frozenset[str] = frozenset()
    rounds: int = 1

    def __str__(self) -> str:
        """Return the role, with its helpers."""
        if not self.colluders or self.role == "malicious client":
            return self.role
        return f"{self.role} + {self.colluders}"


OF_THE_RUN: Final = "as in the run: "
"""Begins the name of a run's own protection."""


@checked_dataclass(frozen=True, config=CHECKED)
class Defense:
    """Protection against an attacker: one column of the table.

    Attributes
    ----------
    name : str
        As the table calls it.
    masking : str
        Whether contributions are masked, and how.
    threshold : int or None
        Shares that recover a secret; None as a run would choose it.
    bits : int
        Of a coordinate, before masking.
    seed_bits : int
        Of a mask's seed: 256 is this library's.
    clip : float or None
        L2 bound of each client's update.
    noise : str
        Who adds it: "local" each client, "distributed" all clients together, "central" the server.
    sigma : float
        Its standard deviation in a coordinate, in clips: of each contribution where local, else of
        the sum.
    budget : int or None
        Contributions after which a client declines.
    request_hash : bool
        Whether masks are bound to what was asked.
    confirm : bool
        Whether survivors are confirmed before they are unmasked: a malicious server's sessions.
    rule : str
        How the server combines contributions that it sees.
    """

    name: str
    masking: Masking = "none"
    threshold: int | None = None
    bits: int = 24
    seed_bits: int = 256
    clip: float | None = None
    noise: Noise = "none"
    sigma: float = 0.0
    budget: int | None = None
    request_hash: bool = True
    confirm: bool = True
    rule: str = "mean"

    @property
    def masked(self) -> bool:
        """Return whether the server sees no more than sums."""
        return self.masking != "none"


@dataclass(frozen=True)
class View:
    """The attacker's view: data alone, sealed before an attack sees it.

    Settings add fields of their own, arrays and frozen data; what was not received is None. Nothing
    in a view leads to a client, a task or the truth: :func:`~.sealed_view.sealed` refuses it.

    Attributes
    ----------
    threat : ThreatModel
    protection : Defense
        Protections are public.
    stopped : str
        Why the attacker received nothing, where a protection stopped what was asked.
    """

    threat: ThreatModel
    protection: Defense
    stopped: str = ""

    def lacks(self, requires: Iterable[str]) -> tuple[str, ...]:
        """Return which of these fields are not there."""
        return tuple(name for name in requires if getattr(self, name, None) is None)


@checked_dataclass(frozen=True, config=CHECKED)
class Guess:
    """An attack's answer.

    Attributes
    ----------
    values : mapping of str to ndarray
        What is guessed, by name: as the attack's own score reads it.
    notes : str
        Printed below the table, as an extrapolation.
    """

    values: SkipValidation[Mapping[str, np.ndarray]]
    notes: str = ""

    def __getitem__(self, name: str) -> np.ndarray:
        """Return one guessed array."""
        return self.values[name]


@checked_dataclass(frozen=True, config=CHECKED)
class Metric:
    """One figure of an attack.

    Attributes
    ----------
    name, unit : str
        As "PSNR", "dB".
    higher : bool
        Whether more is a better attack.
    whole : float or None
        The figure of complete success, for the colours of the report; None: 1 of fractions and
        rankings (0 where less is better), and of means the best that the attack shows.
    counts : bool
        Whether the figure is a success by itself, also where it is not the attack's first; that of
        a backdoor is no less where the model's accuracy stays.
    """

    name: str
    unit: str = ""
    higher: bool = True
    whole: FiniteFloat | None = None
    counts: bool = True


@checked_dataclass(frozen=True, config=CHECKED)
class Scene:
    """A view and what it was a view of.

    Attributes
    ----------
    view : View
    truth : mapping of str to ndarray
        For the harness alone.
    epsilon : float or None
        What the ledger says of the scene, for the attacker's role: infinite without noise; None
        where nothing is released that an epsilon could be of.
    delta : float
    """

    view: SkipValidation[View]
    truth: SkipValidation[Mapping[str, np.ndarray]]
    epsilon: Annotated[float, Ge(0)] | None
    delta: float = 1e-5


class NotApplicable(Exception):
    """A scene that cannot be: the library refuses such a run; the message says why."""


class Setting(Protocol):
    """Plays scenes. A frozen dataclass: equal settings play equal scenes of equal seeds."""

    @property
    def name(self) -> str:
        """Return the name in the table's rows: "sum of 10 clients, 1 image each"."""
        ...

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Play a scene; an active attacker is asked for its moves, by methods the setting names.

        Parameters
        ----------
        attack : Attack
            Its threat model, and the moves of an active attacker.
        protection : Defense
        seed : int
            Of data, model and all randomness of the protocol: equal seeds play equal scenes.

        Returns
        -------
        Scene

        Raises
        ------
        NotApplicable
            If there can be no such scene.
        """
        ...


@checked_dataclass(frozen=True, config=CHECKED)
class Case:
    """One cell of the table: where an attack is played, and against what.

    Attributes
    ----------
    setting : Setting
    protection : Defense
    at : mapping of str to float
        Where the cell lies on the axes of pictures: {"cohort": 10, "sigma": 0.001}.

    Raises
    ------
    ValueError
        If a row could not be written of the cell: before it is played.
    """

    setting: SkipValidation[Setting]
    protection: Defense
    at: Mapping[str, FiniteFloat] = field(default_factory=dict)


class Attack(Protocol):
    """One attack. A frozen dataclass whose fields are what ``--set NAME.FIELD=VALUE`` changes.

    Several attacks may share a ``name``: they differ in how ``adaptive`` they are, and the table
    takes the strongest in each cell.

    An attack plays in settings of its own kind, and annotates the views of these: to the harness,
    which hands it any, a view is of any type.
    """

    @property
    def name(self) -> str:
        """One row of the table: "gradient inversion"."""
        ...

    @property
    def adaptive(self) -> str:
        """Return the use of knowledge about the protection: "unrolls the local steps"."""
        ...

    @property
    def threat(self) -> ThreatModel:
        """Return the attacker's place and knowledge."""
        ...

    @property
    def requires(self) -> tuple[str, ...]:
        """Fields of the view without which there is no attack."""
        ...

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics; the first is the table's."""
        ...

    def cases(self, suite: str) -> Iterable[Case]:
        """Return the cells of suite "quick" or "full"."""
        ...

    def baseline(self, view: Any, rng: np.random.Generator) -> Guess:
        """Guess from public knowledge and auxiliary data alone.

        Parameters
        ----------
        view : View
            All of it; nothing may be used that an attacker has only by attacking.
        rng : numpy.random.Generator
            All randomness of the guess.

        Returns
        -------
        Guess
        """
        ...

    def run(self, view: Any, rng: np.random.Generator) -> Guess:
        """Attack.

        Parameters
        ----------
        view : View
            Sealed: read-only data. Every field in ``requires`` is there.
        rng : numpy.random.Generator
            All randomness of the attack.

        Returns
        -------
        Guess
        """
        ...

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Score a guess; called by the harness alone.

        The order of units is the truth's: guess and baseline are compared unit by unit.

        Parameters
        ----------
        guess : Guess
            Of :meth:`run` or :meth:`baseline`.
        truth : mapping of str to ndarray
            The scene's, read-only; docs/attack-views.md has the shapes.

        Returns
        -------
        mapping of str to Units
            By the name of each metric in ``metrics``.
        """
        ...


def parameters_of(attack: Attack) -> dict[str, Any]:
    """Return what can be set of an attack, by name, with its value."""
    return {each.name: getattr(attack, each.name) for each in fields(attack)}  # type: ignore[arg-type]
