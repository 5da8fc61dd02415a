"""Define the request to a cohort: one question, one hash.

A question is of one of two classes, by its kind: about a model, or a query of the clients' tables.
The hash enters every mask (see ``zerosum.secagg.session``), so a client that was asked
something else than its fellows masks with nobody.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from zerosum.client.queries.declared_sums import SumQuestion
from zerosum.client.queries.moves import Block, dimension, moves
from zerosum.client.queries.query import Moments, Oracle, Query
from zerosum.client.queries.schema import Schema
from zerosum.client.spec import (
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PositiveFloat,
    PositiveInt,
    PrivacySpec,
    Scale,
    Spec,
    TrainSpec,
)
from zerosum.client.spec.query_privacy import QueryPrivacy
from zerosum.client.spec.schedule import is_scheduled
from zerosum.secagg.session import request_digest

Kind = Literal["train", "evaluate", "components"]
"""A private sum of updates, of metrics, or of the moments that principal components are read from.
"""

NoiseDrawn = Literal["per_client", "summed"]
"""Who draws the noise of a sum: each client its own, or a simulation all of it at once."""


MAX_RECORDS: Final = 1 << 20
"""Records of one client that a query counts where nobody says otherwise: public, and it bounds a \
coordinate."""


MOST_COORDINATES: Final = 1 << 28
"""Longest vector of a request."""


def moments_length(inputs: int) -> int:
    """Return the entries of the upper triangle of a symmetric matrix of so many rows."""
    return inputs * (inputs + 1) // 2


class BaseQuestion(Spec):
    """The first fields of any question; ``privacy`` and ``noise_draw`` follow in each class.

    Not here: a field of a base class is written before all others, and a question about a model
    keeps the bytes that it had before there were queries.
    """

    kind: str
    round: int
    seed: int
    population: int


class ModelQuestion(BaseQuestion):
    """The parts of a request about a model, but the model."""

    kind: Kind
    task: str
    data: DataSpec
    model: ModelSpec
    training: TrainSpec
    privacy: PrivacySpec
    encoding: EncodingSpec
    noise_draw: NoiseDrawn
    max_loss: PositiveFloat
    metrics: dict[str, Scale] = Field(default_factory=dict)
    """Metrics that an evaluation sums beside the loss, each with its largest magnitude."""

    @model_validator(mode="after")
    def _kind_has_its_protection(self) -> Self:
        """Refuse what would leave with less noise than its privacy section says.

        Moments are cut to norm 1 and are a sum of records; metrics are one vector of the client's.
        """
        privacy = self.privacy
        if self.kind == "components" and not privacy.sums_gradients:
            raise ValueError("components are read from sums over examples")
        if self.kind == "components" and privacy.private and privacy.clip != 1.0:
            raise ValueError(f"records' moments have norm 1, and clip is {privacy.clip}")
        if self.kind == "evaluate" and privacy.by_example:
            raise ValueError('metrics are protected by unit = "client"')
        if self.training.batchnorm == "average" and (privacy.private or privacy.by_example):
            raise ValueError("running statistics are averaged without privacy alone")
        if self.training.precision == "bf16" and privacy.by_example:
            raise ValueError("gradients of single examples are not computed in bf16")
        if self.training.beyond_sgd and privacy.by_example:
            raise ValueError(f"{self.training.beyond_sgd} is not for single examples")
        if is_scheduled(self.training):
            raise ValueError("a request carries the learning rate in force, and no schedule")
        return self


class QueryQuestion(BaseQuestion):
    """The parts of a query, but the prefixes that later rounds of `words` ask about."""

    kind: Literal["query"] = "query"
    domains: Schema
    """The columns that the query may read, each with its declared domain."""
    query: Query
    privacy: QueryPrivacy
    max_records: PositiveInt = MAX_RECORDS
    """Records of a client that are counted, at most."""
    noise_draw: NoiseDrawn = "per_client"

    @model_validator(mode="after")
    def _is_resolved(self) -> Self:
        """Refuse what two readers could complete differently, or protect otherwise than asked."""
        query, privacy = self.query, self.privacy
        if isinstance(query, Moments) and query.weight is None:
            raise ValueError("a query on the wire has its weight: it is chosen before it is sent")
        if isinstance(query, Oracle) and query.oracle == "auto":
            raise ValueError("a query on the wire names its oracle: it is chosen before it is sent")
        if isinstance(query, Oracle) != privacy.noise_inside:
            raise ValueError('an oracle is for privacy.model = "local", and other queries are not')
        return self


Question: TypeAlias = ModelQuestion | QueryQuestion | SumQuestion
"""What a cohort can be asked. The last is read by who knows of apps: :mod:`.flower.app_query`."""

_QUERY = b'{"kind":"query",'
"""The canonical bytes of a query begin so, and no others do: the kind is the first key."""


def read_question(header: bytes) -> ModelQuestion | QueryQuestion:
    """Read the canonical bytes of a question.

    Parameters
    ----------
    header : bytes
        As :meth:`~zerosum.client.spec.section.Spec.canonical` wrote it.

    Returns
    -------
    Question
        Of the class that its kind names.

    Raises
    ------
    ValueError
        If they are no question, or not the bytes that it is written as.
    """
    kind = QueryQuestion if header.startswith(_QUERY) else ModelQuestion
    return kind.from_canonical(header)


def evaluation_length(metrics: Collection[str]) -> int:
    """Return the length of an evaluation's answer: the loss, the metrics and the count."""
    return len(metrics) + 2


