"""Compare runs and sweeps from Python: what ``zerosum compare`` writes, and its table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from zerosum.server.config import ConfigError
from zerosum.server.runs.displays import grid
from zerosum.server.runs.run_folder import CONFIG
from zerosum.simulations.report.compare import Candidate, Comparison
from zerosum.simulations.report.compare import compare as gather
from zerosum.simulations.sweeps.sweep_folder import MANIFEST, SweepFolder

if TYPE_CHECKING:
    import pandas as pd

USUAL_OUT = Path("comparison")
"""Folder of a comparison of runs; that of one sweep is in the sweep's own."""


@dataclass(frozen=True, repr=False)
class Compared:
    """A comparison that was written; a notebook shows it as a table, the best in bold.

    Attributes
    ----------
    comparison : Comparison
        Methods with mean and deviation over their seeds.
    files : tuple of Path
        What was written: page, table, and with ``plots`` a file for each figure.
    """

    comparison: Comparison
    files: tuple[Path, ...]

    @property
    def frame(self) -> "pd.DataFrame":
        """A row a method, as ``compare.csv`` has it."""
        import pandas as pd

        return pd.read_csv(next(file for file in self.files if file.suffix == ".csv"))

    @property
    def cautions(self) -> tuple[str, ...]:
        """What to keep in mind: runs left out, epsilons that do not go together."""
        return tuple(self.comparison.cautions)

    def __repr__(self) -> str:
        """Return one line: who is best, and where the page is."""
        from zerosum.simulations.report.compare_page import best_in_words

        shown = f"{len(self.comparison.shown)} methods"
        lead = best_in_words(self.comparison)
        return f"Compared({shown}{f', {lead!r}' if lead else ''}, {str(self.files[0])!r})"

    def _repr_html_(self) -> str:
        from zerosum.simulations.report.compare_page import best_in_words, table_rows

        headers, rows = table_rows(self.comparison)
        shown = [dict(zip(headers, (text for text, _ in row), strict=True)) for row in rows]
        best = {(i, headers[j]) for i, row in enumerate(rows) for j, (_, b) in enumerate(row) if b}
        parts = [best_in_words(self.comparison), *map("Caution: {}".format, self.cautions)]
        foot = " ".join([*filter(None, parts), f"The page is {self.files[0]}."])
        return grid("Methods", shown, foot, best)


def compare(
    folders: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    plots: Literal["pdf", "svg", "png"] | None = None,
) -> Compared:
    """Compare methods over their seeds, and write table, page and figures.

    Parameters
    ----------
    folders : str, Path or sequence of these
        Of runs or sweeps.
    out : str or Path, optional
        Folder of the files. Default: that of the one sweep, else ``comparison``.
    plots : {"pdf", "svg", "png"}, optional
        Each figure as a file too, for a column of a paper, and a .bib entry.

    Returns
    -------
    Compared
        With the table as a frame, and the files.

    Raises
    ------
    ConfigError
        If a folder is neither of a run nor of a sweep, or nothing can be written.
    """
    from zerosum.simulations.report.compare_page import write_comparison

    listed = [folders] if isinstance(folders, str | Path) else list(folders)
    paths = [Path(folder) for folder in listed]
    if plots not in (None, "pdf", "svg", "png"):
        raise ConfigError(f'plots = {plots!r}: write "pdf", "svg" or "png", or leave it out')
    comparison = gather(candidates(paths))
    files = write_comparison(comparison, target_of(paths, out), [*map(str, paths)], plots)
    return Compared(comparison, tuple(files))


def target_of(folders: Sequence[Path], out: str | Path | None) -> Path:
    """Return where a comparison is written.

    Parameters
    ----------
    folders : sequence of Path
        That are compared.
    out : str or Path, optional
        What was asked for.

    Returns
    -------
    Path
        Of one sweep, the sweep's own folder where nothing was.
    """
    if out is not None:
        return Path(out)
    one_sweep = len(folders) == 1 and (folders[0] / MANIFEST).is_file()
    return folders[0] if one_sweep else USUAL_OUT


def candidates(folders: Sequence[Path]) -> list[Candidate]:
    """Return the runs in folders of runs and sweeps.

    Parameters
    ----------
    folders : sequence of Path
        As given.

    Returns
    -------
    list of Candidate
        Of a sweep all cells, also those that are not over.

    Raises
    ------
    ConfigError
        If one is neither.
    """
    found: list[Candidate] = []
    for path in folders:
        if (path / MANIFEST).is_file():
            sweep = SweepFolder.open(path)
            found += [
                Candidate(sweep.run_path(c), c.experiment, path, tuple(sweep.keys))
                for c in sweep.cells
            ]
        elif (path / CONFIG).is_file():
            found.append(Candidate(path))
        else:
            raise ConfigError(
                f"{path} holds neither a run (no {CONFIG}) nor a sweep (no {MANIFEST}): give the "
                "folder of one"
            )
    return found
