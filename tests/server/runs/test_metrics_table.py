"""metrics.csv: a row a round, what pandas reads with one line."""

import io
import math
from typing import Any

import numpy as np
import pandas as pd

from zerosum.server.runs.metrics_table import table_of
from zerosum.server.runs.records import RoundRecord

LINES: list[dict[str, Any]] = [
    {
        "round": 1, "status": "completed", "cohort": 5, "survivors": 4, "test_loss": 1.5,
        "test_accuracy": 0.25, "dropouts": {"share": 1}, "stage_seconds": {"share": 0.5},
        "seconds": 0.125, "average_norm": 2.0, "epsilon": {"release": 1.0, "sum": math.inf},
        "cut": [1, 0, 0, 0], "cut_of": 10, "new_fact": 7,
    },
    {
        "round": 2, "status": "abandoned", "reason": 'too few, "all"\nof them', "cohort": 3,
        "seconds": 1.0, "untrained": True, "test_loss": math.nan, "clients_failed": 2,
        "epsilon": {"release": 2.0, "sum": math.inf}, "epsilon_charged": {"release": 1.0},
    },
]  # fmt: skip
RECORDS = [RoundRecord(**line) for line in LINES]


def test_each_figure_of_each_round_is_a_cell_that_pandas_reads():
    frame = pd.read_csv(io.BytesIO(table_of(RECORDS)))
    assert frame["round"].tolist() == [1, 2]
    assert frame["cohort"].tolist() == [5, 3]
    assert frame["test_loss"][0] == 1.5
    assert math.isnan(frame["test_loss"][1])
    assert math.isnan(frame["test_accuracy"][1])
    assert frame["epsilon_sum"].tolist() == [math.inf, math.inf]
    assert frame["epsilon_release"].tolist() == [1.0, 2.0]
    assert frame["reason"][1] == 'too few, "all"\nof them'
    assert frame["dropouts_share"][0] == 1
    assert frame["new_fact"][0] == 7
    assert frame["untrained"].tolist() == [0, 1]
    assert frame["clients_failed"].tolist() == [0, 2]
    assert frame["clients_failed"].dtype == np.int64
    assert not {"cut", "liars"} & set(frame), "lists are left to metrics.jsonl"


def test_columns_do_not_depend_on_how_a_record_was_made():
    again = [RoundRecord.model_validate(record.document()) for record in RECORDS]
    assert table_of(again) == table_of(RECORDS)


def test_a_run_without_rounds_has_an_empty_table():
    assert table_of([]) == b"\n"
