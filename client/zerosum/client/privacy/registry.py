"""The mechanisms there are, by name; and which one a session gets, at which scale.

Adding a mechanism is a file beside this one, a line in :data:`BUILT_IN`, and a row in
``docs/privacy.md``. One of a user's own is registered by that user's code, in every process that
builds sessions, and is then a value of ``privacy.mechanism`` like the others. A client's policy
takes it only where it names it.
"""

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from zerosum.client.privacy.binned_gaussian import BinnedGaussian
from zerosum.client.privacy.block_noise import BlockNoise
from zerosum.client.privacy.central_gaussian import CentralGaussian
from zerosum.client.privacy.discrete_gaussian import DistributedDiscreteGaussian
from zerosum.client.privacy.geometric import CentralGeometric, DistributedGeometric
from zerosum.client.privacy.laplace import DiscreteLaplace
from zerosum.client.privacy.mechanism import (
    AddedBy,
    Mechanism,
    NoiseSettings,
    check_mechanism,
    check_same_claims,
)
from zerosum.client.privacy.privunit import PrivUnit
from zerosum.client.privacy.skellam import DistributedSkellam
from zerosum.client.privacy.skellam_counts import SkellamCounts
from zerosum.secagg.vectors.encoding import Encoding, Rule

BUILT_IN: Final[tuple[tuple[str, type[Mechanism]], ...]] = (
    ("skellam", DistributedSkellam),
    ("discrete-gaussian", DistributedDiscreteGaussian),
    ("binned-gaussian", BinnedGaussian),
    ("binned-gaussian", CentralGaussian),
    ("discrete-laplace", DiscreteLaplace),
    ("privunit", PrivUnit),
)
"""In this order: the first of each model is what `auto` means there."""

COUNTING: Final[tuple[tuple[str, type[BlockNoise]], ...]] = (
    ("geometric", DistributedGeometric),
    ("geometric", CentralGeometric),
    ("skellam", SkellamCounts),
)
"""Mechanisms of counts: laws that a query names. They are for integer blocks, never a value of
``privacy.mechanism``, which is for real vectors."""

_MODELS: Final[dict[AddedBy, str]] = {
    "share": "distributed",
    "client": "local",
    "server": "central",
}
"""The privacy model in which noise is added so."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names stand in TOML, on command lines, in tables and in HTML."""

_registered: dict[tuple[str, str], type[Mechanism]] = {}
"""By name and model."""


def register_mechanism(name: str, kind: type[Mechanism]) -> None:
    """Make a mechanism a value of ``privacy.mechanism``.

    Parameters
    ----------
    name : str
        As in a configuration. One name may serve several models, with a class for each.
    kind : type
        A frozen dataclass with every member of ``Mechanism``.

    Raises
    ------
    TypeError
        If a member is missing, or says what nobody understands; by its name.
    ValueError
        If the name is taken in that model, or is no word.
    """
    check_mechanism(kind)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"a mechanism's name is a word of letters, digits, '.', '_' and '-', not {name!r:.80}"
        )
    key = name, _MODELS[kind.added_by]
    if name in ("auto", "none", *dict(counting_rows())) or key in _registered:
        raise ValueError(f"a mechanism called {name!r} is there already, for the model {key[1]!r}")
    _registered[key] = kind


def names(model: str | None = None) -> tuple[str, ...]:
    """Return the names of all mechanisms, or of one model's, as registered."""
    return tuple(dict.fromkeys(name for name, at in _registered if model in (None, at)))


def counting_rows() -> list[tuple[str, str]]:
    """Return the laws that are for the counts of queries alone, with their meanings."""
    rows = {name: f"{kind.summary} (queries)" for name, kind in reversed(COUNTING)}
    return [(name, meaning) for name, meaning in rows.items() if name not in dict(BUILT_IN)]


def default_name(model: str) -> str:
    """Return what `auto` means in a model; "none" in the model without noise."""
    return next(iter(names(model)), "none")


def kind_of(name: str, model: str) -> type[Mechanism] | None:
    """Find a mechanism's class.

    Parameters
    ----------
    name : str
        As in a configuration.
    model : str
        The privacy model.

    Returns
    -------
    type[Mechanism] or None
        None if the model has no mechanism of that name.
    """
    return _registered.get((name, model))


