"""Ask a federation for counts, histograms, means, quantiles and words, and see nothing else.

A :class:`Federation` has clients that hold tables, and one budget. Each function below makes a
question; :meth:`Federation.ask` answers it by private sums, with its standard error and its
epsilon, or returns the stored answer to the same question for free::

    from zerosum.analytics import Federation, count, histogram

    with Federation.simulate("adult.csv", schema="adult.toml", clients=300, budget=1.0) as f:
        h = f.ask(histogram("age", epsilon=0.1))
    h.values, h.std, h.interval(0.95), h.epsilon["sum"], h.receipt
"""

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import Schema
from zerosum.server.analytics.answers import Answer
from zerosum.server.analytics.asks import QueryAbandoned
from zerosum.server.analytics.budget import BudgetError, BudgetExceeded, Spent
from zerosum.server.analytics.drafts import Draft
from zerosum.simulations.queries.builders import (
    bayes,
    count,
    histogram,
    marginals,
    mean,
    oracle,
    quantile,
    sum,
    variance,
    words,
)
from zerosum.simulations.queries.federation import Federation

sum_ = sum
"""The same as ``sum``, for code that needs Python's own."""

__all__ = [
    "Answer",
    "BudgetError",
    "BudgetExceeded",
    "Draft",
    "Federation",
    "QueryAbandoned",
    "QueryError",
    "Schema",
    "Spent",
    "bayes",
    "count",
    "histogram",
    "marginals",
    "mean",
    "oracle",
    "quantile",
    "sum",
    "sum_",
    "variance",
    "words",
]
