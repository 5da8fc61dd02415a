"""Define nodes whose masks are bound to less than their request: controls, never defaults.

No client of this library is one of these. They show what a node would be whose digest covers sorted
names, that hands on a message's metadata as it came, and that reads more texts than it writes.
"""

import copy
import hashlib
from functools import cached_property

from flwr.app import Array, Message, RecordDict
from pydantic import ConfigDict

from zerosum.client.flower.app_request import AppQuestion, AppRequest, unmarked
from zerosum.client.flower.client_app import DeployedEnvironment
from zerosum.client.flower.private_mod import AppEnvironment
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.admission import Declined
from zerosum.client.request import ModelQuestion, ModelRequest
from zerosum.secagg.session import request_digest


def sorted_digest(records: RecordDict) -> bytes:
    """Return a digest of an app's records that ignores their order."""
    digest = hashlib.sha256()
    for name, record in sorted(records.items()):
        digest.update(repr((name, type(record).__name__, len(record))).encode())
        for key, value in sorted(record.items()):
            if isinstance(value, Array):
                header = [value.dtype, value.shape, value.stype]
                digest.update(repr([key, header, len(value.data)]).encode() + value.data)
            else:
                digest.update(repr([key, value]).encode())
    return digest.digest()


class UnboundApp(AppEnvironment):
    """Run another project's app, bound to its records in no order, and to no metadata."""

    def request(self, content: RecordDict) -> AppRequest:
        """Read the request, and compare its records sorted by name."""
        question = AppQuestion.from_canonical(flower_messages.bytes_field(content, "request"))
        records = unmarked(content)
        if sorted_digest(records).hex() != question.content:
            raise Declined("the records sent are not those that the request speaks of")
        return AppRequest(question, b"", records)

    def handed(self, request: AppRequest) -> Message:
        """Return the message as it came, with the app's records."""
        message = copy.copy(self._message)
        message.content = request.records
        return message


class LaxQuestion(ModelQuestion):
    """Accept any float, and write null for values that JSON does not have."""

    model_config = ConfigDict(allow_inf_nan=True, ser_json_inf_nan="null")
    max_loss: float


class LaxRequest(ModelRequest):
    """Digest what the reader itself would write, whatever text it read."""

    @classmethod
    def from_bytes(cls, header: bytes, model: bytes) -> "LaxRequest":
        """Read a request from any text with the same meaning.

        Parameters
        ----------
        header : bytes
            The question, as JSON.
        model : bytes
            float32, little-endian, shape (d,).

        Returns
        -------
        LaxRequest
        """
        question = LaxQuestion.model_validate_json(header)
        return cls(question, model)

    @cached_property
    def digest(self) -> bytes:
        """Return SHA-256 of the question as this class writes it, and the model."""
        return request_digest(json_of(self.question), self.payload)


def json_of(question: ModelQuestion) -> bytes:
    """Return a question as JSON, unchecked."""
    return question.model_dump_json(by_alias=True).encode()


class UnboundNode(DeployedEnvironment):
    """Run this library's own tasks, reading more texts than it writes."""

    def request(self, content: RecordDict) -> ModelRequest:
        """Read a request from any text."""
        header = flower_messages.bytes_field(content, "request")
        return LaxRequest.from_bytes(header, flower_messages.payload_of(content))
