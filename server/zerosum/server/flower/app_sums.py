"""What a ServerApp declares of its nodes' replies, and what a sum of them costs.

Nothing here depends on data: forms, bounds and sensitivities are public, and law, scale and integer
units follow from them, from epsilon and from how many nodes are asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, ValidationError

from zerosum.client.nearest_word import did_you_mean
from zerosum.client.queries.declared_sums import MOST_RESOLUTION, DeclaredSum, moves_of
from zerosum.client.queries.moves import Adjacency, Unit
from zerosum.client.request import MAX_RECORDS
from zerosum.client.spec import Spec
from zerosum.client.spec.complaints import first_complaint
from zerosum.client.spec.query_privacy import LEAST_HONEST_FRACTION
from zerosum.client.spec.sum_privacy import SumPrivacy
from zerosum.server.analytics.asks import DEFAULT_HONEST_FRACTION, MechanismChoice
from zerosum.server.analytics.query_plan import DEFAULT_DELTA
from zerosum.server.config import ConfigError
from zerosum.server.privacy.observers import ObserverName
from zerosum.server.private_sum.reply_errors import TRAINING_LOOP

if TYPE_CHECKING:  # whose accountant takes a second to import
    from zerosum.server.analytics.budget import Budget

Shape: TypeAlias = int | tuple[int, ...] | None
"""Of a value: None a number, n a list of n of them, a tuple an array of that shape."""

Receipts: TypeAlias = Mapping[ObserverName, dict[str, Any] | None]

HOW: Final = (
    'declare what is summed, as PrivateQueries(grid, {"query_results": {"age": Counts(10)}}, '
    "epsilon=0.5, budget=1.0): the names of records and values in the app's reply, and their "
    "lengths, which are the same at every node. Lists whose length differs from node to node, as "
    "times of events, are records and no sums: let the app count them over a grid that is fixed "
    f"beforehand. {TRAINING_LOOP[0].upper()}{TRAINING_LOOP[1:]}"
)

_LEAST_RESOLUTION: Final = 1 << 10
"""Integer units of one sensitivity, where real numbers are summed: rounding then adds less than a
thousandth of the noise."""

_PER_CELL: Final = 1 << 5
"""The same for each number of a list: each can be rounded across a boundary."""


@dataclass(frozen=True)
class Counts:
    """Integers of at least 0, as the cells of a histogram.

    Parameters
    ----------
    shape : int, tuple of int, or None
        None: one number. n: a list of n in a MetricRecord. A tuple: an array in an ArrayRecord.
    most : int
        Largest one at one node: what is beyond is cut to it.
    sensitivity : int, optional
        Under unit "record": what one record adds to all of them together, as the app counts; by
        default 1. It takes from none: one that does so is a matter of Reals. Under unit "client":
        what all of a node's may add up to; it is cut to that.
    """

    shape: Shape = None
    most: int = MAX_RECORDS
    sensitivity: int | None = None


@dataclass(frozen=True)
class Reals:
    """Real numbers of either sign, as totals.

    Parameters
    ----------
    shape : int, tuple of int, or None
        As of :class:`Counts`.
    most : float
        Largest magnitude of one at one node: what is beyond is cut to it.
    sensitivity : float, optional
        As of :class:`Counts`, in sum of magnitudes; required under noise.
    """

    shape: Shape = None
    most: float = 1e6
    sensitivity: float | None = None


Declared: TypeAlias = Mapping[str, Mapping[str, Counts | Reals]]
"""By record and by value of the app's reply."""


class SumTerms(Spec):
    """How all sums of a ServerApp are protected: the section ``privacy`` of PrivateQueries."""

    model: Literal["distributed", "none"] = "distributed"
    """`none`: masks, and no noise."""
    epsilon: Annotated[float, Field(gt=0)] | None = None
    """Of one query."""
    budget: Annotated[float, Field(gt=0)] | None = None
    """Of all queries together."""
    delta: Annotated[float, Field(ge=0, lt=1)] = DEFAULT_DELTA
    """Below one over the nodes."""
    unit: Unit = "record"
    """`record`: one record, by the sensitivity that the app's author declares; nobody can check \
it. `client`: all of a node's, which cuts its own values to the sensitivity."""
    adjacency: Adjacency = "zero_out"
    """Whether the neighbour's part is nothing, or something else."""
    rule: Literal["sum", "renyi"] = "sum"
    """How costs add up."""
    observer: Literal["sum", "release"] = "sum"
    """Whom the budget is held against."""
    mechanism: MechanismChoice = "auto"
    """Law of the noise, or the one with less of it."""
    honest_fraction: Annotated[float, Field(ge=LEAST_HONEST_FRACTION, le=1)] = (
        DEFAULT_HONEST_FRACTION
    )
    """Part of the nodes whose noise makes the guarantee."""


