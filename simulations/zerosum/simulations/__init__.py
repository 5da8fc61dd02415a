"""Everything that needs both sides in one place: simulation, the command line, reports.

``run`` and ``resume`` simulate an experiment, and raise ``NothingLearntError`` where no client's
training got into the model, ``BusyError`` where something else simulates in this process;
``load_experiment`` reads one.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerosum.server.runs.results import Result
    from zerosum.server.runs.run_outcome import NothingLearntError
    from zerosum.simulations.api import resume, run
    from zerosum.simulations.config import load_experiment
    from zerosum.simulations.engine.one_at_a_time import BusyError

__all__ = ["BusyError", "NothingLearntError", "Result", "load_experiment", "resume", "run"]

_HOME = {
    "BusyError": "zerosum.simulations.engine.one_at_a_time",
    "NothingLearntError": "zerosum.server.runs.run_outcome",
    "Result": "zerosum.server.training.loop",
    "load_experiment": "zerosum.simulations.config",
    "resume": "zerosum.simulations.api",
    "run": "zerosum.simulations.api",
}


def __getattr__(name: str) -> Any:
    """Import on first use: the command line must answer --help without loading torch."""
    import importlib

    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