def with_models(kinds: Iterable[tuple[str, str]]) -> str:
    """Return names with the models in which they are meant: "a (local), b (local, central)"."""
    models: dict[str, list[str]] = {}
    for name, model in kinds:
        models.setdefault(name, []).append(model)
    return ", ".join(f"{name} ({', '.join(where)})" for name, where in models.items())


def exact_names() -> str:
    """Return the names of mechanisms that OpenDP can draw, with their models."""
    return with_models(key for key, kind in _registered.items() if kind.takes_exact)


def bit_names() -> tuple[str, ...]:
    """Return the names of mechanisms that can noise the bit of adaptive clipping."""
    return tuple(dict.fromkeys(name for (name, _), kind in _registered.items() if kind.takes_bit))


def proved_names() -> list[str]:
    """Return the names of mechanisms whose figures need no caveat in some model.

    What a client's policy trusts unless it says otherwise.
    """
    proved = (
        name for (name, _), kind in _registered.items() if getattr(kind, "caveat", None) == ""
    )
    return list(dict.fromkeys(proved))


def meanings() -> str:
    """Return the meaning of every value of ``privacy.mechanism``, for the configuration page."""
    autos = with_models((default_name(model), model) for model in _MODELS.values())
    lines = [f"`auto`: {autos}."]
    for name in names():
        kinds = {model: kind for (n, model), kind in _registered.items() if n == name}
        summary = next(iter(kinds.values())).summary
        lines.append(f"`{name}`: {summary} ({', '.join(kinds)}).")
    return " ".join(lines)


def guaranteed_shares(honest_fraction: float | Fraction, cohort: int) -> Fraction:
    """Return f n exactly, with f read as the decimal number that was written.

    0.56 as a float is a little more than 0.56: of 100 clients it would need 57.

    Parameters
    ----------
    honest_fraction : float or Fraction
        f.
    cohort : int
        n.

    Returns
    -------
    Fraction
        Exact.
    """
    if isinstance(honest_fraction, Fraction):
        return honest_fraction * cohort
    return Fraction(repr(honest_fraction)) * cohort


def rounding_rule(privacy: NoiseSettings, *, records: bool) -> Rule:
    """Return what the clip bounds: the sum's records, or the L1 or L2 norm of one vector.

    Parameters
    ----------
    privacy : NoiseSettings
        Names the mechanism.
    records : bool
        Whether vectors are sums of clipped records.

    Returns
    -------
    {"l1", "l2", "records"}
        A rule of the encoding.

    Raises
    ------
    ValueError
        If sums of records are asked for where the noise needs a norm of the whole vector.
    """
    kind = kind_of(privacy.noise, privacy.model)
    if not records:
        return "l2" if kind is None else kind.norm
    if kind is not None and not kind.takes_records:
        raise ValueError(
            f'privacy.mechanism = "{privacy.noise}" needs vectors of bounded norm, which sums of '
            "clipped records are not"
        )
    return "records"


def choose_mechanism(privacy: NoiseSettings, code: Encoding, cohort: int) -> Mechanism | None:
    """Build the mechanism of a session; None without privacy.

    Parameters
    ----------
    privacy : NoiseSettings
        With ``noise_multiplier`` resolved.
    code : Encoding
        Its sensitivities.
    cohort : int
        Clients in the session, by whose guaranteed fraction shares are divided.

    Returns
    -------
    Mechanism or None
        None without privacy.

    Raises
    ------
    ValueError
        If a parameter is missing or out of the mechanism's range.
    """
    if not privacy.private:
        return None
    z = privacy.update_noise_multiplier
    if z is None:
        raise ValueError("privacy.noise_multiplier must be found before a session is built")
    kind = kind_of(privacy.noise, privacy.model)
    if kind is None:
        raise ValueError(f"no mechanism of model {privacy.model!r} is called {privacy.noise!r}")
    if privacy.exact:
        from zerosum.client.privacy.opendp import check_available

        check_available(code.length)
    shares = float(guaranteed_shares(privacy.honest_fraction, cohort))
    mechanism = kind.from_spec(privacy, code, z, shares)
    # What was built may be of another class, as Skellam noise with a bit is.
    check_same_claims(mechanism, kind)
    return mechanism


for _name, _kind in BUILT_IN:
    register_mechanism(_name, _kind)
