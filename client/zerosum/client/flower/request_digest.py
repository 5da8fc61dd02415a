"""Digest of all that somebody else's app can observe of a message; the rest is blank.

Masks are bound to a digest, so that a client which was handed something else than its fellows masks
with nobody. That holds for what the digest covers alone. Whatever else an app could see, a server
could set for one client, and read its exact update from a sum to which the others gave nothing:
the order of arrays is enough for an app that reads them by place.

Two rules follow. Records are hashed in the order in which an app meets them, every value with its
type. Everything else that a server or the transport between chooses is replaced by a constant:
message ids, times, nodes, the group, the run's id.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
    UserConfig,
)

from zerosum.client.flower.flower_internals import received_message

Record: TypeAlias = ArrayRecord | ConfigRecord | MetricRecord

_KINDS: Final[Mapping[type[Record], bytes]] = {
    ArrayRecord: b"arrays",
    ConfigRecord: b"config",
    MetricRecord: b"metrics",
}

# Flower's own order: a truth is an integer to Python, so it is asked for first. An enumeration of
# texts is sent as the text that it is, which is not what str() says of it.
_SCALARS: Final[Mapping[type, Callable[[Any], Any]]] = {
    bool: bool,
    int: int,
    float: float,
    str: str.__str__,
    bytes: bytes,
}

_ENDLESS_SECONDS: Final = float(1 << 40)
"""How long a message lives that was created at second 0: beyond any reply of an app."""


def rebuilt(records: RecordDict) -> RecordDict:
    """Return the same records made anew: of plain parts, without what a transport keeps in them.

    Flower keeps ids and chunks of a transfer within arrays, and one object for two equal ones.

    Raises
    ------
    ValueError
        If a record or a value is of a kind that no digest knows.
    """
    return RecordDict({name: _rebuilt(name, record) for name, record in records.items()})


def records_digest(records: RecordDict) -> bytes:
    """Return SHA-256 of an app's records: kinds, names, types and values, in the records' order.

    Parameters
    ----------
    records : RecordDict
        As :func:`rebuilt` returns them. An array counts with its dtype, shape, serialisation and
        bytes; any other value with its type and bits, so that 1, 1.0 and true differ, and so do
        0.0 and -0.0.
    """
    digest = hashlib.sha256(b"zerosum app records 2\0")
    _add(digest, len(records).to_bytes(8, "little"))
    for name, record in records.items():
        _add(digest, _KINDS[_kind(name, record)], name.encode(), len(record).to_bytes(8, "little"))
        for key, value in record.items():
            if isinstance(value, Array):
                shape = b"".join(size.to_bytes(8, "little", signed=True) for size in value.shape)
                said = (value.dtype.encode(), shape, value.stype.encode(), value.data)
                _add(digest, key.encode(), *said)
            else:
                _add(digest, key.encode(), *_encoded(value))
    return digest.digest()


def config_digest(config: UserConfig) -> bytes:
    """Return SHA-256 of a run config: keys, types and values, in the order of :func:`shown`."""
    digest = hashlib.sha256(b"zerosum run config 2\0")
    for key, value in _sorted(config).items():
        _add(digest, key.encode(), *_encoded(value))
    return digest.digest()


def shown_message(message_type: str, records: RecordDict) -> Message:
    """Return the message that an app is handed: its type and records, and nothing of the one sent.

    Parameters
    ----------
    message_type : str
        Bound by the request that the records belong to.
    records : RecordDict
        As :func:`rebuilt` returns them.

    Returns
    -------
    flwr.app.Message
        With blanks for all that nothing is bound to.
    """
    metadata = Metadata(
        run_id=0,
        message_id="",
        src_node_id=0,
        dst_node_id=0,
        reply_to_message_id="",
        group_id="",
        created_at=0.0,
        ttl=_ENDLESS_SECONDS,
        message_type=message_type,
    )
    return received_message(metadata, records)


def shown(context: Context, state: RecordDict) -> Context:
    """Return the context that an app is handed: the node's own, and the run config that is bound.

    The ids of run and node are blank: whoever runs the SuperLink gives them out. The run config is
    sorted by its keys: it travels in a map, which has no order that two nodes could agree on.

    Parameters
    ----------
    context : Context
    state : RecordDict
        What of the node's state the app has.

    Returns
    -------
    flwr.app.Context
        Made anew.
    """
    return Context(
        run_id=0,
        node_id=0,
        node_config=dict(context.node_config),
        state=state,
        run_config=_sorted(context.run_config),
    )


def _sorted(config: UserConfig) -> UserConfig:
    return {key: config[key] for key in sorted(config)}


def _kind(name: str, record: object) -> type[Record]:
    for kind in _KINDS:
        if isinstance(record, kind):
            return kind
    raise ValueError(f"record {name!r} is a {type(record).__name__}: no digest binds its content")


def _rebuilt(name: str, record: Record) -> Record:
    _kind(name, record)
    if isinstance(record, ArrayRecord):
        return ArrayRecord({key: _rebuilt_array(array) for key, array in record.items()})
    values: dict[str, Any] = {k: _plain(f"{name}.{k}", value) for k, value in record.items()}
    return (ConfigRecord if isinstance(record, ConfigRecord) else MetricRecord)(values)


def _rebuilt_array(array: Array) -> Array:
    shape = tuple(map(int, array.shape))
    if any(not 0 <= size < 1 << 63 for size in shape):
        raise ValueError(f"an array of shape {shape}: no array has one")
    return Array(
        dtype=str(array.dtype), shape=shape, stype=str(array.stype), data=bytes(array.data)
    )


def _plain(where: str, value: object) -> Any:
    """Return a value as Flower's bytes hand it on: of the plain type, a list's the same for all."""
    for kind, plain in _SCALARS.items():
        if isinstance(value, kind):
            return plain(value)
        if isinstance(value, list) and all(isinstance(item, kind) for item in value):
            return list(map(plain, value))
    raise ValueError(f"{where} is a {type(value).__name__}: no value of a record")


def _encoded(value: object) -> Iterable[bytes]:
    """Yield a value's parts: each scalar after its type, a list's after their number."""
    if isinstance(value, list):
        yield b"list" + len(value).to_bytes(8, "little")
        for item in value:
            yield from _encoded(item)
    elif isinstance(value, bool):
        yield b"bool" + bytes((value,))
    elif isinstance(value, int):
        yield b"int" + str(value).encode()
    elif isinstance(value, float):
        yield b"float" + struct.pack(">d", value)
    elif isinstance(value, str):
        yield b"str" + value.encode()
    elif isinstance(value, bytes):
        yield b"bytes" + value
    else:
        raise ValueError(f"a {type(value).__name__} is no value of a record or a run config")


def _add(digest: "hashlib._Hash", *parts: bytes) -> None:
    """Add the number of parts, and each after its length."""
    digest.update(len(parts).to_bytes(8, "little"))
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
