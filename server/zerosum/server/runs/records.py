"""A run's records, typed: a line of ``metrics.jsonl``, ``summary.json``, and the bounds in it.

This module alone turns records into JSON and JSON into records. Three decisions:

- An infinite epsilon is null in a file, for JSON has no infinity. In memory it is ``math.inf``.
- A key that this version does not know, in a line or a summary, is kept and logged: it is a fact
  beside the others, and a run that goes on would otherwise lose it. In an epsilon it is refused:
  it may be a condition without which the figure does not hold.
- Reading is strict: "3" is no round. A file that was edited or cut is refused with its line.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    model_validator,
)

from zerosum.server.config import ConfigError
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.observers import ObserverName
from zerosum.server.runs.plain_json import numbers

log = logging.getLogger("zerosum.server")

METRIC_PREFIXES: Final = ("test_", "federated_")
"""What the name of a metric begins with: on public test data, on the clients' own."""

_DRAWN: Final = ("test_accuracy", "test_loss", "federated_accuracy", "federated_loss")
"""Metrics that terminal and report write and draw by name."""

_FILE_ORDER: Final[tuple[ObserverName, ...]] = ("sum", "local", "release")
"""Order of observers in files. JSON objects have none; this one keeps files equal by bytes."""

_BOUND_KEYS: Final = (
    *("value", "delta", "slack", "adjacency", "unit", "accountant"),
    *("participations", "assumptions", "reason"),
)


class Document(BaseModel, Mapping[str, Any]):
    """A frozen record with typed fields, and a read-only view of it as its JSON object.

    ``record.survivors`` is the typed value; ``record["survivors"]`` is what the file has, for
    scripts and callbacks that know the file's keys. A field that was never set is in no file.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    def document(self) -> dict[str, Any]:
        """Return the JSON object; NaN and infinite metrics are floats still."""
        return self.model_dump(exclude_unset=True)

    _SHOWN: ClassVar[tuple[str, ...]] = ()

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Show the few fields that tell records apart: all of them are a page."""
        for name in self._SHOWN or type(self).model_fields:
            if name in self.model_fields_set and (value := getattr(self, name)) not in ("", {}, []):
                yield name, value

    @cached_property
    def _view(self) -> dict[str, Any]:
        return self.document()

    def __getitem__(self, name: str) -> Any:
        return self._view[name]

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        return iter(self._view)

    def __len__(self) -> int:
        return len(self._view)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Document):
            return type(self) is type(other) and self.document() == other.document()
        return isinstance(other, Mapping) and self.document() == dict(other)

    def __or__(self, fields: Mapping[str, Any]) -> Self:
        """Return the record with more fields, or with others."""
        return type(self)(**{**self.document(), **fields})


def _epsilon(value: float) -> float:
    if not value >= 0:  # NaN is not
        raise ValueError(f"{value} is no epsilon")
    return value


def _infinite_where_null(values: object) -> object:
    if not isinstance(values, Mapping):
        return values
    return {name: math.inf if value is None else value for name, value in values.items()}


Epsilons: TypeAlias = Annotated[
    dict[ObserverName, Annotated[float, AfterValidator(_epsilon)]],
    BeforeValidator(_infinite_where_null),
]
"""Epsilon by observer; infinite where none holds."""


def _named(value: object) -> object:
    return numbers({"": value})[""]


Number: TypeAlias = Annotated[float, BeforeValidator(_named)]
"""A float that may be NaN or infinite: JSON has a word for each."""


