"""What a hostile or careless request could ask is refused by `check`, on both sides."""

import pytest
from pydantic import ValidationError

from zerosum.client.queries.encode import encode
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.moves import Block, dimension
from zerosum.client.queries.predicate import parse
from zerosum.client.queries.query import (
    KINDS,
    QUERY,
    Bayes,
    Count,
    Histogram,
    Marginals,
    Moments,
    Oracle,
    Quantile,
    Query,
    Words,
)
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.secagg.randomness import insecure_keystream

SCHEMA = Schema.of(
    {
        "age": {"integer": [17, 90]},
        "sex": ["Female", "Male"],
        "job": [str(i) for i in range(15)],
        "flag": ["yes"],
        "income": {"number": [0, 1e5]},
        "gain": {"number": [0, 1e5], "bins": 20},
        "weight": {"integer": [0, 2_000_000]},
        "word": {"text": 5, "alphabet": "a-d"},
        "speck": {"number": [0, 1e-200]},
    }
)
WHERE = parse("age >= 65 and sex = 'Male'", SCHEMA)

GOOD: list[tuple[Query, tuple[Block, ...]]] = [
    (Count(where=WHERE), (Block(1, 1),)),
    (Histogram(columns=("age",)), (Block(74, 1),)),
    (Histogram(columns=("job",), by=("sex", "flag", "gain")), (Block(16 * 3 * 2 * 20, 1),)),
    (Moments(kind="mean", column="income", weight=4096), (Block(2, 4096),)),
    (Moments(kind="sum", column="age", weight=64), (Block(2, 64),)),
    (Moments(kind="variance", column="gain", weight=64), (Block(3, 64),)),
    (Quantile(column="weight", q=(0.1, 0.5)), (Block(16, 1), Block(256, 1), Block(4096, 1))),
    (Bayes(label="sex", features=("job", "age")), (Block(48, 1), Block(222, 1))),
    (Words(column="word"), (Block(20, 1),)),
    (Marginals(cliques=(("sex", "job"), ("age",))), (Block(48, 1), Block(74, 1))),
    (Oracle(column="sex", oracle="k-rr"), (Block(3, 3),)),
    (Oracle(column="age", oracle="oue"), (Block(75, 75),)),
    (Oracle(column="flag", oracle="rr"), (Block(2, 2),)),
]


@pytest.mark.parametrize(("query", "blocks"), GOOD, ids=[q.kind for q, _ in GOOD])
def test_a_query_lists_its_blocks(query, blocks):
    query.check(SCHEMA)
    assert query.blocks(SCHEMA) == blocks
    assert dimension(blocks) == sum(block.cells for block in blocks)


@pytest.mark.parametrize("query", [q for q, _ in GOOD], ids=[q.kind for q, _ in GOOD])
def test_a_query_has_canonical_bytes(query):
    assert type(query).from_canonical(query.canonical()) == query
    assert QUERY.validate_json(query.canonical()) == query


def test_every_kind_of_query_is_named():
    assert {query.kind for query, _ in GOOD} == set(KINDS)


