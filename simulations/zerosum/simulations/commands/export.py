"""``zerosum export``: a run's model in a format that other programs read."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from zerosum.client.task import TaskError
from zerosum.server.config import ConfigError
from zerosum.simulations.terminal.loading import loading
from zerosum.simulations.terminal.user_errors import user_errors

if TYPE_CHECKING:
    from zerosum.client.task import Task

EXTRA = 'pip install "zerosum[onnx]"'
_RECORDS = 2
"""Records of the batch that the model is traced with: of one, torch would take the batch's size for
a constant."""
_LONGEST = 300
"""Characters of torch's reason that are shown: it goes on for pages."""


def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    onnx: Annotated[
        Path, typer.Option("--onnx", metavar="FILE", help="Write the model here, as ONNX.")
    ],
    best: Annotated[
        bool, typer.Option("--best", help="The best model (evaluation.best), not the last.")
    ] = False,
) -> None:
    """Export a run's model; needs the extra onnx."""
    with user_errors(ConfigError, TaskError):
        with loading():
            _check_installed()
        export_onnx(folder, onnx, best=best)
    Console().print(f"ONNX  {onnx}", soft_wrap=True, markup=False, highlight=False)


def export_onnx(folder: Path, path: Path, *, best: bool = False) -> None:
    """Write a run's model as one ONNX file, in evaluation mode, for batches of any size.

    The inputs' form is that of the task's public test records.

    Parameters
    ----------
    folder : Path
        The folder of a finished run, whose task can be had here.
    path : Path
        Written whole or not at all.
    best : bool
        Whether to export the best model in place of the last.

    Raises
    ------
    ConfigError
        If the run is not finished, the extra is not installed, the file cannot be written or is one
        of the run's own, or torch cannot export such a model.
    TaskError
        If the task cannot be had, or has other settings than the run's.
    """
    _check_installed()
    _check_not_of_the_run(folder, path)
    from zerosum.client.task import resolve_task
    from zerosum.client.training.initial_model import build_model
    from zerosum.client.training.seeded_task import seeded_resolution
    from zerosum.server.runs.results import Result
    from zerosum.server.runs.run_folder import RunFolder

    result, experiment = Result.open(folder), RunFolder.open(folder).experiment
    with seeded_resolution(experiment.seed):
        task = resolve_task(experiment.task, experiment.data, experiment.model, experiment.seed)
    model = result.load_into(build_model(task, experiment.seed), best=best).eval()
    program = _exported(model, _inputs(task, experiment.seed))
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        program.save(new, external_data=False)
        new.replace(path)
    except OSError as error:
        raise ConfigError(f"--onnx {path} cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _check_not_of_the_run(folder: Path, path: Path) -> None:
    """Refuse to write over what is in the run folder, unless it is an export."""
    inside = Path(os.path.realpath(folder)) in Path(os.path.realpath(path)).parents
    if inside and os.path.lexists(path) and path.suffix.lower() != ".onnx":
        raise ConfigError(
            f"--onnx {path} is a file of the run, and would be written over: name another, as "
            f"{folder / 'model.onnx'}"
        )


def _check_installed() -> None:
    """Refuse what torch's exporter cannot do without."""
    try:
        import onnx
        import onnxscript
    except ImportError as error:
        raise ConfigError(
            f'--onnx needs the extra "onnx" ({error.name} is not installed): {EXTRA}'
        ) from None
    del onnx, onnxscript


def _inputs(task: "Task", seed: int) -> Any:
    """Return a batch of the task's public test records."""
    import torch

    from zerosum.client.training.examples import as_examples
    from zerosum.client.training.seeded_task import public_records
    from zerosum.client.training.torch_seed import seeded

    data = public_records(task, seed)
    count = 0
    if data is not None:
        examples = as_examples(data, torch.float32, torch.device("cpu"))
        count = len(examples)
    if count < _RECORDS:
        raise ConfigError(
            "--onnx: the form of the model's inputs is read off the task's test data, of which "
            f"there are {count} records: give it test_data(), or load the model into your own "
            "module (Result.load_into) and call torch.onnx.export"
        )
    with seeded(0):
        return examples.take(torch.arange(_RECORDS))[0]


def _exported(model: Any, inputs: Any) -> Any:
    """Return torch's program of a model; what it cannot trace ends in one line."""
    import torch
    from torch.utils._pytree import tree_map

    of_any_size = tree_map(lambda value: {0: torch.export.Dim.DYNAMIC}, inputs)
    try:
        with _quiet():
            return torch.onnx.export(
                model, (inputs,), dynamo=True, dynamic_shapes=(of_any_size,), verbose=False
            )
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:  # the exporter wraps what went wrong in advice
            cause = cause.__cause__
        reason = " ".join(str(cause).split())
        reason = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]} ..."
        raise ConfigError(
            f"--onnx: torch cannot export {type(model).__name__} ({type(cause).__name__}: "
            f"{reason}); model.safetensors holds it for PyTorch"
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch says of its own exporter from a user's terminal."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.CRITICAL)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
