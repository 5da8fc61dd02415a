"""What a strategy says and asks that is no longer so: weights, counts, single clients' metrics."""

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flwr.app import MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from zerosum.server.config import ConfigError

log = logging.getLogger("flwr")

MetricsFunction = Callable[[list[RecordDict], str], MetricRecord]

_FUNCTIONS = ("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn")


@dataclass(frozen=True)
class Said:
    """What lines of Flower's own have to say otherwise.

    Attributes
    ----------
    uniform : bool
        Whether clients weigh alike, and not by a number in their replies.
    drawn : bool
        Whether cohorts are drawn anew, and the strategy's choice of nodes is ignored.
    summed : callable, optional
        Returns how many nodes the one reply is the mean of.
    """

    uniform: bool
    drawn: bool = False
    summed: Callable[[], int] | None = None


class _Corrected(logging.Filter):
    """Puts lines of Flower's right, by what they begin with: one in other words stays as it is."""

    def __init__(self, said: Said) -> None:
        super().__init__()
        self._said = said

    def filter(self, record: logging.LogRecord) -> bool:
        """Return true, after the line is put right."""
        line, said = str(record.msg), self._said
        if said.uniform and "Weighted by" in line:
            record.msg, record.args = "\t\t├── Weights: uniform", ()
        elif said.summed is not None and "Received %s results and %s failures" in line:
            of = record.args[0] if isinstance(record.args, tuple) and record.args else "aggregate"
            record.msg = "%s: Received one reply, the mean of %d nodes"
            record.args = (of, said.summed())
        elif said.drawn and "Sampled %s nodes (out of %s)" in line:
            record.msg = f"{line}: not these are asked, but a cohort by sampling={{...}}"
        return True


@contextmanager
def corrected_words(said: Said) -> Iterator[None]:
    """Let Flower's lines say what is so.

    Parameters
    ----------
    said : Said
        What is otherwise than Flower takes it to be.

    Yields
    ------
    None
    """
    corrected = _Corrected(said)
    log.addFilter(corrected)
    try:
        yield
    finally:
        log.removeFilter(corrected)


class TellingMetrics(MetricRecord):
    """Metrics of a mean, which say what is asked of them in vain."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a metric, or a default after a word in the log.

        Parameters
        ----------
        key : str
            Of the metric.
        default : object
            Returned where there is none.

        Returns
        -------
        object
            The metric's value, or the default.
        """
        if key not in self:
            log.warning(
                "metrics.get(%r, ...) is its default: a private sum has no %r; it has %s",
                key,
                key,
                ", ".join(self),
            )
        return super().get(key, default)


@contextmanager
def told_functions(strategy: Strategy) -> Iterator[None]:
    """Let functions that aggregate metrics end in one line where they need what is not there.

    Parameters
    ----------
    strategy : Strategy
        Whose ``train_metrics_aggr_fn`` and ``evaluate_metrics_aggr_fn`` are wrapped, if it has any.

    Raises
    ------
    ConfigError
        If one fails: with the key that it lacks, and those that there are.
    """
    own = functions_of(strategy)
    for name, function in own.items():
        setattr(strategy, name, _told(name, function))
    try:
        yield
    finally:
        for name, function in own.items():
            setattr(strategy, name, function)


def functions_of(strategy: Strategy) -> dict[str, MetricsFunction]:
    """Return the functions of a strategy that aggregate metrics, by attribute."""
    return {name: vars(strategy)[name] for name in _FUNCTIONS if callable(vars(strategy).get(name))}


def _told(name: str, function: MetricsFunction) -> MetricsFunction:
    @functools.wraps(function)
    def told(records: list[RecordDict], weighted_by: str) -> MetricRecord:
        try:
            return function(records, weighted_by)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(failed_in_words(name, function, records, error)) from error

    return told


def failed_in_words(
    name: str, function: MetricsFunction, records: Sequence[RecordDict], error: Exception
) -> str:
    """Return why a function of metrics failed, in a line.

    Parameters
    ----------
    name : str
        The strategy's attribute.
    function : callable
        What it holds.
    records : sequence of RecordDict
        What it was given.
    error : Exception
        What it raised.

    Returns
    -------
    str
        With the key that it lacks, and those that there are.
    """
    called = getattr(function, "__name__", type(function).__name__)
    missing = isinstance(error, KeyError) and error.args
    failed = f"needs {error.args[0]!r}" if missing else f"fails: {type(error).__name__}: {error}"
    there = {name: list(keys) for record in records for name, keys in record.metric_records.items()}
    has = "; ".join(f"{record!r} with {', '.join(keys)}" for record, keys in there.items())
    return (
        f"{name} = {called} {failed}; of a private sum there is one reply, which has {has}: "
        "clients' own metrics stay with them. Leave the function out, or use what there is"
    )
