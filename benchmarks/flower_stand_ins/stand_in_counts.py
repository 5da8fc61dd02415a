"""Count the bytes of a run's messages where its server has them, and keep its strategy's results.

The same for any run, plain or private, simulated or deployed: what is counted is the length of a
message as Flower writes it, without what the transport adds. In ``$FLOWER_EXAMPLES_RECORDS``
a file ``RUN.jsonl`` has a line for each push and pull, and ``RUN.ended`` is written last of all.
"""

import atexit
import functools
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = "FLOWER_EXAMPLES_RECORDS"

_ROUND = re.compile(r"(?:\[ROUND |starting round )(\d+)", re.IGNORECASE)


class _Rounds(logging.Handler):
    """Reads the number of the round from what strategies and apps log as it begins."""

    current = 0

    def emit(self, record: logging.LogRecord) -> None:
        found = _ROUND.search(record.getMessage())
        if found:
            type(self).current = int(found[1])


def count_messages(module: ModuleType) -> None:
    """Let a module's grids record the bytes of what they push and pull.

    Parameters
    ----------
    module : ModuleType
        One of Flower's that defines grids.
    """
    if not os.environ.get(FOLDER):
        return
    logging.getLogger("flwr").addHandler(_Rounds())
    for kind in vars(module).values():
        if isinstance(kind, type) and {"push_messages", "pull_messages"} <= vars(kind).keys():
            changed: Any = kind
            changed.push_messages = _pushing(changed.push_messages)
            changed.pull_messages = _pulling(changed.pull_messages)


def _pushing(push: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(push)
    def counted(grid: Any, messages: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        sent = list(messages)
        _record(grid, down=_sizes(sent, "dst_node_id"))
        return push(grid, sent, *args, **kwargs)

    return counted


def _pulling(pull: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(pull)
    def counted(grid: Any, *args: Any, **kwargs: Any) -> Any:
        replies = list(pull(grid, *args, **kwargs))
        if replies:
            _record(grid, up=_sizes(replies, "src_node_id"))
        return replies

    return counted


def _sizes(messages: list[Any], node: str) -> dict[str, int]:
    from flwr.common.serde import message_to_proto

    sizes: dict[str, int] = {}
    for message in messages:
        number = str(getattr(message.metadata, node))
        sizes[number] = sizes.get(number, 0) + len(message_to_proto(message).SerializeToString())
    return sizes


def _record(grid: Any, **line: Any) -> None:
    run = grid.run.run_id
    _write(run, {"time": time.time(), "round": _Rounds.current, **line})


def _write(run: Any, line: dict[str, Any]) -> None:
    file = Path(os.environ[FOLDER]) / f"{run}.jsonl"
    if not file.exists():
        atexit.register(file.with_suffix(".ended").touch)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")


def keep_results(module: ModuleType) -> None:
    """Let strategies write down the metrics of their results.

    Parameters
    ----------
    module : ModuleType
        Flower's, with ``Strategy``.
    """
    if not os.environ.get(FOLDER):
        return
    strategy: Any = vars(module)["Strategy"]
    start = strategy.start

    @functools.wraps(start)
    def kept(self: Any, grid: Any, *args: Any, **kwargs: Any) -> Any:
        result = start(self, grid, *args, **kwargs)
        found = {
            name: {str(number): dict(metrics) for number, metrics in getattr(result, name).items()}
            for name in (
                "evaluate_metrics_serverapp",
                "evaluate_metrics_clientapp",
                "train_metrics_clientapp",
            )
        }
        _write(grid.run.run_id, {"results": found})
        return result

    strategy.start = kept
