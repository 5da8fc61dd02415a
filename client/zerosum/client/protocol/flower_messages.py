"""The Flower messages of a round: names, records, and their sizes.

Every stage is one Flower message type. Its content is one ConfigRecord of bytes and strings;
the contribute stage also carries the model as an ArrayRecord. A stage of the next session, keys or
sealed shares, may ride along in a ConfigRecord of its own, and is answered in one.
"""

from collections.abc import Mapping
from typing import Final

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from zerosum.secagg import Message as ProtocolMessage
from zerosum.secagg.stages import OPENING, Stage

STAGE_TYPES: Final[Mapping[str, str]] = {
    stage: f"{'train' if stage is Stage.CONTRIBUTE else 'query'}.{stage}" for stage in Stage
}
"""Flower message type of each protocol stage, in order; confirm only under a malicious server."""

HELLO_TYPE: Final = "query.hello"

OWN_LOG: Final = "the reason is in this client's log"
"""All that a server is told of a refusal or a failure."""

BUSY: Final = f"this client answers another message; {OWN_LOG}"
"""The same, of a refusal that time heals: whoever waits for this node may go on waiting."""

PIGGYBACKED: Final = OPENING
"""Stages that may ride along with a message of the session before."""

RECORD: Final = "zerosum"
PIGGYBACK: Final = "zerosum.next"
MODEL: Final = "model"

ITEM_BYTES: Final[Mapping[str, int]] = {"float32": 4, "uint8": 1}
"""By type of what a payload holds."""

Value = bytes | str | int


def pack(fields: dict[str, Value], model: ArrayRecord | None = None) -> RecordDict:
    """Put the fields of a message, and perhaps a model, into a RecordDict.

    Parameters
    ----------
    fields : dict
        By name.
    model : flwr.app.ArrayRecord, optional
        As :func:`payload_record` makes it.

    Returns
    -------
    flwr.app.RecordDict
        Content of a message.
    """
    content = RecordDict()
    content[RECORD] = ConfigRecord(dict(fields))
    if model is not None:
        content[MODEL] = model
    return content


class Unpacked(ConfigRecord):
    """Record of a protocol message that stays in this process, where nobody reads its bytes.

    It has no fields. A reader that knows nothing of it finds no message, and one that does checks
    the same as of bytes: :func:`zerosum.secagg.messages.framing.accept`.

    Parameters
    ----------
    message : Message
        As its bytes would be read.
    """

    def __init__(self, message: ProtocolMessage) -> None:
        super().__init__()
        self.__dict__["message"] = message

    @property
    def message(self) -> ProtocolMessage:
        """The message itself."""
        message: ProtocolMessage = self.__dict__["message"]
        return message


def unpacked(message: ProtocolMessage) -> RecordDict:
    """Return the content of a reply that is read in this process.

    Parameters
    ----------
    message : Message
        Of the protocol.

    Returns
    -------
    flwr.app.RecordDict
        Of the same size as :func:`pack` of its bytes.
    """
    content = RecordDict()
    content[RECORD] = Unpacked(message)
    return content


def protocol_message(content: RecordDict) -> bytes | ProtocolMessage:
    """Read the protocol's message, or its bytes.

    Parameters
    ----------
    content : flwr.app.RecordDict
        Of a message from a peer.

    Returns
    -------
    bytes or Message
        As sent.

    Raises
    ------
    ValueError
        If the peer sent neither.
    """
    record = content.get(RECORD)
    return record.message if isinstance(record, Unpacked) else bytes_field(content, "message")


def bytes_field(content: RecordDict, name: str) -> bytes:
    """Read a field of bytes.

    Parameters
    ----------
    content : flwr.app.RecordDict
        Of a message from a peer.
    name : str
        Of the field.

    Returns
    -------
    bytes
        As sent.

    Raises
    ------
    ValueError
        If the peer sent no such field or another type.
    """
    value = _field(content, name)
    if not isinstance(value, bytes):
        raise ValueError(f"message has no field {name!r} of bytes")
    return value


def int_field(content: RecordDict, name: str) -> int:
    """Read an integer field.

    Parameters
    ----------
    content : flwr.app.RecordDict
        Of a message from a peer.
    name : str
        Of the field.

    Returns
    -------
    int
        As sent.

    Raises
    ------
    ValueError
        If the peer sent no such field or another type.
    """
    value = _field(content, name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"message has no integer field {name!r}")
    return value


def joined(
    main: RecordDict | None, piggybacked: RecordDict | None, stage: str = "", round: int = 0
) -> RecordDict:
    """Join a message and a stage of the next session in one content.

    Parameters
    ----------
    main, piggybacked : RecordDict, optional
        As :func:`pack` makes them; either may be missing.
    stage, round
        Of the piggybacked, in a message to a client; its reply needs neither.

    Returns
    -------
    flwr.app.RecordDict
        Content of one message.
    """
    content = RecordDict()
    if main is not None:
        content.update(main)
    if piggybacked is not None:
        record = ConfigRecord(dict(piggybacked.config_records[RECORD]))
        if stage:
            record["stage"], record["round"] = str(stage), round
        content[PIGGYBACK] = record
    return content


def main_part(content: RecordDict) -> RecordDict:
    """Return a content without its piggybacked stage."""
    return RecordDict({name: record for name, record in content.items() if name != PIGGYBACK})


def piggyback(content: RecordDict) -> RecordDict:
    """Return the piggybacked stage as a content of its own; empty if there is none."""
    alone = RecordDict()
    alone[RECORD] = content.config_records.get(PIGGYBACK, ConfigRecord())
    return alone


def piggyback_stage(content: RecordDict) -> str | None:
    """Return the name of the piggybacked stage; None if there is none."""
    if PIGGYBACK not in content:
        return None
    return str(piggyback(content).config_records[RECORD].get("stage"))


def _field(content: RecordDict, name: str) -> object:
    record = content.get(RECORD)
    return record.get(name) if isinstance(record, ConfigRecord) else None


def size(content: RecordDict) -> int:
    """Count the payload bytes of a message: fields and arrays, without Flower's framing."""
    total = 0
    for record in content.values():
        total += record.message.wire_bytes if isinstance(record, Unpacked) else 0
        for value in record.values():
            data = value.data if isinstance(value, Array) else value
            total += len(data) if isinstance(data, bytes) else len(str(data))
    return total


def payload_record(payload: bytes, *, dtype: str = "float32") -> ArrayRecord:
    """Wrap a request's payload, without Flower's own array format.

    Parameters
    ----------
    payload : bytes
        A flat little-endian model, or whatever a query is about.
    dtype : str
        As Flower's: "float32" for a model, "uint8" for bytes.

    Returns
    -------
    flwr.app.ArrayRecord
        One object for all messages of a stage.
    """
    shape = (len(payload) // ITEM_BYTES[dtype],)
    return ArrayRecord({"flat": Array(dtype=dtype, shape=shape, stype="raw", data=payload)})


def payload_of(content: RecordDict) -> bytes:
    """Read the payload of a request.

    Parameters
    ----------
    content : flwr.app.RecordDict
        Of a contribute message.

    Returns
    -------
    bytes
        Of a model: little-endian float32.

    Raises
    ------
    ValueError
        If there is none.
    """
    arrays = content.get(MODEL)
    if not isinstance(arrays, ArrayRecord) or "flat" not in arrays:
        raise ValueError("message carries no model and no payload of a query")
    return bytes(arrays["flat"].data)