def test_a_query_reads_its_filter_too():
    query = Histogram(columns=("job",), by=("sex",), where=WHERE)
    assert query.asked == ("job", "sex")
    assert query.reads == ("job", "sex", "age")
    assert Bayes(label="sex", features=("job",)).reads == ("sex", "job")
    assert Marginals(cliques=(("sex", "job"), ("job", "age"))).reads == ("sex", "job", "age")
    assert Count().reads == ()


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (Histogram(columns=("agee",)), 'not in the schema; did you mean "age"'),
        (Histogram(columns=("age", "age")), "named twice"),
        (Histogram(columns=("age",), by=("age",)), "named twice"),
        (Histogram(columns=("age", "sex", "job"), by=("flag", "gain")), "5 columns at once"),
        (Histogram(columns=("income",)), 'column "income": a number has no cells.*bins'),
        (Histogram(columns=("word",)), 'column "word": a text has no cells'),
        (Histogram(columns=("weight",)), "2,000,001 cells and max_cells is 1,048,576"),
        (Histogram(columns=("age", "age2")), "not in the schema"),
        (Moments(kind="mean", column="sex"), "of kind category, not integer or number"),
        (Moments(kind="variance", column="word"), "of kind text"),
        (Moments(kind="variance", column="speck"), "narrower than 1e-30"),
        (Moments(kind="sum", column="age", weight=63), "no power of two"),
        (Moments(kind="sum", column="age", weight=32), "no power of two"),
        (Moments(kind="sum", column="age", weight=2**31), "no power of two"),
        (Moments(kind="sum", column="age", weight=0), "no power of two"),
        (Moments(kind="sum", column="age", weight=-64), "no power of two"),
        (Quantile(column="sex", q=(0.5,)), "of kind category"),
        (Quantile(column="age", q=(0.0,)), "q = 0 is not strictly between"),
        (Quantile(column="age", q=(0.5, 1.0)), "q = 1 is not strictly between"),
        (Quantile(column="age", q=(-0.5,)), "q = -0.5 is not strictly between"),
        (Bayes(label="sex", features=("sex",)), "named twice"),
        (Bayes(label="sex", features=("age", "age")), "named twice"),
        (Bayes(label="income", features=("age",)), "a number has no cells"),
        (Bayes(label="sex", features=("word",)), "a text has no cells"),
        (Words(column="sex"), "of kind category, not text"),
        (Marginals(cliques=(("sex", "age"), ("age", "sex"))), "a clique is named twice"),
        (Marginals(cliques=(("sex", "sex"),)), "a column is named twice"),
        (Oracle(column="sex", oracle="rr"), 'has 3 with .other.: write oracle = "k-rr"'),
        (Oracle(column="word"), "a text has no cells"),
        (Count(where=parse("`a b` = 1", Schema.of({"a b": {"integer": [0, 1]}}))), "not in the"),
        (Count(where=parse("age < 5", Schema.of({"age": {"number": [0, 9]}}))), "5 is outside of"),
    ],
)
def test_a_query_that_does_not_fit_is_refused_in_one_line(query, reason):
    with pytest.raises(QueryError, match=reason) as refused:
        query.check(SCHEMA)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "data",
    [
        b'{"kind":"count","whre":null}',
        b'{"kind":"counts"}',
        b'{"kind":"histogram","columns":[]}',
        b'{"kind":"histogram","columns":["a","b","c","d","e"]}',
        b'{"kind":"quantile","column":"age","q":[]}',
        b'{"kind":"quantile","column":"age","q":[NaN]}',
        b'{"kind":"quantile","column":"age","q":[1e999]}',
        b'{"kind":"mean","column":"age","weight":64.5}',
        b'{"kind":"words","column":"word","max_prefixes":0}',
        b'{"kind":"words","column":"word","top":0}',
        b'{"kind":"marginals","cliques":[]}',
        b'{"kind":"marginals","cliques":[[]]}',
        b'{"kind":"oracle","column":"sex","oracle":"truth"}',
        b'{"kind":"bayes","label":"sex","features":[]}',
        b'{"kind":"count","where":' + b'{"kind":"not","of":' * 8
        + b'{"kind":"compare","column":"age","operator":"=","value":1}' + b"}" * 8 + b"}",
        b'{"kind":"count","where":' + b'{"kind":"not","of":' * 5000
        + b'{"kind":"compare","column":"age","operator":"=","value":1}' + b"}" * 5000 + b"}",
        b'{"kind":"count","where":{"kind":"and","of":['
        + b",".join([b'{"kind":"compare","column":"age","operator":"=","value":1}'] * 33)
        + b"]}}",
        b'{"kind":"count","where":{"kind":"compare","column":"age","operator":"like","value":1}}',
        b'{"kind":"count","where":{"kind":"in","column":"age","values":[]}}',
    ],
)  # fmt: skip
def test_data_that_is_no_query_is_not_read(data):
    with pytest.raises(ValidationError):
        QUERY.validate_json(data)


def test_a_query_that_is_not_resolved_has_no_blocks():
    query = Moments(kind="mean", column="age")
    query.check(SCHEMA)
    with pytest.raises(QueryError, match="weight is not resolved"):
        query.blocks(SCHEMA)


def test_a_policy_narrows_the_cells():
    Histogram(columns=("age",)).check(SCHEMA, max_cells=74)
    with pytest.raises(QueryError, match="74 cells and max_cells is 73"):
        Histogram(columns=("age",)).check(SCHEMA, max_cells=73)


def test_a_payload_belongs_to_words_alone():
    with pytest.raises(QueryError, match="belongs to words"):
        Count().check(SCHEMA, payload=b"ab")
    Words(column="word").check(SCHEMA, payload=b"ab")


@pytest.mark.quick_one_in(7)
@pytest.mark.parametrize("name", [*SCHEMA.columns, "gone"])
@pytest.mark.parametrize("query", [q for q, _ in GOOD], ids=[q.kind for q, _ in GOOD])
def test_what_passes_the_check_is_encoded_and_the_rest_is_refused(query, name):
    """Each column in the place of each: nothing but a refusal or a vector of the said length."""
    for replaced in {*query.reads, "sex"}:
        data = query.canonical().replace(b'"%s"' % replaced.encode(), b'"%s"' % name.encode())
        other = QUERY.validate_json(data)
        try:
            other.check(SCHEMA)
        except QueryError:
            continue
        vector = encode(
            other,
            SCHEMA,
            Table.empty(SCHEMA),
            unit="client",
            cap=1,
            max_records=1,
            secret=bytes(32),
            coins=insecure_keystream(1, "coins"),
            epsilon=1.0,
        )
        assert len(vector) == dimension(other.blocks(SCHEMA))
