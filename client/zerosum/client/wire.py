"""The Flower messages of a round: names, records, and their sizes.

Every stage is one Flower message type. Its content is one ConfigRecord of bytes and strings;
the contribute stage also carries the model as an ArrayRecord.
"""

from typing import Final

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

STAGE_TYPES: Final = {
    "advertise": "query.advertise",
    "share": "query.share",
    "contribute": "train.contribute",
    "confirm": "query.confirm",
    "unmask": "query.unmask",
}
"""Flower message type of each protocol stage, in order; confirm only under a malicious server."""

HELLO_TYPE: Final = "query.hello"

RECORD: Final = "zerosum"
MODEL: Final = "model"

Value = bytes | str | int


def pack(fields: dict[str, Value], model: ArrayRecord | None = None) -> RecordDict:
    """Put the fields of a message, and perhaps a model, into a RecordDict."""
    content = RecordDict()
    content[RECORD] = ConfigRecord(dict(fields))
    if model is not None:
        content[MODEL] = model
    return content


def bytes_field(content: RecordDict, name: str) -> bytes:
    """Read a field of bytes.

    Raises
    ------
    ValueError
        If the peer sent no such field or another type.
    """
    value = _field(content, name)
    if not isinstance(value, bytes):
        raise ValueError(f"message has no field {name!r} of bytes")
    return value


def str_field(content: RecordDict, name: str) -> str:
    """Read a field of text; raises ValueError as :func:`bytes_field` does."""
    value = _field(content, name)
    if not isinstance(value, str):
        raise ValueError(f"message has no field {name!r} of text")
    return value


def int_field(content: RecordDict, name: str) -> int:
    """Read an integer field; raises ValueError as :func:`bytes_field` does."""
    value = _field(content, name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"message has no integer field {name!r}")
    return value


def _field(content: RecordDict, name: str) -> object:
    record = content.get(RECORD)
    return record.get(name) if isinstance(record, ConfigRecord) else None


def size(content: RecordDict) -> int:
    """Return the bytes of payload in a message: fields and arrays, without Flower's framing."""
    total = 0
    for record in content.values():
        for value in record.values():
            data = value.data if isinstance(value, Array) else value
            total += len(data) if isinstance(data, bytes) else len(str(data))
    return total


def model_record(data: bytes, length: int) -> ArrayRecord:
    """Wrap a flat little-endian float32 model, without Flower's own array format."""
    return ArrayRecord({"flat": Array(dtype="float32", shape=(length,), stype="raw", data=data)})


def model_bytes(content: RecordDict) -> bytes:
    """Read the bytes of the flat model; raises ValueError when there is none."""
    arrays = content.get(MODEL)
    if not isinstance(arrays, ArrayRecord) or "flat" not in arrays:
        raise ValueError("message carries no model")
    return bytes(arrays["flat"].data)
