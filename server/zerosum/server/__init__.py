"""The coordinator: sampling, private sums, optimization, accounting.

What needs torch or dp_accounting is imported on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from zerosum.server.config import ConfigError, parse_experiment
from zerosum.server.spec import Experiment

if TYPE_CHECKING:
    from zerosum.server.privacy.accountant import Ledger
    from zerosum.server.private_sum.aggregate import Aggregate
    from zerosum.server.private_sum.coordinator import Coordinator, Nodes, RoundAbandoned
    from zerosum.server.runs.results import Result
    from zerosum.server.runs.run_folder import RunFolder
    from zerosum.server.runs.run_outcome import NothingLearntError
    from zerosum.server.training.loop import FederatedTraining

__all__ = [
    "Aggregate",
    "ConfigError",
    "Coordinator",
    "Experiment",
    "FederatedTraining",
    "Ledger",
    "Nodes",
    "NothingLearntError",
    "Result",
    "RoundAbandoned",
    "RunFolder",
    "parse_experiment",
]

_HOME = {
    "Aggregate": "aggregate",
    "Coordinator": "coordinator",
    "FederatedTraining": "training",
    "Ledger": "ledger",
    "Nodes": "coordinator",
    "NothingLearntError": "learning",
    "Result": "results",
    "RoundAbandoned": "coordinator",
    "RunFolder": "runs",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"zerosum.server.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
