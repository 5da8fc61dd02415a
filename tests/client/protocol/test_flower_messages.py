"""Contents of messages: a protocol's message as bytes, or itself where nobody reads the bytes."""

import numpy as np
import pytest

from zerosum.client.protocol import flower_messages
from zerosum.secagg.messages.all_messages import Contribution


def contribution() -> Contribution:
    vector = np.arange(5, dtype=np.uint32)
    return Contribution(bytes(32), 3, bytes(32), vector, 20)


def test_an_unpacked_message_is_read_as_itself_and_counted_as_its_bytes() -> None:
    message = contribution()
    content = flower_messages.unpacked(message)
    packed = flower_messages.pack({"message": message.to_bytes()})
    assert flower_messages.protocol_message(content) is message
    assert flower_messages.protocol_message(packed) == message.to_bytes()
    assert flower_messages.size(content) == flower_messages.size(packed)


def test_a_reader_of_bytes_finds_no_message_where_none_was_packed() -> None:
    with pytest.raises(ValueError, match="no field 'message'"):
        flower_messages.bytes_field(flower_messages.unpacked(contribution()), "message")
    with pytest.raises(ValueError, match="no field 'message'"):
        flower_messages.protocol_message(flower_messages.pack({}))
