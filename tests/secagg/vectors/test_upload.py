"""Bytes that a client sends in a whole session, by the lengths of its messages."""

import numpy as np
import pytest

from zerosum.secagg.graph.parameters import graph_parameters
from zerosum.secagg.messages.all_messages import (
    KEY_BYTES,
    SEALED_BYTES,
    SHARE_BYTES,
    SIGNATURE_BYTES,
    Advert,
    Confirmation,
    Contribution,
    Shares,
    UnmaskShares,
    neighbours_bytes,
)
from zerosum.secagg.wire import bitmap_bytes, to_bitmap


def uploaded(session, holders, dealers):
    """Bytes of all messages of a client with so many neighbours out and in."""
    digest, index, size = session.digest, session.cohort[-1], session.size
    key, signature = bytes(KEY_BYTES), bytes(SIGNATURE_BYTES)
    drawn = bytes(neighbours_bytes(session))
    vector = np.zeros(session.vector_length, session.ring.dtype)
    messages = (
        Advert(digest, index, key, key, key, drawn, signature),
        Shares(digest, index, to_bitmap(range(holders), size), bytes(SEALED_BYTES * holders)),
        Contribution(digest, index, bytes(32), vector, session.ring_bits),
        Confirmation(digest, index, signature),
        UnmaskShares(digest, index, bytes(bitmap_bytes(size)), bytes(SHARE_BYTES * dealers)),
    )
    return sum(message.wire_bytes for message in messages)


@pytest.mark.parametrize(("sparse", "most"), [(True, 1.65), (False, 1.70)])
def test_upload_of_a_thousand_clients_is_little_more_than_the_ring_takes(lab, sparse, most):
    n, d, bits = 1024, 1 << 20, 16
    chosen = graph_parameters(n, 0.05, 0.05, "malicious", complete_below=0 if sparse else n + 1)
    session = lab.session(
        n,
        mode="malicious",
        degree=chosen.degree,
        threshold=chosen.threshold,
        ring_bits=bits + 10,
        vector_length=d,
    )
    # On a sparse graph a client may be drawn by up to three times as many as it draws.
    dealers = 3 * chosen.degree if sparse else chosen.degree
    ratio = uploaded(session, chosen.degree, dealers) / (d * bits // 8)
    assert 1.625 < ratio <= most
