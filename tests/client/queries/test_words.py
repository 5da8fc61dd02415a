"""Each round of the search counts a word once, under the one prefix that it begins with."""

from collections import Counter

import pytest

from zerosum.client.queries import words
from zerosum.client.queries.encode import encode
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.query import Words
from zerosum.client.queries.schema import Schema, TextColumn
from zerosum.client.queries.table import Table
from zerosum.secagg.randomness import insecure_keystream

PAD = words.PADDING


def counted(schema, table, payload, query):
    return encode(
        query,
        schema,
        table,
        unit="record",
        cap=None,
        max_records=100,
        payload=payload,
        secret=bytes(32),
        coins=insecure_keystream(1, "coins"),
    )


@pytest.mark.parametrize("length", range(1, 8))
def test_rounds_without_threshold_count_every_word(length):
    """All prefixes that are held survive; the last round's candidates are the words."""
    texts = ["a", "b", "ab", "ba", "abba", "abbab", "abb", "aaaaaaa", "a", "ab", "", "xa", None]
    column = TextColumn(length=length, alphabet="ab")
    schema = Schema.of({"w": column})
    table = Table.of({"w": texts}, schema)
    query = Words(column="w")
    payload = b""
    for number in range(query.rounds(schema)):
        counts = counted(schema, table, payload, query)
        names = words.candidates(column, words.prefixes(column, payload, 400))
        assert len(counts) == len(names) == query.blocks(schema, payload)[0].cells
        assert list(names) == sorted(set(names))
        assert {len(name) for name in names} == {2 * number + 2}
        payload = "\n".join(n for n, c in zip(names, counts, strict=True) if c).encode()
    expected = Counter(t for t in texts if t and len(t) <= length and set(t) <= set("ab"))
    found = {n.rstrip(PAD): int(c) for n, c in zip(names, counts, strict=True) if c}
    assert found == expected


def test_candidates_continue_finished_words_by_padding_alone():
    column = TextColumn(length=5, alphabet="ab")
    assert words.candidates(column, ("",)) == (
        "a" + PAD, "aa", "ab", "b" + PAD, "ba", "bb",
    )  # fmt: skip
    second = words.candidates(column, ("a" + PAD, "ab"))
    ends = [PAD * 2, "a" + PAD, "aa", "ab", "b" + PAD, "ba", "bb"]
    assert second == ("a" + PAD * 3, *("ab" + end for end in ends))
    third = words.candidates(column, ("a" + PAD * 3, "abab"))
    assert third == ("a" + PAD * 5, "abab" + PAD * 2, "ababa" + PAD, "ababb" + PAD)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"ab\nab", "ascend strictly"),
        (b"b\x00\nab", "ascend strictly"),
        (b"ab\nabab", "one length, 2"),
        (b"a", "prefixes of 1 characters"),
        (b"ababab", "prefixes of 6 characters"),
        (b"\n", "prefixes of 0 characters"),
        (b"ab\n", "one length, 2"),
        (b"ax", "begins no word"),
        (b"\x00a", "begins no word"),
        (b"\x00\x00", "begins no word"),
        (b"a\x00b\x00", "begins no word"),
        (b"aa\nab\nba\nbb", "4 prefixes and max_prefixes is 3"),
        ("ab".encode("utf-16"), "not UTF-8"),
    ],
)
def test_prefixes_that_would_count_a_record_twice_are_refused(payload, reason):
    schema = Schema.of({"w": {"text": 5, "alphabet": "ab"}})
    query = Words(column="w", max_prefixes=3)
    for ask in (query.check, query.blocks):
        with pytest.raises(QueryError, match=reason):
            ask(schema, payload=payload)


def test_candidates_are_counted_before_they_are_listed():
    alphabet = "".join(map(chr, range(0x4E00, 0x4E00 + 1024)))
    schema = Schema.of({"w": TextColumn(length=256, alphabet=alphabet)})
    payload = "\n".join(a * 2 for a in alphabet[:400]).encode()
    with pytest.raises(QueryError, match="419,840,400 cells"):
        Words(column="w").check(schema, payload=payload, max_cells=1 << 21)


def test_a_later_round_that_is_too_long_is_refused_in_the_first():
    """Else the first would be paid for nothing."""
    alphabet = "".join(map(chr, range(0x4E00, 0x4E00 + 100)))
    schema = Schema.of({"w": TextColumn(length=4, alphabet=alphabet)})
    query = Words(column="w", max_prefixes=200)
    with pytest.raises(QueryError, match="2,020,200 cells"):
        query.check(schema)
    query.check(schema, max_cells=2_020_200)
    Words(column="w", max_prefixes=100).check(schema)
    Words(column="w").check(Schema.of({"w": TextColumn(length=2, alphabet=alphabet)}))


@pytest.mark.parametrize(
    "surviving", [("",), ("aa", "b" + PAD), ("abab", "b" + PAD * 3), ("a" + PAD * 3,)]
)
@pytest.mark.parametrize("length", [5, 6])
def test_the_number_of_candidates_is_that_of_the_list(surviving, length):
    column = TextColumn(length=length, alphabet="ab")
    listed = words.candidates(column, surviving)
    assert words.candidate_count(column, surviving) == len(listed)
