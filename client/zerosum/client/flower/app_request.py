"""Requests to somebody else's Flower app: its own message, and the protection of the answer.

The records that a strategy sends (arrays, config) travel beside the request as they are, their
names marked; the request holds their digest (:mod:`~zerosum.client.flower.request_digest`), and so
is bound to the masks like any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Final, Self, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, RecordDict, UserConfig
from pydantic import Field

from zerosum.client.flower.arrays import ArrayLayout
from zerosum.client.flower.request_digest import Record, config_digest, rebuilt, records_digest
from zerosum.client.protocol import flower_messages
from zerosum.client.request import ModelQuestion, ModelRequest
from zerosum.client.spec import Scale
from zerosum.client.spec.section import Spec
from zerosum.client.spec.training import APP_TASK

TASK: Final = APP_TASK
"""Stands for the task in a question: what trains is the app that the mod wraps."""

_MARK: Final = "app."
_ENVELOPE: Final = "zerosum.stage"

QuestionT = TypeVar("QuestionT", bound=Spec)


class AppQuestion(ModelQuestion):
    """Request to an app without the app's own records."""

    content: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the records that the app is handed, in their order."""
    message_type: str
    """Type of the message that the app is handed, with its action: which function answers."""
    run_config: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the run config that the app is handed in its context."""
    weight_key: str
    """Name of the number of examples in the app's metrics."""
    metrics: dict[str, Scale]
    """Metrics that an evaluation sums, by name, each with its largest magnitude."""


@dataclass(frozen=True)
class AppRequest(ModelRequest):
    """Request to an app about the records that a strategy sent.

    Parameters
    ----------
    question : AppQuestion
        What to do, and how to protect the answer.
    payload : bytes
        Empty: the arrays are among the records.
    records : RecordDict
        What the app is handed.
    """

    question: AppQuestion
    records: RecordDict

    @classmethod
    def of(
        cls,
        question: ModelQuestion,
        records: RecordDict,
        *,
        message_type: str,
        run_config: UserConfig,
        weight_key: str,
        metrics: Mapping[str, float],
    ) -> Self:
        """Ask a question about these records, of an app's function for messages of this type.

        Parameters
        ----------
        question : ModelQuestion
            What any client is asked.
        records : flwr.app.RecordDict
            Of the strategy's message.
        message_type : str
            Chooses the app's function.
        run_config : dict
            Of the run, as apps see it.
        weight_key : str
            Name of the number of examples in the app's metrics.
        metrics : mapping of str to float
            Metrics that an evaluation sums, each with its largest magnitude.

        Returns
        -------
        AppRequest
            Bound to all of these.

        Raises
        ------
        ValueError
            If they hold what no digest knows.
        """
        records = rebuilt(records)
        fields = dict(question) | {
            "content": records_digest(records).hex(),
            "message_type": message_type,
            "run_config": config_digest(run_config).hex(),
            "weight_key": weight_key,
            "metrics": dict(sorted(metrics.items())),
        }
        return cls(AppQuestion(**fields), b"", records)

    @classmethod
    def read(cls, content: RecordDict) -> Self:
        """Read a request and its records from a message.

        Parameters
        ----------
        content : flwr.app.RecordDict
            Of a contribute message.

        Returns
        -------
        AppRequest
            Checked.

        Raises
        ------
        ValueError
            If there is none, its bytes are not canonical, the records are not those that it speaks
            of, or their arrays cannot be summed.
        """
        question = question_in(content, AppQuestion)
        request = cls(question, b"", records_in(content, question.content))
        if request.dimension < 1:
            raise ValueError("the model has no entries")
        return request

    @property
    def arrays(self) -> ArrayRecord:
        """The model among the records; raises ValueError unless there is exactly one."""
        return only_arrays(self.records)

    @cached_property
    def layout(self) -> ArrayLayout:
        """Return the places of the model's arrays in the vector."""
        return ArrayLayout.of(self.arrays)

    @property
    def dimension(self) -> int:
        """Length of the answer, before padding."""
        question = self.question
        if question.kind == "evaluate":
            return len(question.metrics) + 1
        return self.layout.length + (question.training.weighting == "examples")


def question_in(content: RecordDict, kind: type[QuestionT]) -> QuestionT:
    """Read the question of a request.

    Parameters
    ----------
    content : flwr.app.RecordDict
        Of a contribute message.
    kind : type
        Of the question.

    Returns
    -------
    kind
        What is asked.

    Raises
    ------
    ValueError
        If there is none, or its bytes are not canonical.
    """
    header = flower_messages.bytes_field(content, "request")
    try:
        return kind.from_canonical(header)
    except ValueError as error:
        raise ValueError(f"unreadable request: {error}") from None


def records_in(content: RecordDict, digest: str) -> RecordDict:
    """Read the app's records of a request.

    Parameters
    ----------
    content : flwr.app.RecordDict
        Of a contribute message.
    digest : str
        SHA-256 that the question gives, in hexadecimal digits.

    Returns
    -------
    flwr.app.RecordDict
        In their order, under their own names.

    Raises
    ------
    ValueError
        If they have another digest.
    """
    records = unmarked(content)
    if records_digest(records).hex() != digest:
        raise ValueError("the records sent are not those that the request speaks of")
    return records


def only_arrays(records: RecordDict) -> ArrayRecord:
    """Return the one ArrayRecord of a message.

    Parameters
    ----------
    records : flwr.app.RecordDict
        Of a message or a reply.

    Returns
    -------
    flwr.app.ArrayRecord
        The model.

    Raises
    ------
    ValueError
        If there are more, or none.
    """
    arrays = list(records.array_records.values())
    if len(arrays) != 1:
        raise ValueError(f"a message has exactly one ArrayRecord, and this has {len(arrays)}")
    return arrays[0]


def marked(records: RecordDict) -> dict[str, Record]:
    """Prefix an app's record names, so that none collides with a name of this program."""
    return {_MARK + name: record for name, record in records.items()}


def unmarked(content: RecordDict) -> RecordDict:
    """Rebuild the app's records of a message, in their order, under their own names."""
    named = {k.removeprefix(_MARK): v for k, v in content.items() if k.startswith(_MARK)}
    return rebuilt(RecordDict(named))


def enveloped(content: RecordDict, stage_type: str, records: RecordDict) -> RecordDict:
    """Put a stage's content into a message of the app's own type.

    Flower hands a mod no message of a type that the app has no function for, so every stage goes
    as the app's own type, and says within what it is.

    Parameters
    ----------
    content : flwr.app.RecordDict
        Of the stage.
    stage_type : str
        The stage's own message type.
    records : flwr.app.RecordDict
        The app's; empty at all stages but contribute.

    Returns
    -------
    flwr.app.RecordDict
        What is sent.
    """
    envelope = RecordDict({**content, **marked(records)})
    envelope[_ENVELOPE] = ConfigRecord({"type": stage_type})
    return envelope


def stage_type(content: RecordDict) -> str | None:
    """Return the stage's message type from an envelope; None if there is no envelope."""
    record = content.get(_ENVELOPE)
    value = record.get("type") if isinstance(record, ConfigRecord) else None
    return value if isinstance(value, str) else None
