"""One unit of privacy moves each block by no more than `moves` says: all pairs of small tables."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from zerosum.client.queries import encode as encoding
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.moves import Block, moves
from zerosum.client.queries.predicate import parse
from zerosum.client.queries.query import (
    Bayes,
    Count,
    Histogram,
    Marginals,
    Moments,
    Quantile,
    Words,
)
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.secagg.randomness import insecure_keystream

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/queries.json").read_text("utf-8"))

SCHEMA = Schema.of(
    {
        "n": {"integer": [0, 2]},
        "c": ["A", "B"],
        "x": {"number": [0, 1], "bins": 2},
        "w": {"text": 3, "alphabet": "ab"},
    }
)
RECORDS = [
    dict(zip("ncxw", values, strict=True))
    for values in itertools.product([2, None], ["A", "?"], [0.3, 1.0, None], ["ab", ""])
]
QUERIES = [
    Count(where=parse("c = 'A'", SCHEMA)),
    Histogram(columns=("n", "c")),
    Histogram(columns=("x",), by=("n",)),
    Quantile(column="x", q=(0.5,)),
    Quantile(column="n", q=(0.5,)),
    Bayes(label="c", features=("n", "x")),
    Marginals(cliques=(("n",), ("n", "c"), ("c", "x"))),
    Words(column="w"),
    Moments(kind="mean", column="x", weight=64),
    Moments(kind="variance", column="n", weight=64),
]


def table_of(records):
    return Table.of({name: [r[name] for r in records] for name in SCHEMA.columns}, SCHEMA)


def encoded(query, records, unit="record", cap=None, seed=1):
    return encoding.encode(
        query,
        SCHEMA,
        table_of(records),
        unit=unit,
        cap=cap,
        max_records=1 << 20,
        secret=bytes(range(32)),
        coins=insecure_keystream(seed, "coins"),
    )


def by_block(query, vector):
    ends = np.cumsum([block.cells for block in query.blocks(SCHEMA)])
    assert ends[-1] == len(vector)
    return np.split(vector, ends[:-1])


def parts(difference, block, adjacency):
    """Return how far a block moved: in all, or apart what rose and what fell."""
    if adjacency == "zero_out" or block.cells == 1:
        return [int(np.abs(difference).sum())]
    return [int(difference.clip(0).sum()), int((-difference).clip(0).sum())]


def farthest(query, pairs, adjacency, **options):
    """Return the largest of each move over all pairs of neighbouring tables."""
    seen = []
    for before, after in pairs:
        difference = encoded(query, before, **options) - encoded(query, after, **options)
        split = by_block(query, difference)
        blocks = zip(split, query.blocks(SCHEMA), strict=True)
        seen.append([m for d, block in blocks for m in parts(d, block, adjacency)])
    return np.max(seen, axis=0)


def claimed(query, adjacency, unit="record", cap=None):
    return np.array(moves(query.blocks(SCHEMA), unit=unit, adjacency=adjacency, cap=cap))


REST = RECORDS[3:6]
RECORD_PAIRS = {
    "zero_out": [([r, *REST], REST) for r in RECORDS],
    "replace": [([r, *REST], [s, *REST]) for r, s in itertools.product(RECORDS, repeat=2)],
}
SOME = [RECORDS[:k] for k in range(4)] + [RECORDS[-k:] for k in range(1, 6)] + [[RECORDS[0]] * 9]
CLIENT_PAIRS = {
    "zero_out": [(table, []) for table in SOME],
    "replace": list(itertools.product(SOME, repeat=2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["zero_out", "replace"])
@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.kind)
def test_a_record_moves_each_block_by_what_is_claimed(query, adjacency):
    # Removed or replaced is the first record, whose coins come first: the others' stay apart.
    last_first = [(a[::-1], b[::-1]) for a, b in RECORD_PAIRS[adjacency]]
    most = farthest(query, last_first, adjacency)
    assert (most <= claimed(query, adjacency)).all()
    # The claim is tight in some of the blocks at least.
    assert (most == claimed(query, adjacency)).any()


@pytest.mark.quick_one_in(7)
@pytest.mark.parametrize("cap", [1, 2, 4])
@pytest.mark.parametrize("adjacency", ["zero_out", "replace"])
@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.kind)
def test_a_client_moves_each_block_by_what_is_claimed(query, adjacency, cap):
    most = farthest(query, CLIENT_PAIRS[adjacency], adjacency, unit="client", cap=cap)
    bound = claimed(query, adjacency, "client", cap)
    assert (most <= bound).all()
    assert (most == bound).any()


def test_control_an_encoder_without_cap_exceeds_the_claim(monkeypatch):
    monkeypatch.setattr(encoding, "first_rows", lambda *_: None)
    most = farthest(Count(), CLIENT_PAIRS["zero_out"], "zero_out", unit="client", cap=2)
    assert (most > claimed(Count(), "zero_out", "client", 2)).any()


def test_control_an_encoder_that_counts_a_record_twice_exceeds_the_claim(monkeypatch):
    once = encoding._tabulated

    def twice(table, names):
        return once(table, names) + np.roll(once(table, names), 1)

    monkeypatch.setattr(encoding, "_tabulated", twice)
    query = Histogram(columns=("n", "c"))
    for adjacency in ("zero_out", "replace"):
        most = farthest(query, RECORD_PAIRS[adjacency], adjacency)
        assert (most > claimed(query, adjacency)).any()


@pytest.mark.parametrize(
    ("unit", "adjacency", "cap", "expected"),
    [
        ("record", "zero_out", None, (1, 64, 1)),
        ("record", "replace", None, (1, 64, 64, 1, 1)),
        ("client", "zero_out", 3, (3, 192, 3)),
        ("client", "replace", 3, (3, 192, 192, 3, 3)),
        ("record", "replace", 3, (1, 64, 64, 1, 1)),
    ],
)
def test_moves_list_the_blocks_one_after_another(unit, adjacency, cap, expected):
    blocks = (Block(1, 1), Block(2, 64), Block(7, 1))
    assert moves(blocks, unit=unit, adjacency=adjacency, cap=cap) == expected


@pytest.mark.parametrize("cap", [None, 0, -1])
def test_a_client_needs_a_cap(cap):
    with pytest.raises(QueryError, match="cap"):
        moves((Block(1, 1),), unit="client", adjacency="zero_out", cap=cap)
    with pytest.raises(QueryError, match="cap"):
        encoded(Count(), REST, unit="client", cap=cap)


def sensitivity(query, schema):
    return sum(moves(query.blocks(schema), unit="record", adjacency="zero_out", cap=None))


def test_worked_example_a_histogram_has_sensitivity_1_at_any_size():
    example = VECTORS["histogram"]
    for cells in example["cells"]:
        schema = Schema.of({"c": {"integer": [1, cells]}})
        assert sensitivity(Histogram(columns=("c",)), schema) == example["sensitivity_l1"]


def test_worked_example_a_count_at_a_tenth_has_scale_10():
    example = VECTORS["count"]
    assert sensitivity(Count(), SCHEMA) / example["epsilon"] == example["scale"]


def test_worked_example_naive_bayes_moves_once_a_feature():
    example = VECTORS["naive_bayes"]
    rows = zip(example["features"], example["sensitivity_l1"], example["scale"], strict=True)
    for features, total, scale in rows:
        names = [f"f{i}" for i in range(features)]
        schema = Schema.of({name: ["A"] for name in ["label", *names]})
        query = Bayes(label="label", features=tuple(names))
        assert sensitivity(query, schema) == total
        assert total / example["epsilon"] == scale
