"""Try a strategy's functions of metrics before a round is spent, on names that have no values yet.

A private sum's reply has a few metrics, whose names are known beforehand, and none of the clients'
own. A function is called with them until it reads the first that is there, and no further: no value
is made up, and none is seen. What it raises before that follows from the names alone.
"""

import copy
import inspect
from collections.abc import Iterable
from typing import Any, NoReturn

from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from zerosum.server.config import ConfigError
from zerosum.server.flower.strategy_words import failed_in_words, functions_of


class _ReadError(BaseException):
    """A value was read, which nobody knows yet; no ``except Exception`` of a function stops it."""


def _unread(*_: object) -> NoReturn:
    raise _ReadError


class _Metrics(MetricRecord):
    """Metrics of which there are the names alone."""

    values = items = __repr__ = _unread

    def __getitem__(self, key: str) -> Any:
        """Return nothing: raises KeyError of a name that is not there, and else _ReadError."""
        return _unread() if key in self else super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the default of a name that is not there."""
        return _unread() if key in self else default


class _Arrays(ArrayRecord):
    """Arrays of which there are the names alone."""

    __getitem__ = values = items = to_numpy_ndarrays = to_torch_state_dict = _unread  # type: ignore[assignment]


def try_functions(
    strategy: Strategy, arrays: ArrayRecord, weight_key: str, metrics: dict[str, Iterable[str]]
) -> None:
    """Refuse a function of metrics that fails on names alone.

    A function is tried where Flower's own code calls it on replies; on a copy, where it is an
    object with a state.

    Parameters
    ----------
    strategy : Strategy
        Whose ``train_metrics_aggr_fn`` and ``evaluate_metrics_aggr_fn`` are tried.
    arrays : flwr.app.ArrayRecord
        The first model.
    weight_key : str
        Name of the number of examples.
    metrics : dict of str to iterable of str
        Names by "train" and "evaluate"; one that is not there has no replies.

    Raises
    ------
    ConfigError
        With what it lacks, and what there is.
    """
    for name, function in functions_of(strategy).items():
        of = name.partition("_")[0]
        averages = inspect.getmodule(getattr(type(strategy), f"aggregate_{of}"))
        fraction: float = getattr(strategy, f"fraction_{of}", 1)
        asked = of in metrics and fraction
        if not asked or not getattr(averages, "__name__", "").startswith("flwr."):
            continue
        record = RecordDict({"metrics": _Metrics(dict.fromkeys([*metrics[of], weight_key], 0.0))})
        if of == "train":
            record[str(getattr(strategy, "arrayrecord_key", "arrays"))] = _Arrays({**arrays})
        try:
            tried = copy.deepcopy(function)
        except Exception:  # of somebody else's object, which may mind: the first round will tell
            continue
        try:
            tried([record], weight_key)
        except _ReadError:
            continue
        except Exception as error:
            raise ConfigError(failed_in_words(name, function, [record], error)) from error
