"""Define the request to a cohort: one question, one hash.

The hash enters every mask (see ``zerosum.secagg.session``), so a client that was asked
something else than its fellows masks with nobody.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.client.spec import (
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PositiveFloat,
    PrivacySpec,
    Scale,
    Spec,
    TrainSpec,
)
from zerosum.secagg.session import request_digest

Kind = Literal["train", "evaluate", "components"]
"""A private sum of updates, of metrics, or of the moments that principal components are read from.
"""


def moments_length(inputs: int) -> int:
    """Return the entries of the upper triangle of a symmetric matrix of so many rows."""
    return inputs * (inputs + 1) // 2


class Question(Spec):
    """The parts of a request but its model."""

    kind: Kind
    round: int
    seed: int
    population: int
    task: str
    data: DataSpec
    model: ModelSpec
    training: TrainSpec
    privacy: PrivacySpec
    encoding: EncodingSpec
    noise_draw: Literal["per_client", "summed"]
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
        return self


def evaluation_length(metrics: Collection[str]) -> int:
    """Return the length of an evaluation's answer: the loss, the metrics and the count."""
    return len(metrics) + 2


@dataclass(frozen=True)
class Request:
    """A question about a model.

    Parameters
    ----------
    question : Question
        What to do with the model, and how to protect the answer.
    model : numpy.ndarray
        float32, shape (model.public + d,): the components, if the model has any, and the flat
        global model.
    """

    question: Question
    model: np.ndarray

    @property
    def dimension(self) -> int:
        """Length of the answer, before padding."""
        question = self.question
        if question.kind == "evaluate":
            return evaluation_length(question.metrics)
        if question.kind == "components":
            return moments_length(question.model.inputs or 0)
        trained = len(self.model) - question.model.public
        return trained + (question.training.weighting == "examples")

    @cached_property
    def header(self) -> bytes:
        """Canonical bytes of the question."""
        return self.question.canonical()

    @cached_property
    def model_bytes(self) -> bytes:
        """The model as little-endian float32."""
        return self.model.astype("<f4", copy=False).tobytes()

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the question and the model."""
        return request_digest(self.header, self.model_bytes)

    @classmethod
    def from_bytes(cls, header: bytes, model: bytes) -> "Request":
        """Read what :attr:`header` and :attr:`model_bytes` wrote.

        Parameters
        ----------
        header : bytes
            Canonical JSON of the question.
        model : bytes
            Little-endian float32 words.

        Returns
        -------
        Request
            As it was written.

        Raises
        ------
        ValueError
            If the header is not the canonical bytes of a question, or the model not whole float32
            words.
        """
        try:
            question = Question.from_canonical(header)
        except ValueError as error:
            raise ValueError(f"unreadable request: {error}") from None
        if len(model) % 4:
            raise ValueError(f"a float32 model cannot have {len(model)} bytes")
        return cls(question, np.frombuffer(model, dtype="<f4"))
