"""Run a sweep: all of its cells, those that are over left out, and one table of their figures."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerosum.client.files.operating_system import cores
from zerosum.client.given_task import is_object_name
from zerosum.server.config import ConfigError
from zerosum.simulations.config import DEFAULT_EXPERIMENT, Source, with_task
from zerosum.simulations.sweeps.children import run_cells
from zerosum.simulations.sweeps.grid import Cell, cells_of, given_choices, seeds_of
from zerosum.simulations.sweeps.sweep_folder import SweepFolder
from zerosum.simulations.sweeps.time_left import DAY_SECONDS, Pace
from zerosum.simulations.terminal.durations import left_in_words, time_in_words
from zerosum.simulations.terminal.notebook import LiveLine

if TYPE_CHECKING:
    import pandas as pd

    from zerosum.client.task import Task

log = logging.getLogger("zerosum.simulations")


def sweep(
    config: Source = DEFAULT_EXPERIMENT,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    task: "type[Task] | Callable[[], Task] | str | None" = None,
    seeds: str | int | Iterable[int] | None = None,
    zipped: bool = False,
    together: Sequence[str] = (),
    out: str | Path | None = None,
    workers: int | None = None,
    on_cell: Callable[[Mapping[str, Any]], None] = lambda row: None,
) -> "pd.DataFrame":
    """Simulate an experiment for each cell of a grid, in parallel.

    A cell that fails is a row with status "failed" and its reason. Called again with the same
    arguments and ``out``, it runs what is not completed yet.

    Parameters
    ----------
    config : str, Path, mapping or Experiment
        As for :func:`zerosum.simulations.api.run`.
    grid : mapping of str to sequence, optional
        Values by key, as ``{"privacy.epsilon": [1, 2, 4]}``; None among them takes the key out.
    task : class, function or str, optional
        As for :func:`zerosum.simulations.api.run`, of a module: cells are processes of their own,
        which find a task by its name alone.
    seeds : str, int or iterable of int, optional
        ``range(5)`` or "0-4"; the experiment's own where absent.
    zipped : bool
        Whether the lists go together value by value, in place of their product.
    together : sequence of str
        Keys for whose lists alone that holds: a method is often more than one key.
    out : str or Path, optional
        Folder of the sweep: new, empty, or of this very sweep. Default: a new one under ``runs/``.
    workers : int, optional
        Cells at a time, each one thread. Default: the cores of this process; 1 on a GPU.
    on_cell : callable, optional
        Called with the row of each cell as it ends.

    Returns
    -------
    pandas.DataFrame
        A row a cell: changed keys, seed, status, metrics, epsilons, seconds, error.

    Raises
    ------
    ConfigError
        Before anything is written, for the first cell whose configuration is wrong.
    """
    import pandas as pd

    from zerosum.simulations import api

    given = None if seeds is None else seeds_of(seeds)
    choices = given_choices(grid or {})
    source = with_task(config, task)
    cells = cells_of(source, choices, given, zipped=zipped, together=together)
    _check_tasks(cells)
    path = Path(out) if out is not None else api.new_folder(f"{cells[0].experiment.name}-sweep")
    folder = SweepFolder.claim(path, cells)

    line, failed = LiveLine(), 0
    before = sum(map(folder.is_over, cells))
    line.show(f"{before} of {len(cells)} cells done{' before' if before else ''}")

    def ended(cell: Cell, error: str) -> None:
        nonlocal failed
        if error:
            failed += 1
            log.warning("cell %s failed: %s", cell.folder, error)
        on_cell(folder.row(cell, error))

    def look(pace: Pace) -> None:
        line.show(_progress(len(cells), failed, pace))

    try:
        errors = complete(folder, workers, look=look, ended=ended)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"The same call with out={str(path)!r} goes on with the sweep.")
        raise
    finally:
        line.flush()
    return pd.DataFrame(folder.rows(errors))


def _progress(cells: int, failed: int, pace: Pace) -> str:
    """Return how far a sweep is, in one line."""
    parts = [f"{cells - pace.cells_left} of {cells} cells done"]
    parts += [f"{failed} failed"] if failed else []
    left = pace.seconds_left
    if pace.cells_left:
        parts += [f"{pace.rounds_left:,} rounds to go"]
        parts += [] if left is None else [left_in_words(left)]
    return ", ".join(parts)


def _check_tasks(cells: Iterable[Cell]) -> None:
    """Refuse a task object, before anything is written."""
    given = next((c.experiment.task for c in cells if is_object_name(c.experiment.task)), None)
    if given is not None:
        raise ConfigError(
            f"task = {given!r}: the cells of a sweep are processes of their own, which no object "
            'gets to; write its class into a file, as my_task.py, and give task="my_task:MyTask"'
        )


def complete(
    folder: SweepFolder,
    workers: int | None = None,
    *,
    look: Callable[[Pace], None] = lambda pace: None,
    ended: Callable[[Cell, str], None] = lambda cell, error: None,
) -> dict[str, str]:
    """Run the cells of a sweep that are not over, and write its table after each.

    Parameters
    ----------
    folder : SweepFolder
        Of the sweep.
    workers : int, optional
        As for :func:`sweep`.
    look, ended : callable, optional
        As for :func:`run_cells`.

    Returns
    -------
    dict of str to str
        Why cells failed, by folder.

    Raises
    ------
    ConfigError
        If another process runs it, or there is no worker.
    """
    workers = usual_workers(folder) if workers is None else workers
    if workers < 1:
        raise ConfigError(f"workers = {workers}: give one or more")
    errors: dict[str, str] = {}
    warned = False

    def watch(pace: Pace) -> None:
        nonlocal warned
        left = pace.seconds_left
        if not warned and left is not None and left > DAY_SECONDS:
            warned = True
            log.warning(
                "this sweep takes about %s with %d cells at a time: fewer values, seeds or rounds "
                "take less; what is done is kept", time_in_words(left), workers,
            )  # fmt: skip
        look(pace)

    def over(cell: Cell, error: str) -> None:
        if error:
            errors[cell.folder] = error
        folder.write_table(errors)
        ended(cell, error)

    with folder.held():
        folder.write_table(errors)
        waiting = [cell for cell in folder.cells if not folder.is_over(cell)]
        run_cells(folder, waiting, workers, watch, over)
        for cell in folder.cells:  # of an earlier call
            if reason := folder.row(cell)["error"]:
                errors.setdefault(cell.folder, reason)
        folder.write_table(errors)
    return errors


def usual_workers(folder: SweepFolder) -> int:
    """Return how many cells are computed at a time: one a core; one in all on a GPU."""
    on_cpu = all(cell.experiment.device == "cpu" for cell in folder.cells)
    return cores() if on_cpu else 1
