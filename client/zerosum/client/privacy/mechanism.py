"""The protocol of a noise mechanism: all that anybody asks of one.

A mechanism is one frozen object, built alike at the client and at the server. It adds the noise,
describes it for the ledger, and measures it for the report; no other place computes a noise scale
or knows a mechanism's class. All numbers are in integer units, those of the encoding.

Why a protocol whose members are all required, and no base class with defaults: a default is an
answer that nobody gave. A mechanism that was taken to add nothing to a sum that lacks clients had
its top-up skipped, and a ledger charged for noise that was not there. So a class that leaves out a
member is refused by :func:`~zerosum.client.privacy.registry.register_mechanism`.
"""

import dataclasses
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding

if TYPE_CHECKING:
    from dp_accounting import DpEvent as DpEvent  # for mechanisms to import from here
else:
    DpEvent = Any  # it takes a second to import, and a client without a budget never needs it

Drawn = Literal["table", "exact", "float"]
"""How noise is drawn: from a table at a known distance, by OpenDP without any, or in floats."""

AddedBy = Literal["share", "client", "server"]
"""Who adds the noise of a sum: each client a share of it, each client all of it, or the server."""

Norm = Literal["l1", "l2"]
"""The norm that a vector is clipped to."""

Divergences = NDArray[np.float64]
"""Renyi divergences at :data:`~zerosum.client.renyi_filter.ORDERS`, shape (511,)."""


class NoiseSettings(Protocol):
    """Settings of ``[privacy]`` that mechanisms read."""

    @property
    def private(self) -> bool:
        """Return whether any noise is promised."""
        ...

    @property
    def model(self) -> str:
        """The privacy model: "distributed", "local", "central" or "none"."""
        ...

    @property
    def noise(self) -> str:
        """The mechanism's name."""
        ...

    @property
    def honest_fraction(self) -> float:
        """The guaranteed fraction f of a cohort."""
        ...

    @property
    def exact(self) -> bool:
        """Return whether noise is drawn by OpenDP's samplers."""
        ...

    @property
    def adaptive(self) -> bool:
        """Return whether a bit for adaptive clipping follows each update."""
        ...

    @property
    def noise_multiplier(self) -> float | None:
        """The noise z over the sensitivity; None until it is found."""
        ...

    @property
    def update_noise_multiplier(self) -> float | None:
        """The part of z that is left for the update beside the bit of adaptive clipping."""
        ...

    @property
    def clip(self) -> float | None:
        """The norm bound C, in real units."""
        ...

    @property
    def clip_noise(self) -> float:
        """Noise of the bit, in clients, over z."""
        ...

    @property
    def clip_quantile(self) -> float:
        """The quantile of norms that adaptive clipping seeks."""
        ...

    @property
    def lot(self) -> int | None:
        """Examples expected in one step, all clients together; None where clients are the unit."""
        ...


class Mechanism(Protocol):
    """One mechanism: how it is built, what a client applies, what is charged and printed.

    Attributes
    ----------
    added_by : {"share", "client", "server"}
        Who adds the noise: it decides top-ups, and which observers it protects against.
    norm : {"l1", "l2"}
        The norm by which a vector is clipped.
    takes_records : bool
        Whether it protects one record of a sum of clipped records, a vector of unbounded norm.
    takes_bit : bool
        Whether it can noise the bit of adaptive clipping behind an update, jointly accounted.
    takes_exact : bool
        Whether OpenDP has an exact sampler of it.
    summary : str
        A few words for the configuration page and ``zerosum list``.
    """

    added_by: ClassVar[AddedBy]
    norm: ClassVar[Norm]
    takes_records: ClassVar[bool]
    takes_bit: ClassVar[bool]
    takes_exact: ClassVar[bool]
    summary: ClassVar[str]

    @property
    def drawn(self) -> Drawn:
        """Sampler of the noise."""
        ...

    @property
    def tau(self) -> float:
        """Total-variation distance of one noise integer as drawn from one as claimed.

        It bounds their log-ratio at every integer too.
        """
        ...

    @property
    def caveat(self) -> str:
        """Return the restriction that stands beside every figure; mostly empty."""
        ...

    @classmethod
    def from_spec(
        cls, privacy: NoiseSettings, code: Encoding, multiplier: float, shares: float
    ) -> "Mechanism":
        """Build the mechanism of a session.

        Parameters
        ----------
        privacy : NoiseSettings
            The experiment's section.
        code : Encoding
            Its sensitivities, in integer units.
        multiplier : float
            Noise of the update over its sensitivity.
        shares : float
            The guaranteed shares f n, among which noise that is divided is divided.

        Returns
        -------
        Mechanism
            Frozen; its fields are part of what a session is bound to.

        Raises
        ------
        ValueError
            If the noise is out of the mechanism's range.
        """
        ...

    def apply(self, vector: NDArray[np.int64], rng: Keystream) -> NDArray[np.int64]:
        """Add the noise of one contribution (of a sum, for the server's).

        Parameters
        ----------
        vector : ndarray of int64, shape (length,)
            Encoded, in integer units.
        rng : Keystream

        Returns
        -------
        ndarray of int64, shape (length,)
            A new vector.
        """
        ...

    def noise(self, shares: float, count: int, rng: Keystream) -> NDArray[np.int64]:
        """Draw the noise of so many contributions at once: top-ups, and simulated sums.

        Parameters
        ----------
        shares : float
            Contributions, above 0.
        count : int
            Coordinates, the bit of adaptive clipping included.
        rng : Keystream

        Returns
        -------
        ndarray of int64, shape (count,)
            The noise alone, in integer units.

        Raises
        ------
        ValueError
            If the noise of a sum has no law that could be drawn at once.
        """
        ...

    def variance(self, shares: float) -> float:
        """Return the variance, in the noisiest coordinate, of so many contributions' noise."""
        ...

    def std(self, shares: float) -> float:
        """Return the deviation, in a coordinate of the update, of so many contributions' noise."""
        ...

    def bit_std(self, shares: float) -> float:
        """Return the same for the bit of adaptive clipping; 0 where ``takes_bit`` is false."""
        ...

    def bound(self, code: Encoding) -> int:
        """Return the largest magnitude of a coordinate that one contribution can have.

        Noise with tails is left out, and counted by :meth:`log_tail`; bounded noise is in it.
        """
        ...

    def log_tail(self, shares: int, margin: float) -> float:
        """Return ln of a bound on P(noise of so many contributions > margin), in one coordinate.

        Parameters
        ----------
        shares : int
            Contributions.
        margin : float
            Integer units, above 0.

        Returns
        -------
        float
            At most 0; -inf where the noise is bounded.
        """
        ...

    def slack(self, cohort: int) -> int:
        """Return what rounding noise at each of so many clients may add to a sum at most."""
        ...

    def event(self, shares: float) -> DpEvent:
        """Describe, for a ledger, a sum that is guaranteed to hold so many shares of noise.

        Sensitivities are against zero. One of `dp_accounting`'s events, or of a class of the
        mechanism's own: see :class:`~zerosum.client.privacy.events.NoiseDpEvent`.

        Raises
        ------
        ValueError
            If the noise cannot be divided into so few shares.
        """
        ...

    def divergences(self, shares: float, *, doubled: bool) -> Divergences | None:
        """Return what one contribution costs its client, by the client's own count.

        Parameters
        ----------
        shares : float
            Shares of noise that hide it, where shares are what a client adds.
        doubled : bool
            At twice the sensitivity. Noise of full strength is always charged so.

        Returns
        -------
        ndarray of float64, shape (511,), or None
            Renyi divergences; None where nothing bounds them, as for a trusted server's noise.
        """
        ...


