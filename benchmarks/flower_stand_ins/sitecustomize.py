"""Put on ``PYTHONPATH``, it gives every program of Flower's local data, and counts its messages.

Python imports a module of this name before anything else. Nothing is imported here that the
program does not import itself: each change waits until the module that it changes was loaded.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def _local_data(module: ModuleType) -> None:
    from stand_in_hub import load_dataset

    vars(module)["load_dataset"] = load_dataset


def _counted(module: ModuleType) -> None:
    from stand_in_counts import count_messages

    count_messages(module)


def _told(module: ModuleType) -> None:
    from stand_in_counts import keep_results

    keep_results(module)


CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "datasets": _local_data,
    "flwr.serverapp.strategy.strategy": _told,
    "inmemory_grid": _counted,
    "http_grid": _counted,
    "grpc_grid": _counted,
}
"""By a module's name, or by its last part: Flower has moved its grids before."""


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, change: Callable[[ModuleType], None]) -> None:
        self._loader, self._change = loader, change

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)

    def __getattr__(self, name: str) -> Any:  # whatever else is asked of a file's loader
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = CHANGES.get(fullname)
        if change is None and fullname.startswith("flwr."):
            change = CHANGES.get(fullname.rpartition(".")[2])
        if change is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, change)
        return spec


sys.meta_path.insert(0, _Finder())
