"""A node's index, as a shell or a file may hand it over."""

import pytest

from zerosum.client.flower.node_index import node_index
from zerosum.client.protocol.admission import Declined


@pytest.mark.parametrize(
    ("written", "index"), [(0, 0), (3, 3), ("3", 3), ("007", 7), (2**63 - 1, 2**63 - 1)]
)
def test_a_whole_number_or_its_digits_is_an_index(written, index):
    read = node_index({"partition-id": written})
    assert read == index
    assert type(read) is int


@pytest.mark.parametrize(
    "written",
    [True, False, -1, "-1", 3.5, 3.0, "abc", "", " 3", "3.0", "1e3", "²", "٣", 2**63, "9" * 5000],
    ids=repr,
)
def test_anything_else_is_declined_in_a_line_that_names_the_key_and_the_cure(written):
    with pytest.raises(Declined, match=r"node config partition-id = .*--node-config") as told:
        node_index({"partition-id": written})
    assert "\n" not in str(told.value)


def test_a_node_without_an_index_is_told_what_to_write():
    with pytest.raises(Declined, match=r"node config partition-id is missing: .* 'partition-id=0'"):
        node_index({"state-dir": "x"})