@dataclass(frozen=True)
class CostedSums:
    """Sums with their noise and receipts, as they will be sent.

    Attributes
    ----------
    declared : mapping
        As the ServerApp wrote it.
    sums : tuple of DeclaredSum
        In the order of the vector.
    privacy : SumPrivacy
        Law and scale.
    receipts : mapping
        Of one sum, by observer; empty without noise.
    """

    declared: Declared
    sums: tuple[DeclaredSum, ...]
    privacy: SumPrivacy
    receipts: Receipts


def terms_of(privacy: Mapping[str, Any]) -> SumTerms:
    """Read the terms of all sums.

    Parameters
    ----------
    privacy : mapping
        Keys of :class:`SumTerms`.

    Returns
    -------
    SumTerms
        Checked.

    Raises
    ------
    ConfigError
        One line: the key, its value and what is allowed.
    """
    try:
        terms = SumTerms.model_validate(privacy)
    except ValidationError as error:
        first = first_complaint(error)
        unknown = first.kind == "extra_forbidden"
        hint = did_you_mean(first.key, SumTerms.model_fields) if unknown else ""
        raise ConfigError(f"privacy.{first}{hint}") from None
    missing = [key for key in ("epsilon", "budget") if getattr(terms, key) is None]
    if terms.model == "none":
        if len(missing) < 2:
            raise ConfigError(
                'privacy.model = "none" has no epsilon and no budget: leave epsilon and budget '
                "out, or the model"
            )
    elif missing:
        raise ConfigError(
            f"{' and '.join(missing)} missing: write epsilon, what one query may cost, and budget, "
            'what all may, as epsilon=0.5, budget=1.0; or, without noise, privacy={"model": "none"}'
        )
    return terms


def cost_of(declared: Declared, terms: SumTerms, cohort: int) -> CostedSums:
    """Fix integer units and noise of sums over so many nodes.

    Parameters
    ----------
    declared : mapping
        What is summed.
    terms : SumTerms
        Of the noise.
    cohort : int
        Nodes that are asked.

    Returns
    -------
    CostedSums
        Which can be charged and sent.

    Raises
    ------
    ConfigError
        If something that is declared cannot be summed so.
    """
    if terms.model == "none" or terms.epsilon is None:
        sums = _resolved(declared, terms, cohort)
        return CostedSums(declared, sums, SumPrivacy(model="none"), {})
    from zerosum.server.analytics.costs import shared_noise

    sums = _resolved(declared, terms, cohort)
    try:
        noise, receipts = shared_noise(
            moves_of(sums, terms.adjacency),
            1,
            epsilon=terms.epsilon,
            mechanism=terms.mechanism,
            budget=budget_of(terms),
            cohort=cohort,
            honest_fraction=terms.honest_fraction,
        )
        privacy = SumPrivacy(
            model="distributed",
            law=noise.law,
            scale=noise.scale,
            unit=terms.unit,
            adjacency=terms.adjacency,
            honest_fraction=terms.honest_fraction,
        )
    except ValidationError as error:
        raise ConfigError(f"epsilon = {terms.epsilon:g}: {first_complaint(error)}") from None
    except ValueError as error:
        raise ConfigError(f"epsilon = {terms.epsilon:g}: {error}") from None
    return CostedSums(declared, sums, privacy, receipts)


def budget_of(terms: SumTerms) -> "Budget":
    """Return the budget of all sums; an accountant's, so that it is imported here."""
    from zerosum.server.analytics.budget import Budget

    return Budget(
        epsilon=terms.budget or 0.0,
        delta=terms.delta,
        rule=terms.rule,
        observer=terms.observer,
        unit=terms.unit,
        adjacency=terms.adjacency,
    )


def checked(declared: object, terms: SumTerms) -> Declared:
    """Return what is declared, if it is a mapping of mappings of Counts and Reals.

    Parameters
    ----------
    declared : object
        As a ServerApp gave it.
    terms : SumTerms
        Of the noise.

    Returns
    -------
    mapping
        The same.

    Raises
    ------
    ConfigError
        If it is something else, or nothing.
    """
    if not isinstance(declared, Mapping) or not declared:
        raise ConfigError(f"nothing is declared to be summed: {HOW}")
    for record, values in declared.items():
        if not isinstance(values, Mapping) or not values:
            raise ConfigError(f"{record}: no value of it is declared: {HOW}")
        for key, one in values.items():
            _check_value(record, key, one)
        forms = {isinstance(one.shape, tuple) for one in values.values()}
        if len(forms) > 1:
            raise ConfigError(
                f"{record}: a record has arrays, as Counts((10,)), or numbers and lists, as "
                "Counts(10), and not both"
            )
    _resolved(declared, terms, 2)
    return declared