def model_payload(model: np.ndarray) -> bytes:
    """Return a flat model as little-endian float32: what a request carries beside its question."""
    return model.astype("<f4", copy=False).tobytes()


@dataclass(frozen=True)
class Request(ABC):
    """A question and what it is about, under one hash.

    Parameters
    ----------
    question : Question
        What to do, and how to protect the answer.
    payload : bytes
        What the question is about, beside its own fields.
    """

    question: Question
    payload: bytes
    payload_dtype: ClassVar[str]
    """How Flower names what the payload holds."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Length of the answer, before padding."""

    @property
    def trains(self) -> bool:
        """Return whether the answer is an update of a model."""
        return self.question.kind == "train"

    @property
    def weighted(self) -> bool:
        """Return whether the answer ends in the client's weight."""
        return False

    @property
    @abstractmethod
    def encoding(self) -> "EncodingSpec | CountEncoding":
        """How the answer becomes integers."""

    @cached_property
    def header(self) -> bytes:
        """Canonical bytes of the question."""
        return self.question.canonical()

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the question and the payload."""
        return request_digest(self.header, self.payload)

    @classmethod
    def from_bytes(cls, header: bytes, payload: bytes) -> "Request":
        """Read what :attr:`header` and :attr:`payload` are.

        Parameters
        ----------
        header : bytes
            Canonical JSON of the question.
        payload : bytes
            As it was sent beside it.

        Returns
        -------
        Request
            As it was written.

        Raises
        ------
        ValueError
            If the header is not the canonical bytes of a question, or the payload not one of it.
        """
        try:
            return request_of(read_question(header), payload)
        except ValueError as error:
            raise ValueError(f"unreadable request: {error}") from None


@dataclass(frozen=True)
class ModelRequest(Request):
    """A question about a model: to train or evaluate it, or to give the moments beneath it.

    Parameters
    ----------
    question : ModelQuestion
        What to do with the model, and how to protect the answer.
    payload : bytes
        Little-endian float32, model.public + d of them: the components, if the model has any, and
        the flat global model.
    """

    question: ModelQuestion
    payload_dtype: ClassVar[str] = "float32"

    def __post_init__(self) -> None:
        if len(self.payload) % 4:
            raise ValueError(f"a float32 model cannot have {len(self.payload)} bytes")

    @classmethod
    def from_bytes(cls, header: bytes, payload: bytes) -> Self:
        """Read a request about a model, as :meth:`Request.from_bytes` reads any.

        Parameters
        ----------
        header : bytes
            Canonical JSON of the question.
        payload : bytes
            Little-endian float32.

        Returns
        -------
        ModelRequest
            As it was written.

        Raises
        ------
        ValueError
            If it is none.
        """
        try:
            return cls(ModelQuestion.from_canonical(header), payload)
        except ValueError as error:
            raise ValueError(f"unreadable request: {error}") from None

    @cached_property
    def model(self) -> np.ndarray:
        """The payload as float32, shape (model.public + d,), read-only."""
        return np.frombuffer(self.payload, dtype="<f4")

    @property
    def dimension(self) -> int:
        """Length of the answer, before padding."""
        question = self.question
        if question.kind == "evaluate":
            return evaluation_length(question.metrics)
        if question.kind == "components":
            return moments_length(question.model.inputs or 0)
        return len(self.model) - question.model.public + self.weighted

    @property
    def weighted(self) -> bool:
        """Return whether the answer ends in the client's weight."""
        return self.trains and self.question.training.weighting == "examples"

    @property
    def encoding(self) -> EncodingSpec:
        """How the update becomes integers."""
        return self.question.encoding