class RoundRecord(Document):
    """One round's line in ``metrics.jsonl``.

    Fields that a round does not have are not in its line: a round without noise has no
    ``noise_norm``, and only a simulation counts ``clients_trained``. docs/run-folder.md, where it
    exists, explains each.

    Attributes
    ----------
    metrics : dict of str to float
        By name, as "test_accuracy"; in the line they are keys of their own.
    clients_trained : int or None
        None where nobody counts, as in a deployment.
    """

    _SHOWN = ("round", "status", "reason", "cohort", "survivors", "metrics", "epsilon")

    round: int
    cohort: int = 0
    attempt: int = 0
    left_out: int = 0
    lr: float | None = None
    server_lr: float | None = None
    cut: list[int] = []
    cut_of: int = 0
    clip: float | None = None
    fraction_within_clip: float | None = None
    fraction_within_clip_noise_std: float | None = None
    status: Literal["completed", "abandoned"] | None = None
    reason: str = ""
    survivors: int = 0
    failed_groups: list[str] = []
    average_norm: float | None = None
    noise_norm: float | None = None
    dropouts: dict[str, int] = {}
    bytes_up_per_client: float = 0.0
    bytes_down_per_client: float = 0.0
    exchanges: int = 0
    stage_seconds: dict[str, float] = {}
    refused: dict[str, int] = {}
    wrong_shares: int = 0
    liars: list[int] = []
    wrong_pairs: list[list[int]] = []
    clients_trained: int | None = None
    clients_failed: int = 0
    clients_idle: int = 0
    examples_failed: int = 0
    first_failure: str | None = None
    untrained: bool = False
    metrics: dict[str, float] = {}
    epsilon_charged: dict[ObserverName, float] = {}
    federated_status: str | None = None
    federated_reason: str | None = None
    federated_cut: list[int] = []
    federated_cut_of: int = 0
    evaluations_failed: int = 0
    first_failed_evaluation: str | None = None
    epsilon: Epsilons = {}
    dropout_charged: float | None = None
    seconds: float = 0.0
    components: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _gather_metrics(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        metrics = {
            name: value
            for name, value in values.items()
            if name.startswith(METRIC_PREFIXES)
            and name not in cls.model_fields
            and isinstance(value, float)  # integers are counts
        }
        rest = {name: value for name, value in values.items() if name not in metrics}
        for name in _DRAWN:  # elsewhere a text may be a fact that a newer version wrote
            if name in rest and type(rest[name]) is not int:
                raise ValueError(f"{name} = {rest[name]!r:.80} is no number")
        return rest | {"metrics": {**rest.get("metrics", {}), **metrics}} if metrics else rest

    @property
    def completed(self) -> bool:
        """Return whether the round's sum was released."""
        return self.status == "completed"

    def document(self) -> dict[str, Any]:
        """Return the line: metrics are keys of their own, an infinite epsilon is None."""
        line: dict[str, Any] = {}
        for name, value in super().document().items():
            if name == "metrics":
                line |= {key: value[key] for key in value if key.startswith("test_")}
            elif name == "epsilon":
                line[name] = {o: or_null(value[o]) for o in _FILE_ORDER if o in value}
            else:
                line[name] = value
            if name in ("federated_status", "federated_reason"):
                line |= self._federated()
        # A strategy evaluates on clients without a status of its own.
        return line | self._federated()

    def _federated(self) -> dict[str, float]:
        return {key: self.metrics[key] for key in self.metrics if key.startswith("federated_")}


class Failures(Document):
    """Failures of clients over a whole run, where somebody counts them."""

    evaluations_failed: int = 0
    first_failed_evaluation: str | None = None
    clients_trained: int = 0
    clients_failed: int = 0
    clients_idle: int = 0
    examples_failed: int = 0
    first_failure: str | None = None


def _bounds(values: object) -> object:
    if not isinstance(values, Mapping):
        return values
    return {
        name: bound if isinstance(bound, EpsilonBound) else read_bound(name, bound)
        for name, bound in values.items()
    }


class Summary(Document):
    """A run's ``summary.json``; empty where a run has none yet.

    Attributes
    ----------
    epsilon : dict of str to EpsilonBound
        By observer.
    failures : Failures or None
        None where nobody counts them.
    nothing_learnt : str or None
        Why no client's training is in the model.
    settings : dict
        The public settings, in a public summary alone.
    """

    _SHOWN = ("name", "rounds", "rounds_abandoned", "metrics", "nothing_learnt", "seconds")

    name: str = ""
    metrics: dict[str, Number] = {}
    rounds: int = 0
    rounds_abandoned: int = 0
    epsilon: Annotated[dict[ObserverName, EpsilonBound], BeforeValidator(_bounds)] = {}
    dropouts: dict[str, int] = {}
    bytes_up_per_client: float = 0.0
    bytes_down_per_client: float = 0.0
    seconds: float = 0.0
    peak_memory_mb: float | None = None
    population: int | None = None
    dimension: int | None = None
    noise_multiplier: float | None = None
    noise_from_seed: bool | None = None
    noise_draw: str = ""
    wrap_probability_log2: Number | None = None
    protocol: str = ""
    server: str = ""
    rule: str = "mean"
    groups: int = 1
    left_out: list[int] = []
    wrong_shares: int = 0
    cut: list[int] | None = None
    groups_failed: int = 0
    failures: Failures | None = None
    untrained: bool = False
    nothing_learnt: str | None = None
    engine: dict[str, Any] = {}
    shared_cache: bool = False
    seed: int | None = None
    versions: dict[str, str] = {}
    data: dict[str, Any] | None = None
    no_accuracy: str = ""
    lost_tests: str = ""
    earlier_metrics: dict[str, int] = {}
    settings: dict[str, Any] = {}

    def document(self) -> dict[str, Any]:
        """Return the JSON object."""
        values = self.model_dump(exclude_unset=True, exclude={"epsilon", "failures"})
        if "epsilon" in self.model_fields_set:
            values["epsilon"] = bounds_document(self.epsilon)
        if "failures" in self.model_fields_set:
            values["failures"] = None if self.failures is None else self.failures.document()
        order = [*type(self).model_fields, *(self.model_extra or {})]
        return {name: values[name] for name in order if name in values}


def bound_document(bound: EpsilonBound) -> dict[str, Any]:
    """Return a bound as its JSON object: null is infinite; the observer is the key beside it."""
    values = {name: getattr(bound, name) for name in _BOUND_KEYS}
    return values | {"value": or_null(bound.value), "assumptions": list(bound.assumptions)}


def bounds_document(bounds: Mapping[ObserverName, EpsilonBound]) -> dict[str, dict[str, Any]]:
    """Return the bounds against several observers as a JSON object."""
    return {name: bound_document(bounds[name]) for name in _FILE_ORDER if name in bounds}


def read_bound(observer: str, document: object) -> EpsilonBound:
    """Read a bound from its JSON object.

    Parameters
    ----------
    observer : str
        The key that it stands at.
    document : object
        What :func:`bound_document` wrote.

    Returns
    -------
    EpsilonBound
        Null is ``math.inf``.

    Raises
    ------
    ValueError
        If a part is missing or wrong, or there is a part that this version does not know.
    """
    if not isinstance(document, Mapping):
        raise ValueError(f"epsilon.{observer} is no object")
    if unknown := sorted(document.keys() - set(_BOUND_KEYS)):
        raise ValueError(
            f"epsilon.{observer} has {', '.join(unknown)}, which this version does not know: a "
            "newer version wrote it, and may hold it true under that condition only"
        )
    if absent := [name for name in _BOUND_KEYS if name not in document]:
        raise ValueError(f"epsilon.{observer} has no {', '.join(absent)}")
    value, assumptions = document["value"], document["assumptions"]
    for name in ("delta", "slack", *(["value"] if value is not None else [])):
        if type(document[name]) not in (int, float):
            raise ValueError(f"epsilon.{observer}.{name} = {document[name]!r} is no number")
    for name in ("adjacency", "accountant", "reason"):
        if not isinstance(document[name], str | None):
            raise ValueError(f"epsilon.{observer}.{name} = {document[name]!r} is no text")
    count = document["participations"]
    if count is not None and (type(count) is not int or count < 0):
        raise ValueError(f"epsilon.{observer}.participations = {count!r} is no count")
    if not isinstance(assumptions, list) or not all(isinstance(text, str) for text in assumptions):
        raise ValueError(f"epsilon.{observer}.assumptions is no list of texts")
    parts = {name: document[name] for name in _BOUND_KEYS}
    try:
        parts |= {"value": math.inf if value is None else float(value)}
    except OverflowError:
        raise ValueError(f"epsilon.{observer}.value is beyond any float") from None
    return EpsilonBound(**parts | {"observer": observer, "assumptions": tuple(assumptions)})


def or_null(value: float | None) -> float | None:
    """Return an epsilon as JSON has it: null where it is infinite, or unknown."""
    return None if value is None or math.isinf(value) else value


_Record = TypeVar("_Record", bound=Document)


def read_rounds(lines: Sequence[Mapping[str, Any]], path: Path) -> list[RoundRecord]:
    """Read the lines of ``metrics.jsonl``.

    Parameters
    ----------
    lines : sequence of mapping
        JSON objects, in which words for NaN and infinity are numbers again.
    path : Path
        Where they stand, for messages.

    Returns
    -------
    list of RoundRecord
        In the order of the lines.

    Raises
    ------
    ConfigError
        If a line is damaged.
    """
    records = [
        _read(RoundRecord, line, f"{path} is damaged: line {number}")
        for number, line in enumerate(lines, 1)
    ]
    _log_unknown(path, records)
    return records


def read_summary(document: Mapping[str, Any], path: Path) -> Summary:
    """Read ``summary.json``.

    Parameters
    ----------
    document : mapping
        The parsed JSON object.
    path : Path
        Where it stands, for messages.

    Returns
    -------
    Summary
        With the bounds in it.

    Raises
    ------
    ConfigError
        If it is damaged.
    """
    summary = _read(Summary, document, f"{path} is damaged")
    _log_unknown(path, [summary])
    return summary


def _read(kind: type[_Record], values: Mapping[str, Any], where: str) -> _Record:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        reason = f"{key}: {first['msg']}" if key else first["msg"]
        raise ConfigError(
            f"{where}: {reason}; restore the file, or read it with the version that wrote it"
        ) from None


def _log_unknown(path: Path, records: Sequence[Document]) -> None:
    unknown = sorted({name for record in records for name in record.model_extra or {}})
    if unknown:
        log.warning(
            "%s has keys that this version does not know: %s; they are kept as they are (a newer "
            "version wrote them)",
            path,
            ", ".join(unknown),
        )