def _check_value(record: str, key: str, one: object) -> None:
    """Refuse what no sum is declared by: the types of its fields are anybody's until here."""
    if not isinstance(one, Counts | Reals):
        raise ConfigError(
            f"{record}.{key} = {one!r} is neither Counts(...) nor Reals(...): write Counts() for a "
            "number, Counts(10) for a list of ten"
        )
    lengths = one.shape if isinstance(one.shape, tuple) else (one.shape or 1,)
    if not all(type(length) is int for length in lengths):
        raise ConfigError(
            f"{record}.{key}: shape = {one.shape!r}: leave it out for a number, write 10 for a "
            "list, (2, 3) for an array"
        )
    sensitivity = 1 if one.sensitivity is None else one.sensitivity
    for name, value in (("most", one.most), ("sensitivity", sensitivity)):
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ConfigError(
                f"{record}.{key}: {name} = {value!r} is no number: write it as "
                f"{_example(one, name)}"
            )
    if isinstance(one, Counts) and not sensitivity >= 1:
        raise ConfigError(
            f"{record}.{key}: sensitivity = {sensitivity!r}: counts change by whole numbers, 1 at "
            f"least: write {_example(one, 'sensitivity')}"
        )


def _example(one: Counts | Reals, name: str) -> str:
    """Return a declaration with a value for one of its fields."""
    shape = [] if one.shape is None else [repr(one.shape)]
    value = {"most": 100, "sensitivity": 1}[name] if isinstance(one, Counts) else 5.0
    return f"{type(one).__name__}({', '.join([*shape, f'{name}={value}'])})"


def _resolved(declared: Declared, terms: SumTerms, cohort: int) -> tuple[DeclaredSum, ...]:
    """Return what is declared, with its integer units, in an order that is public."""
    flat = [(r, key, one) for r, values in declared.items() for key, one in values.items()]
    found = [
        (record, key, one, _sensitivity(f"{record}.{key}", one, terms)) for record, key, one in flat
    ]
    units = _resolution([one for *_, one in flat], [s for *_, s in found], terms, cohort)
    return tuple(
        _declared_sum(record, key, one, sensitivity, units)
        for record, key, one, sensitivity in found
    )


def _sensitivity(name: str, one: Counts | Reals, terms: SumTerms) -> float | None:
    if terms.model == "none":
        return None
    if one.sensitivity is not None:
        return float(one.sensitivity)
    if isinstance(one, Counts) and terms.unit == "record":
        return 1.0
    what = "one record changes in it" if terms.unit == "record" else "one node may add"
    raise ConfigError(
        f"{name}: sensitivity is missing: write what {what} at most, as "
        f"{_example(one, 'sensitivity')}"
    )


def _resolution(
    values: Sequence[Counts | Reals],
    sensitivities: Sequence[float | None],
    terms: SumTerms,
    cohort: int,
) -> int | None:
    """Return the integer units of one sensitivity; None without noise.

    Counts of one sensitivity are integers as they are. Otherwise units are as fine as rounding
    wants them: of real numbers, and of counts whose noise is not a whole number of them.
    """
    if terms.model == "none" or terms.epsilon is None:
        return None
    reals = [one for one in values if isinstance(one, Reals)]
    if not reals and len(set(sensitivities)) == 1:
        return int(sensitivities[0] or 1)
    from zerosum.server.analytics.calibrate import moments_weight

    longest = max((_cells(one.shape) for one in reals), default=1)
    try:
        finest = moments_weight(cohort, terms.epsilon)
    except ValueError as error:
        raise ConfigError(f"epsilon = {terms.epsilon:g}: {error}") from None
    return max(_LEAST_RESOLUTION, finest, 1 << ceil(log2(_PER_CELL * longest)))


def _declared_sum(
    record: str, key: str, one: Counts | Reals, sensitivity: float | None, units: int | None
) -> DeclaredSum:
    counts = isinstance(one, Counts)
    if units is None:
        units = 1 if counts else MOST_RESOLUTION
    shape = one.shape
    try:
        return DeclaredSum(
            record=record,
            key=key,
            kind="counts" if counts else "reals",
            form="number" if shape is None else "list" if isinstance(shape, int) else "array",
            shape=() if shape is None else (shape,) if isinstance(shape, int) else tuple(shape),
            most=float(one.most),
            sensitivity=sensitivity,
            resolution=units,
        )
    except ValidationError as error:
        raise ConfigError(f"{record}.{key}: {first_complaint(error)}") from None


def _cells(shape: Shape) -> int:
    cells = 1
    for size in () if shape is None else (shape,) if isinstance(shape, int) else shape:
        cells *= size
    return cells