def about_model(request: Request) -> ModelRequest:
    """Narrow a request to one about a model, for what trains.

    Parameters
    ----------
    request : Request
        Of either kind.

    Returns
    -------
    ModelRequest
        The same.

    Raises
    ------
    TypeError
        If it is a query.
    """
    if not isinstance(request, ModelRequest):
        raise TypeError(f"a query of {request.question.kind} has no model")
    return request


@dataclass(frozen=True)
class CountEncoding:
    """How a query's answer becomes integers: it is some already, of bounded magnitude.

    Attributes
    ----------
    bound : int
        Largest coordinate of one client's answer.
    moves : tuple of int
        How far one unit moves the sum: see :mod:`zerosum.client.queries.moves`.
    signed : bool
        Whether coordinates may be negative.
    """

    bound: int
    moves: tuple[int, ...]
    signed: bool = False


@dataclass(frozen=True)
class QueryRequest(Request):
    """A query of the clients' tables.

    Parameters
    ----------
    question : QueryQuestion
        Query, domains and noise.
    payload : bytes
        Prefixes that a round of `words` asks about, ascending, joined by newlines, in UTF-8; empty
        for its first round and for all other queries.
    """

    question: QueryQuestion
    payload_dtype: ClassVar[str] = "uint8"

    def __post_init__(self) -> None:
        # The limit on cells is the policy's, and the analyst's: here they only have to be known.
        self.question.query.check(
            self.question.domains, payload=self.payload, max_cells=MOST_COORDINATES
        )

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the answer, one after another."""
        return self.question.query.blocks(self.question.domains, self.payload)

    @cached_property
    def dimension(self) -> int:
        """Cells of all blocks."""
        return dimension(self.blocks)

    @cached_property
    def encoding(self) -> CountEncoding:
        """The largest coordinate, of max_records records (of ``cap``), and a unit's moves."""
        question, privacy = self.question, self.question.privacy
        if privacy.noise_inside:
            return CountEncoding(1, ())  # support vectors, of zeros and ones
        records = privacy.cap or question.max_records
        heaviest = max(block.weight for block in self.blocks)
        return CountEncoding(
            min(records, question.max_records) * heaviest,
            moves(self.blocks, unit=privacy.unit, adjacency=privacy.adjacency, cap=privacy.cap),
        )


def request_of(question: ModelQuestion | QueryQuestion, payload: bytes) -> Request:
    """Return the request of a question of either class.

    Parameters
    ----------
    question : Question
    payload : bytes
        Of a model: little-endian float32.

    Returns
    -------
    Request
        A ModelRequest or a QueryRequest.

    Raises
    ------
    ValueError
        If the payload is none of such a question.
    """
    if isinstance(question, QueryQuestion):
        return QueryRequest(question, payload)
    return ModelRequest(question, payload)
