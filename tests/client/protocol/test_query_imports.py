"""What a node loads to answer a query: no torch, and pandas where it reads its file alone."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from pathlib import Path

import zerosum.client.flower.client_app
import zerosum.client.request
import zerosum.client.protocol.query_answer

HEAVY = {"torch", "pandas", "pyarrow", "scipy", "dp_accounting", "zerosum.client.training"}
loaded = lambda: sorted(HEAVY & sys.modules.keys())
assert loaded() == [], loaded()

from zerosum.client.protocol import own_budget
from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.query_answer import columns_read, query_answer
from zerosum.client.queries.query import Count
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import read_table
from zerosum.client.request import QueryQuestion, QueryRequest, Request
from zerosum.client.spec.query_privacy import QueryPrivacy
from zerosum.secagg.randomness import system_keystream

question = QueryQuestion(
    round=1, seed=0, population=3, query=Count(), domains=Schema.of({"x": ["a"]}),
    privacy=QueryPrivacy(law="geometric", scale=10.0),
)
request = Request.from_bytes(QueryRequest(question, b"").header, b"")
protection = Protection.build(
    request.question.privacy, request.encoding, cohort=3, dimension=1, rotation_seed=bytes(32)
)
assert loaded() == [], loaded()
Path("t.csv").write_text("x\\na\\nb\\n")
vector = query_answer(
    request, lambda: read_table("t.csv", columns_read(question)), bytes(32), system_keystream,
    index=0,
)
assert vector.tolist() == [2]
protection.protect(vector, rounding=system_keystream(), noise=system_keystream())
assert "torch" not in sys.modules and "zerosum.client.training" not in sys.modules
assert "dp_accounting" not in sys.modules
own_budget.price(request, protection, 0)
assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_a_query_is_answered_without_torch(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
