"""Queries of somebody else's Flower app: declared values of its reply, summed over clients.

The app's function for `query` messages answers as ever, with a RecordDict. The request declares
which values of it are summed, and nothing else of it leaves the node. Whatever the reply holds, the
vector has the declared length: what is missing, of another length or not finite makes the client a
dropout without noise, and noise alone with it.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict, UserConfig
from numpy.typing import NDArray
from pydantic import Field

from zerosum.client.flower.app_request import question_in, records_in
from zerosum.client.flower.request_digest import config_digest, rebuilt, records_digest
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.sum_request import SumRequest
from zerosum.client.queries.declared_sums import DeclaredSum, SumQuestion
from zerosum.secagg.randomness import Keystream

log = logging.getLogger("zerosum.client")

_QUERY: Final = b'{"kind":"query",'
"""The canonical bytes of such a question begin so, and those of a model's do not."""


class AppReplyError(ValueError):
    """The app's reply cannot be summed; the message says what it lacks."""


class AppSumQuestion(SumQuestion):
    """Request to an app for sums of its values, without the app's own records."""

    content: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the records that the app is handed, in their order."""
    message_type: str
    """Type of the message that the app is handed, with its action: which function answers."""
    run_config: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the run config that the app is handed in its context."""


@dataclass(frozen=True)
class AppSumRequest(SumRequest):
    """Request to an app for sums of its values.

    Parameters
    ----------
    question : AppSumQuestion
        What is summed, and how it is protected.
    payload : bytes
        Empty.
    records : RecordDict
        What the app is handed.
    """

    question: AppSumQuestion
    records: RecordDict

    @classmethod
    def of(
        cls,
        question: SumQuestion,
        records: RecordDict,
        *,
        message_type: str,
        run_config: UserConfig,
    ) -> Self:
        """Ask a question with these records, of an app's function for messages of this type.

        Parameters
        ----------
        question : SumQuestion
            What is summed.
        records : flwr.app.RecordDict
            Of the ServerApp's message.
        message_type : str
            Chooses the app's function.
        run_config : dict
            Of the run, as apps see it.

        Returns
        -------
        AppSumRequest
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
        }
        return cls(AppSumQuestion(**fields), b"", records)

    @classmethod
    def read(cls, content: RecordDict) -> Self:
        """Read a request and its records from a message.

        Parameters
        ----------
        content : flwr.app.RecordDict
            Of a contribute message.

        Returns
        -------
        AppSumRequest
            Checked.

        Raises
        ------
        ValueError
            If there is none, its bytes are not canonical, or the records are not those that it
            speaks of.
        """
        question = question_in(content, AppSumQuestion)
        return cls(question, b"", records_in(content, question.content))


def asks_for_sums(content: RecordDict) -> bool:
    """Return whether a contribute message asks for sums of an app's values."""
    return flower_messages.bytes_field(content, "request").startswith(_QUERY)


def reply_vector(request: AppSumRequest, reply: RecordDict, coins: Keystream) -> NDArray[np.int64]:
    """Return the declared values of an app's reply, in integer units.

    Parameters
    ----------
    request : AppSumRequest
    reply : flwr.app.RecordDict
        Of the app.
    coins : Keystream
        Of the rounding.

    Returns
    -------
    ndarray of int64, shape (request.dimension,)

    Raises
    ------
    AppReplyError
        If a declared value is missing, or is not of its kind, form or shape.
    """
    question = request.question
    # All are read before one is rounded: what fails must not depend on coins.
    read = [(one, _numbers(one, reply)) for one in question.sums]
    for one, numbers in read:
        _tell_of_cuts(one, numbers)
    parts = [one.integers(numbers, question.privacy, coins) for one, numbers in read]
    return np.concatenate(parts)


def _tell_of_cuts(one: DeclaredSum, numbers: NDArray[np.float64]) -> None:
    """Say what is cut, in the node's own log: nobody else can know that a sum is too small."""
    if beyond := one.beyond(numbers):
        log.warning(
            "%s: %d of %d numbers were cut to what is declared, %s to %.6g; they are from %.6g to "
            "%.6g",
            one.name,
            beyond,
            one.cells,
            "0" if one.kind == "counts" else f"{-one.most:.6g}",
            one.most,
            numbers.min(),
            numbers.max(),
        )


def sums_reply(sums: Sequence[DeclaredSum], values: Sequence[NDArray[Any]]) -> RecordDict:
    """Return the reply of one client that holds everybody's data: the sums, in their records.

    Parameters
    ----------
    sums : sequence of DeclaredSum
    values : sequence of ndarray
        Of each, shape (cells,).

    Returns
    -------
    flwr.app.RecordDict
        Of declared values alone.
    """
    found: dict[str, dict[str, Any]] = {}
    arrays: set[str] = set()
    for one, numbers in zip(sums, values, strict=True):
        if one.form == "array":
            arrays.add(one.record)
            value: Any = Array(numbers.reshape(one.shape))
        else:
            value = numbers.tolist() if one.form == "list" else numbers.tolist()[0]
        found.setdefault(one.record, {})[one.key] = value
    return RecordDict(
        {
            name: ArrayRecord(record) if name in arrays else MetricRecord(record)
            for name, record in found.items()
        }
    )


def _numbers(one: DeclaredSum, reply: RecordDict) -> NDArray[np.float64]:
    """Return a declared value's numbers, shape (cells,)."""
    record = reply.get(one.record)
    if record is None:
        raise AppReplyError(f"the app's reply has no record {one.record!r}")
    if one.key not in record:
        raise AppReplyError(f"the app's reply has no {one.name}")
    value: Any = record[one.key]
    try:
        found = value.numpy() if isinstance(value, Array) else np.asarray(value)
    except Exception as error:  # of Flower's format, numpy's, or of a zip file, which numpy reads
        raise AppReplyError(f"{one.name} cannot be read: {error}") from None
    if (one.form == "array") != isinstance(value, Array) or found.shape != one.shape:
        raise AppReplyError(
            f"{one.name} has shape {found.shape}, and {_declared(one)} is declared: what is summed "
            "has the same length at every client (records, as times of events, have not: count "
            "them over a grid that is fixed beforehand)"
        )
    if found.dtype.kind not in ("iu" if one.kind == "counts" else "fiu"):
        raise AppReplyError(f"{one.name} has dtype {found.dtype}, and {one.kind} are declared")
    numbers = found.astype(np.float64).reshape(-1)
    if not np.isfinite(numbers).all():
        raise AppReplyError(f"{one.name} is not finite")
    return numbers


def _declared(one: DeclaredSum) -> str:
    return "a number" if one.form == "number" else f"a {one.form} of shape {one.shape}"