MEMBERS = tuple(
    sorted(
        name for name in {*Mechanism.__annotations__, *vars(Mechanism)} if not name.startswith("_")
    )
)
"""Names of all that a mechanism must have."""

_VALUES: dict[str, tuple[str, ...]] = {"added_by": get_args(AddedBy), "norm": get_args(Norm)}
_FLAGS = ("takes_records", "takes_bit", "takes_exact")
_CLAIMS = tuple(_VALUES)
"""What callers decide by before a mechanism is built, and again by the mechanism itself."""

_METHODS = tuple(
    name
    for name in MEMBERS
    if callable(vars(Mechanism).get(name)) or isinstance(vars(Mechanism).get(name), classmethod)
)


def check_mechanism(kind: type) -> None:
    """Check that a class has all that is asked of a mechanism.

    Parameters
    ----------
    kind : type
        A class, which need not derive from :class:`Mechanism`.

    Raises
    ------
    TypeError
        With the name of what it lacks, or of what it says that nobody understands.
    """
    if not isinstance(kind, type):
        raise TypeError(f"{kind!r} is no mechanism: it has to be a class")
    # Not `__dataclass_fields__`: those of annotated class variables without a value are in it.
    fields = {field.name for field in dataclasses.fields(kind)} if is_dataclass(kind) else set()
    own = {name for base in kind.__mro__ if base is not Mechanism for name in vars(base)}
    missing = [name for name in MEMBERS if name not in own and name not in fields]
    if missing:
        raise TypeError(
            f"{kind.__name__} is no mechanism: it lacks {', '.join(missing)}; "
            "zerosum.client.privacy.mechanism says what each has to do"
        )
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        raise TypeError(f"{kind.__name__} is no mechanism: it has to be a frozen dataclass")
    for name in _METHODS:
        if not callable(getattr(kind, name, None)):
            raise TypeError(f"{kind.__name__}.{name} has to be a method")
    # An object could change a field of its own, and then be another mechanism than its class.
    if varying := [name for name in (*_CLAIMS, *_FLAGS) if name in fields]:
        raise TypeError(f"{kind.__name__}.{varying[0]} has to be a ClassVar, not a field")
    for name, allowed in _VALUES.items():
        if (value := getattr(kind, name)) not in allowed:
            raise TypeError(f"{kind.__name__}.{name} = {value!r}: it has to be one of {allowed}")
    for name in _FLAGS:
        if not isinstance(getattr(kind, name), bool):
            raise TypeError(f"{kind.__name__}.{name} has to be True or False")


def check_same_claims(mechanism: Mechanism, kind: type[Mechanism]) -> None:
    """Check that what was built claims what the class of that name claims.

    The class decides the privacy model, and so the figures; the object decides who adds noise. Were
    they two, a client of a distributed session would leave the noise to a server that adds none.

    Parameters
    ----------
    mechanism : Mechanism
        Of ``kind.from_spec``, of whatever class.
    kind : type
        The registered class.

    Raises
    ------
    TypeError
        If they differ, by the member's name.
    """
    check_mechanism(type(mechanism))
    for name in _CLAIMS:
        built, claimed = getattr(mechanism, name), getattr(kind, name)
        if built != claimed:
            raise TypeError(
                f"{kind.__name__}.from_spec built a {type(mechanism).__name__} whose {name} is "
                f"{built!r} and not {claimed!r}: no session is built with it"
            )
