"""A query has one text, and none that could be answered otherwise than it is priced."""

import json
import math

import pytest
from asked_queries import COUNT, HISTOGRAM, LOCAL, SCHEMA, privacy_of, query_request
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from zerosum.client.queries.columns import CategoryColumn
from zerosum.client.queries.moves import moves
from zerosum.client.queries.predicate import In, Or
from zerosum.client.queries.query import Bayes, Histogram, Marginals, Moments, Oracle, Words
from zerosum.client.queries.schema import Schema
from zerosum.client.request import ModelRequest, QueryQuestion, QueryRequest, Request

WORDS = Words(column="word", max_prefixes=3)


def read(header, payload=b""):
    return Request.from_bytes(header, payload)


@pytest.mark.parametrize(
    ("query", "changes"),
    [
        (COUNT, {}),
        (HISTOGRAM, {"unit": "client", "cap": 5, "adjacency": "replace"}),
        (Moments(kind="variance", column="age", weight=256), {"law": "skellam", "scale": 9.5}),
        (Marginals(cliques=(("sex", "age"), ("sex",))), {"max_records": 1000}),
        (Oracle(column="sex", oracle="olh"), LOCAL),
    ],
)
def test_what_is_written_is_read(query, changes):
    request = query_request(query, **changes)
    again = read(request.header)
    assert isinstance(again, QueryRequest)
    assert again.question == request.question
    assert again.header == request.header
    assert again.digest == request.digest
    assert again.dimension == request.dimension


def test_a_query_keeps_the_bytes_that_nodes_agreed_on():
    """A change of them is a change of protocol: clients of two versions would mask with nobody."""
    assert query_request(COUNT).digest.hex() == GOLDEN
    assert query_request(COUNT).header.startswith(b'{"kind":"query","round":1,"seed":0,')


GOLDEN = "c895be38205eef910150e67fab25a06f2b66ef83ed22de93a4a7664a7d32c36b"

OTHERS = {
    "a space": ('"round":1', '"round": 1'),
    "another order": ('"round":1,"seed":0', '"seed":0,"round":1'),
    "a key twice": ('"round":1', '"round":2,"round":1'),
    "an unknown key": ('"round":1', '"round":1,"more":1'),
    "a key left out": ('"max_records":1048576,', ""),
    "an integer for a float": ('"scale":10.0', '"scale":10'),
    "NaN": ('"scale":10.0', '"scale":NaN'),
    "infinity": ('"scale":10.0', '"scale":Infinity'),
    "a number beyond floats": ('"scale":10.0', '"scale":1e999'),
    "no noise": ('"scale":10.0', '"scale":0.0'),
    "less noise than is drawn": ('"scale":10.0', '"scale":0.001'),
    "a law that nobody draws": ('"law":"geometric"', '"law":"uniform"'),
    "a law of the local model": ('"law":"geometric"', '"law":"randomized-response"'),
    "auto": ('"law":"geometric"', '"law":"auto"'),
    "shares that take hours to draw": ('"honest_fraction":0.8', '"honest_fraction":1e-06'),
    "all of the cohort and more": ('"honest_fraction":0.8', '"honest_fraction":1.5'),
    "a cap that nobody asked for": ('"cap":null', '"cap":3'),
    "a client without a cap": ('"unit":"record"', '"unit":"client"'),
    "a column of no domain": ('"column":"age"', '"column":"wage"'),
    "a bound that is not finite": ('"high":100000.0', '"high":Infinity'),
    "no records": ('"max_records":1048576', '"max_records":0'),
    "a kind that nobody knows": ('"kind":"count"', '"kind":"minimum"'),
    "a model's kind": ('{"kind":"query"', '{"kind":"train"'),
}


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_text_is_a_query(name):
    header, (own, other) = query_request(COUNT).header, OTHERS[name]
    assert own.encode() in header
    with pytest.raises(ValueError, match="unreadable request"):
        read(header.replace(own.encode(), other.encode(), 1))


UNRESOLVED = {
    "a weight": (lambda: Moments(kind="mean", column="age"), {}, "has its weight"),
    "an oracle": (lambda: Oracle(column="sex"), LOCAL, "names its oracle"),
    "noise on an oracle": (lambda: Oracle(column="sex", oracle="oue"), {}, 'model = "local"'),
    "no noise on a count": (lambda: COUNT, LOCAL, 'model = "local"'),
}


@pytest.mark.parametrize("name", UNRESOLVED)
def test_what_two_readers_could_complete_differently_is_refused(name):
    query, privacy, why = UNRESOLVED[name]
    with pytest.raises(ValidationError, match=why):
        query_request(query(), **privacy)


WRONG_PREFIXES: dict[str, tuple[str | bytes, str]] = {
    "not ascending": ("b\0\nab", "ascend"),
    "twice": ("ab\nab", "ascend"),
    "of two lengths": ("ab\nabba", "one length"),
    "of no round": ("a\nb", "no round"),
    "as long as a word": ("abba", "no round"),
    "foreign": ("ac", "begins no word"),
    "padded within": ("\0a", "begins no word"),
    "too many": ("aa\nab\nba\nbb", "max_prefixes"),
    "no text": (b"\xff\xff", "UTF-8"),
    "an end of line": ("ab\n", "one length"),
}


