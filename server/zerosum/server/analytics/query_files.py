"""Names of the files in a folder of queries."""

from typing import Final

QUERIES: Final = "queries.toml"
"""The plan: data, domains, budget, and every query that was asked."""

QUERY_LEDGER: Final = "queries.jsonl"
"""What was charged, written ahead of each sum."""

SUMS: Final = "sums"
"""Folder of the released sums."""

ANSWERS: Final = "answers.json"
"""All answers in plain values."""

CELLS: Final = "answers"
"""Folder of the answers' cells, NAME.csv."""

REFUSED: Final = "refused.jsonl"
"""Queries that the budget refused before anything was sent."""

ENDED: Final = "ended.json"
"""Of deployed queries: what was answered and spent, written last by a run that ends."""
