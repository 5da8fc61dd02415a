"""One answer: values with standard errors, intervals, a sentence, and plain values."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.query import Query
from zerosum.server.analytics.bayes import Classifier
from zerosum.server.analytics.noise_law import ReleasedNoise

if TYPE_CHECKING:
    import pandas as pd

    from zerosum.server.privacy.epsilon_bound import EpsilonBound

Reals: TypeAlias = NDArray[np.float64]

LEVEL = 0.95
"""Confidence of an interval where no other is asked for."""


FIGURES = ("value", "std", "low", "high")
"""What a row of an answer holds beside its labels."""


class Axis(NamedTuple):
    """A dimension of a table of answers.

    Attributes
    ----------
    name : str
        A column, or what is counted.
    labels : tuple of str
        Of the cells along it.
    """

    name: str
    labels: tuple[str, ...]


class Interval(NamedTuple):
    """Ends of intervals, one for each value.

    Attributes
    ----------
    low, high : ndarray of float64
        NaN where there is no interval.
    """

    low: Reals
    high: Reals


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """What a query's released integers say.

    Attributes
    ----------
    query : Query
        As it was asked.
    values : ndarray of float64
        The answer: a single number has shape (), cells the shape of their domain, several tables
        are one after another. Unbiased, so that a count may be negative. NaN where there are too
        few records to say anything.
    std : ndarray of float64
        Standard error of each value, from the exact law of the noise; of an oracle, from its coins.
    tables : tuple of tuple of Axis
        The dimensions of the values: of one table, or of each of several.
    records : float or None
        Estimate of the number of records that were counted, where the answer holds one.
    clients : int
        How many clients' contributions are in the sum.
    noisy : ndarray of int64, shape (dimension,)
        The released integers.
    noise : ReleasedNoise or None
        Of each of them; None where clients randomised their reports.
    intervals : callable
        From a level to the ends of the intervals; see :meth:`interval`.
    details : mapping
        In plain values, what else this kind of query says.
    epsilon : mapping of str to EpsilonBound
        What the answer cost, by observer; empty until it is charged.
    receipt : mapping or None
        What was charged.
    reporter : callable or None
        Draws the page of the folder that the answer is kept in.
    """

    query: Query
    values: Reals
    std: Reals
    tables: tuple[tuple[Axis, ...], ...]
    records: float | None
    clients: int
    noisy: NDArray[np.int64]
    noise: ReleasedNoise | None
    intervals: Callable[[float], tuple[Reals, Reals]] = field(repr=False)
    details: Mapping[str, Any] = field(default_factory=dict)
    epsilon: "Mapping[str, EpsilonBound]" = field(default_factory=dict)
    receipt: Mapping[str, Any] | None = None
    reporter: Callable[[], Path] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """Return one line: the cells of a table may be pages."""
        from zerosum.server.analytics.answer_display import answer_line

        return answer_line(self)

    def _repr_html_(self) -> str:
        from zerosum.server.analytics.answer_display import answer_html

        return answer_html(self)

    def interval(self, level: float = LEVEL) -> Interval:
        """Return intervals that hold the truth with this probability, each on its own.

        Parameters
        ----------
        level : float
            In (0, 1).

        Returns
        -------
        Interval
            Ends of the shape of ``values``.

        Raises
        ------
        QueryError
            If the level is not between 0 and 1.
        """
        if not 0 < level < 1 or (1 + level) / 2 == 1:  # the two-sided level is what is looked up
            raise QueryError(f"level = {level}: a level of confidence is between 0 and 1, as 0.95")
        low, high = self.intervals(level)
        return Interval(np.asarray(low), np.asarray(high))

    def report(self) -> Path:
        """Draw the page of the folder that the answer is kept in.

        Returns
        -------
        Path
            Of the page.

        Raises
        ------
        QueryError
            If it is kept in no folder.
        """
        if self.reporter is None:
            raise QueryError("this answer is kept in no folder, and only a folder has a report")
        return self.reporter()

    def table(self, number: int = 0) -> Reals:
        """Return the values of one of several tables, in its own shape.

        Parameters
        ----------
        number : int
            From 0.

        Returns
        -------
        ndarray of float64
        """
        shapes = [tuple(len(axis.labels) for axis in axes) for axes in self.tables]
        parts = np.split(self.values.ravel(), np.cumsum([math.prod(s) for s in shapes])[:-1])
        return parts[number].reshape(shapes[number])

    @property
    def classifier(self) -> Classifier:
        """The classifier of a ``bayes`` query.

        Raises
        ------
        QueryError
            If the query is of another kind.
        """
        if "classifier" not in self.details:
            raise QueryError(
                f"a query of kind {self.query.kind} makes no classifier: ask for bayes"
            )
        return Classifier.from_json(self.details["classifier"])

    def sentence(self, level: float = LEVEL) -> str:
        """Return the answer in one sentence.

        Parameters
        ----------
        level : float
            Of the intervals, in (0, 1).

        Returns
        -------
        str
        """
        from zerosum.server.analytics.sentences import sentence

        return sentence(self, level)

    def rows(self, level: float = LEVEL) -> list[dict[str, Any]]:
        """Return a row for each value: its labels, then value, std, low and high.

        Parameters
        ----------
        level : float
            Of the interval, in (0, 1).

        Returns
        -------
        list of dict
            The same keys in each; the label of a column that a table has not is None. A column that
            is called as one of the figures is there with a prefix, as "column value".
        """
        columns = list(dict.fromkeys(_heading(axis) for axes in self.tables for axis in axes))
        places = [
            dict(zip(map(_heading, axes), labels, strict=True))
            for axes in self.tables
            for labels in product(*(axis.labels for axis in axes))
        ]
        ends = self.interval(level)
        arrays = dict(zip(FIGURES, (self.values, self.std, *ends), strict=True))
        numbers = {name: array.ravel().tolist() for name, array in arrays.items()}
        return [
            {column: place.get(column) for column in columns}
            | {name: values[i] for name, values in numbers.items()}
            for i, place in enumerate(places)
        ]

    def to_frame(self, level: float = LEVEL) -> "pd.DataFrame":
        """Return :meth:`rows` as a pandas DataFrame.

        Parameters
        ----------
        level : float
            Of the interval, in (0, 1).

        Returns
        -------
        pandas.DataFrame
        """
        import pandas as pd

        return pd.DataFrame(self.rows(level))

    def to_json(self, level: float = LEVEL) -> dict[str, Any]:
        """Return the answer in plain values, without numbers that are not finite.

        Parameters
        ----------
        level : float
            Of the interval, in (0, 1).

        Returns
        -------
        dict
            What ``json.dumps`` writes: arrays are nested lists, and None stands where there is no
            value.
        """
        ends = self.interval(level)
        noise = self.noise
        return {
            "query": self.query.model_dump(mode="json"),
            "sentence": self.sentence(level),
            "values": _plain(self.values),
            "std": _plain(self.std),
            "interval": {"level": level, "low": _plain(ends.low), "high": _plain(ends.high)},
            "tables": [
                [{"column": axis.name, "labels": list(axis.labels)} for axis in axes]
                for axes in self.tables
            ],
            "records": self.records,
            "clients": self.clients,
            "epsilon": {name: _bound(bound) for name, bound in self.epsilon.items()},
            "receipt": None if self.receipt is None else dict(self.receipt),
            "noise": None
            if noise is None
            else {"law": noise.law, "scale": noise.scale, "shares_ratio": noise.shares_ratio},
            "noisy": self.noisy.tolist(),
            **self.details,
        }


def _heading(axis: Axis) -> str:
    """Return the key of a column's labels in a row, other than that of any figure."""
    return f"column {axis.name}" if axis.name in FIGURES else axis.name


def _plain(array: Reals) -> Any:
    """Return nested lists, or a number, with None for what is not finite."""
    plain = np.asarray(array).astype(object)  # a clipped single number is a scalar
    plain[~np.isfinite(array)] = None
    return plain.tolist()


def _bound(bound: "EpsilonBound") -> dict[str, Any]:
    values = asdict(bound)
    return values | {"value": bound.value if math.isfinite(bound.value) else None}