@pytest.mark.parametrize("name", WRONG_PREFIXES)
def test_prefixes_that_could_count_a_record_twice_are_refused(name):
    text, why = WRONG_PREFIXES[name]
    payload = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(ValueError, match=why):
        query_request(WORDS, payload)
    header = query_request(WORDS).header
    with pytest.raises(ValueError, match="unreadable request"):
        read(header, payload)


def test_prefixes_are_under_the_hash():
    first, second = query_request(WORDS), query_request(WORDS, b"ab\nb\0")
    assert first.header == second.header
    assert first.digest != second.digest
    assert read(second.header, b"ab\nb\0").digest == second.digest
    with pytest.raises(ValueError, match="belongs to words alone"):
        query_request(COUNT, b"ab")


def test_a_tree_of_filters_that_is_too_deep_is_refused_before_it_is_followed():
    where = json.loads(query_request(COUNT).header)["query"]["where"]
    for _ in range(400):
        where = {"kind": "not", "part": where}
    header = json.loads(query_request(COUNT).header)
    header["query"]["where"] = where
    with pytest.raises(ValueError, match="unreadable request"):
        read(json.dumps(header, separators=(",", ":")).encode())


def test_a_domain_beyond_any_message_is_refused_where_it_is_read():
    wide = Schema.of({"x": {"integer": [0, 2**40]}, "y": {"integer": [0, 2**40]}})
    with pytest.raises(ValueError, match="max_cells"):
        query_request(Histogram(columns=("x", "y")), domains=wide)


@pytest.mark.parametrize(
    ("query", "changes", "bound", "moved"),
    [
        (COUNT, {}, 2**20, (1,)),
        (COUNT, {"adjacency": "replace", "max_records": 7}, 7, (1,)),
        (HISTOGRAM, {"adjacency": "replace"}, 2**20, (1, 1)),
        (HISTOGRAM, {"unit": "client", "cap": 5}, 5, (5,)),
        (HISTOGRAM, {"unit": "client", "cap": 5, "max_records": 3}, 3, (5,)),
        (Moments(kind="mean", column="age", weight=64), {}, 2**26, (64,)),
        (Bayes(label="sex", features=("age",)), {"unit": "client", "cap": 2}, 2, (2,)),
        (Oracle(column="sex", oracle="k-rr"), LOCAL, 1, ()),
    ],
)
def test_coordinates_and_moves_are_those_of_the_blocks(query, changes, bound, moved):
    encoding = query_request(query, **changes).encoding
    assert (encoding.bound, encoding.moves) == (bound, moved)


def test_a_request_is_read_as_what_it_is():
    header = query_request(COUNT).header
    with pytest.raises(ValueError, match="unreadable request"):
        ModelRequest.from_bytes(header, b"")
    with pytest.raises(ValueError, match="not canonical"):
        QueryQuestion.from_canonical(header + b" ")


def test_a_query_reads_the_columns_that_it_names():
    narrow = SCHEMA.only(["age"])
    assert query_request(COUNT, domains=narrow).dimension == 1
    with pytest.raises(ValueError, match='column "sex" is not in the schema'):
        query_request(HISTOGRAM, domains=narrow)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 2.0**41])
def test_noise_is_of_a_scale_that_is_drawn(value):
    with pytest.raises(ValidationError):
        privacy_of(scale=value)


def test_a_local_report_is_of_one_record_and_replaced():
    for changes in ({"unit": "record", "cap": None}, {"adjacency": "zero_out"}, {"cap": 2}):
        with pytest.raises(ValidationError, match="one report a client"):
            privacy_of(**(LOCAL | changes))
    with pytest.raises(ValidationError, match="at most 20"):
        privacy_of(**(LOCAL | {"scale": 20.5}))


def test_words_are_charged_at_one_record_a_round():
    request = query_request(WORDS, b"ab\nb\0", adjacency="replace")
    assert moves(request.blocks, unit="record", adjacency="replace", cap=None) == (1, 1)


@settings(max_examples=100)
@given(st.data())
def test_bytes_that_are_read_are_the_bytes_that_are_written(data):
    """Whatever is cut, put in or changed: it is refused as no request, or has a text of its own."""
    header = bytearray(query_request(COUNT).header)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(header) - 1))
        cut = data.draw(st.integers(0, 8))
        put = data.draw(st.sampled_from([b"", b"0", b"9", b"-", b'"', b"}", b",", b"null", b"e9"]))
        header[at : at + cut] = put
    try:
        request = read(bytes(header))
    except ValueError:  # and nothing else
        return
    assert request.header == bytes(header)


@pytest.mark.parametrize("filtered", [False, True], ids=["listed", "filtered"])
def test_request_of_a_large_domain_is_read_in_the_time_of_its_length(filtered):
    """Read before it is admitted: a few megabytes must not hold a client up for hours."""

    class Looked(str):
        """A text that counts how often it is compared."""

        __slots__ = ()
        times = 0

        def __eq__(self, other):
            Looked.times += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    values = tuple(Looked(f"v{i}") for i in range(3000))
    where = Or(of=(In(column="a", values=values[-256:]),) * 32) if filtered else None
    CategoryColumn._are_told_apart(values)
    schema = Schema.model_construct(columns={"a": CategoryColumn.model_construct(values=values)})
    Histogram(columns=("a",), where=where).check(schema)
    assert Looked.times < 100_000
    with pytest.raises(ValueError, match="'v7' is listed twice"):
        CategoryColumn(values=(*map(str, values), "v7"))
