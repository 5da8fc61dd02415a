"""Write the tables of figures of all pages from what ``bench all`` measured.

Run as a module: ``python -m zerosum.simulations.commands.readme_figures``.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from zerosum.server.privacy.rounding import epsilon_text
from zerosum.simulations.bench.all_figures import SEEDS
from zerosum.simulations.bench.engine import MASKED
from zerosum.simulations.bench.engine_rows import QUIET, share_of_cores
from zerosum.simulations.bench.process import Values

FIGURES = Path("benchmarks", "figures.json")
"""The file that is measured by ``zerosum bench all --json``, from the root of the repository."""

_BEGIN, _END = "<!-- figures: make docs -->", "<!-- /figures -->"
_ENGINE = "`zerosum bench engine"

Cell = Callable[["Figures"], str]


@dataclass(frozen=True)
class Figures:
    """What ``bench all`` measured; its methods raise LookupError for what it did not.

    Attributes
    ----------
    parts : dict
        By name.
    """

    parts: Values

    def of(self, part: str) -> Any:
        """Return the figures of a part."""
        return self.parts[part]["figures"]

    def row(self, part: str, **wanted: object) -> Values:
        """Return the one row of a part that has given values.

        Parameters
        ----------
        part : str
            Its name.
        **wanted
            Values of the row.

        Returns
        -------
        dict
            The row.

        Raises
        ------
        LookupError
            If the part was not measured, or has no such row, or several.
        """
        figures = self.of(part)
        rows: list[Values] = figures["rows"] if isinstance(figures, dict) else figures
        fits = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
        if len(fits) != 1:
            raise LookupError(f"{part} has {len(fits)} rows with {wanted}")
        return fits[0]


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes
    ----------
    what, command : str
        First and last column.
    cells : tuple of callable
        The figures; one that was not measured is a dash.
    short : bool
        Whether the README has it too.
    unit : str
        After the last figure.
    wanted : str
        What design/speed.md sets as the mark; empty where it sets none.
    """

    what: str
    command: str
    cells: tuple[Cell, ...]
    short: bool = False
    unit: str = ""
    wanted: str = ""

    def texts(self, figures: Figures) -> str | None:
        """Return the figures; None where nothing of them was measured."""
        texts = [_or_dash(cell, figures) for cell in self.cells]
        return None if set(texts) == {_DASH} else "; ".join(texts) + self.unit


_DASH = "-"


def _or_dash(cell: Cell, figures: Figures) -> str:
    try:
        return cell(figures)
    except LookupError:
        return _DASH


def _digits(value: float) -> str:
    """Return a figure with two or three significant digits, and no exponent."""
    decimals = 2 if value < 2 else 1 if value < 10 else 0
    return f"{value:,.{decimals}f}"


def _engine(part: str, engine: str, key: str = "ratio_to_bare", **wanted: object) -> Cell:
    return lambda figures: _digits(figures.row(part, engine=engine, **wanted)[key])


def _times_one_worker(figures: Figures) -> str:
    """Return how many times as fast two workers are, if the cores were theirs alone."""
    if share_of_cores(figures.of("mlp-workers")) < QUIET:
        raise LookupError("the cores were not quiet")
    row = figures.row("mlp-workers", engine="zerosum", workers=2)
    return _digits(row["times_one_worker"])


def _value(part: str, key: str) -> Cell:
    return lambda figures: _digits(figures.of(part)[key])


def _step(model: str, key: str, method: str) -> Cell:
    return lambda figures: _digits(figures.row("dpsgd", model=model, method=method)[key])


def _times_opacus(model: str) -> Cell:
    """Return how many times the fastest mode of Opacus takes of ours."""

    def cell(figures: Figures) -> str:
        rows = [row for row in figures.of("dpsgd")["rows"] if row["model"] == model]
        theirs = [row["ratio_to_ours"] for row in rows if row["method"].startswith("opacus")]
        if not theirs:
            raise LookupError("Opacus was not measured")
        return _digits(min(theirs))

    return cell


def _beside_primitives(part: str, cipher: str) -> Cell:
    """Return what unmasking takes of agreements and keystream, by GCM or by counter mode."""
    key = "server_unmask_cpu_s" if cipher == "AES-128-GCM" else "server_unmask_ctr_cpu_s"

    def cell(figures: Figures) -> str:
        session = figures.of(part)
        if cipher != session["cipher"] and cipher != "AES-128-CTR":
            raise LookupError(f"keystream was not drawn by {cipher}")
        return _digits(session["server_unmask_cpu_s"] / session["primitives"][key])

    return cell


def _start(command: str) -> Cell:
    return lambda figures: _digits(figures.row("start", command=command)["cpu_s"])


def _accuracy(seed: int) -> Cell:
    return lambda figures: f"{figures.of(f'run-{seed}')['test_accuracy']:.3f}"


def _run(key: str, observer: str = "") -> Cell:
    def cell(figures: Figures) -> str:
        if not observer:
            return _digits(figures.parts["run-0"][key])
        return epsilon_text(figures.of("run-0")["epsilon"][observer])

    return cell


def _psnr(setting: str, protection: str) -> Cell:
    def cell(figures: Figures) -> str:
        row = figures.row("inversion", setting=setting, protection=protection)
        return f"{row['psnr_db']:.0f}"

    return cell


_SESSION = "`zerosum bench secagg --n 500 --d 100000 --degree complete`"

ROWS = (
    Row("default run, seeds 0, 1, 2: test accuracy", "`zerosum run --seed 1`",
        tuple(map(_accuracy, SEEDS)), short=True),
    Row("CPU seconds of the default run", "`zerosum run`", (_run("cpu_seconds"),),
        wanted="at most 22"),
    Row("`zerosum --help`; `list`; a mistyped key: CPU seconds", "`zerosum bench start`",
        (_start("--help"), _start("list"), _start("a mistyped key")),
        wanted="below 1 each"),
    Row("a round of 100 clients, MLP, times the plain PyTorch loop: open; protected; masked",
        f"{_ENGINE} --versus {MASKED}`",
        tuple(_engine("mlp", name) for name in ("zerosum", "zerosum-protected", MASKED)),
        short=True,
        wanted="at most 0.40; 0.46; 4"),
    Row("an open MLP round, times a PyTorch loop written with care", f"{_ENGINE}`",
        (lambda f: _digits(f.row("mlp", engine="zerosum")["ratio_to_bare"]
                           / f.row("mlp", engine="bare-careful")["ratio_to_bare"]),)),
    Row("an open MLP round, times the plain loop: five local epochs; one in bf16",
        f"{_ENGINE} --epochs 5`; `--precision bf16`",
        (_engine("mlp-epochs", "zerosum"), _engine("mlp-bf16", "zerosum")), short=True,
        wanted="at most 0.30; 0.28 with a native envelope, else 0.33"),
    Row("pfl; Flower's simulation; FedJAX: times our open MLP round",
        f"{_ENGINE} --versus pfl,flower,fedjax`",
        tuple(_engine("mlp", name, "ratio_to_zerosum") for name in ("pfl", "flower", "fedjax")),
        short=True,
        wanted="at least 3; 20; 1.8"),
    Row("an open CNN round, times the plain loop: float32; bf16", f"{_ENGINE} --model cnn`",
        (_engine("cnn", "zerosum"), _engine("cnn-bf16", "zerosum")), short=True,
        wanted="at most 0.66; 0.42"),
    Row("pfl; Flower's simulation: times our open CNN round",
        f"{_ENGINE} --model cnn --versus pfl,flower`",
        tuple(_engine("cnn", name, "ratio_to_zerosum") for name in ("pfl", "flower"))),
    Row("two workers, by the wall: times as fast as one", f"{_ENGINE} --workers 1,2`",
        (_times_one_worker,),
        wanted="at least 1.8"),
    Row("a population of 1,000,000: times the round of 1,000", f"{_ENGINE} --clients 1000,1000000`",
        (_engine("mlp-population", "zerosum", "ratio_to_fewest_clients", clients=1_000_000),),
        wanted="at most 1.2"),
    Row("DP-SGD, one step at batch 100 in float32, times the plain step: MLP; CNN",
        "`zerosum bench dpsgd`",
        tuple(_step(model, "ratio_to_plain", "per-example") for model in ("mlp", "cnn")),
        wanted="at most 1.25; 1.3"),
    Row("DP-SGD in float64, as examples are trained, times the plain step in float32",
        "`zerosum bench dpsgd`",
        tuple(_step(model, "ratio_to_plain", "per-example-float64") for model in ("mlp", "cnn"))),
    Row("Opacus' fastest mode, times our DP-SGD step: MLP; CNN", "`zerosum bench dpsgd`",
        (_times_opacus("mlp"), _times_opacus("cnn")),
        wanted="at least 3; 1.8"),
    Row("500 clients, complete graph, d = 100,000: CPU s of a client; of the server's unmasking",
        _SESSION, (_value("secagg", "client_cpu_s"), _value("secagg", "server_unmask_cpu_s"))),
    Row("unmasking of the same with 10; 30 % dropouts, CPU s",
        "with `--dropout 0.1`, `--dropout 0.3`",
        (_value("secagg-10", "server_unmask_cpu_s"), _value("secagg-30", "server_unmask_cpu_s"))),
    Row("unmasking with 10; 30 % dropouts, times agreements and keystream by AES-GCM alone",
        "with `--dropout 0.1`, `--dropout 0.3`",
        tuple(_beside_primitives(part, "AES-128-GCM") for part in ("secagg-10", "secagg-30")),
        unit=" times", wanted="at most 1.25"),
    Row("unmasking with 10; 30 % dropouts, times agreements and keystream by AES-CTR alone",
        "with `--dropout 0.1`, `--dropout 0.3`",
        tuple(_beside_primitives(part, "AES-128-CTR") for part in ("secagg-10", "secagg-30")),
        unit=" times"),
    Row("unmasking with 10 % dropouts and 25 clients that give wrong shares, of an honest one",
        "with `--dropout 0.1 --liars 25`", (_value("secagg-liars", "ratio"),), unit=" times"),
    Row("1,000 clients, sparse graph, d = 1,000,000: bytes up, of 16 bits a coordinate",
        "`zerosum bench secagg --n 1000 --d 1000000 --dropout 0.05`",
        (_value("secagg-sparse", "upload_ratio"),), unit=" times"),
    Row("epsilon_release; epsilon_sum of the default run, at delta 1e-3", "`zerosum run`",
        (_run("epsilon", "release"), _run("epsilon", "sum"))),
    Row("a digit out of its plain update; out of a masked sum of 50 (blind guess 13 dB)",
        "`zerosum attack gradient-inversion`",
        (_psnr("2 clients, 1 image each", "plain"), _psnr("50 clients, 1 image each", "masked")),
        short=True, unit=" dB"),
)  # fmt: skip
"""Rows of both tables, in their order."""


def table(figures: Values, *, short: bool) -> str:
    """Return a table of figures in Markdown.

    Parameters
    ----------
    figures : dict
        As ``bench all`` writes them.
    short : bool
        Whether it is for the README.

    Returns
    -------
    str
        A line for each row of which something was measured.
    """
    measured = Figures(figures["parts"])
    texts = {row: row.texts(measured) for row in ROWS if row.short or not short}
    lines = (f"| {row.what} | {text} | {row.command} |" for row, text in texts.items() if text)
    return "\n".join(["| what | figure | command |", "|---|---|---|", *lines])


def marks(figures: Values) -> str:
    """Return a table of the figures that design/speed.md sets a mark for.

    Parameters
    ----------
    figures : dict
        As ``bench all`` writes them.

    Returns
    -------
    str
        Markdown: a line for each row with a mark; a dash where nothing was measured.
    """
    measured = Figures(figures["parts"])
    lines = (
        f"| {row.what} | {row.wanted} | {row.texts(measured) or _DASH} |"
        for row in ROWS
        if row.wanted
    )
    return "\n".join(["| what | wanted | measured |", "|---|---|---|", *lines])


PAGES: dict[Path, Callable[[Values], str]] = {
    Path("README.md"): partial(table, short=True),
    Path("docs", "figures.md"): partial(table, short=False),
    Path("docs", "design", "speed.md"): marks,
}
"""Pages with a table between the two marks, and the table."""


def with_table(page: str, written: str) -> str:
    """Return a page with the table between its marks replaced.

    Parameters
    ----------
    page : str
        With both marks, once.
    written : str
        The table.

    Returns
    -------
    str
        The page.

    Raises
    ------
    ValueError
        If it lacks the marks.
    """
    pattern = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
    new, count = pattern.subn(lambda _: f"{_BEGIN}\n\n{written}\n\n{_END}", page)
    if count != 1:
        raise ValueError(f"a page of figures has {_BEGIN} and {_END} once")
    return new


def pages(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield each page with the text that it should have.

    Parameters
    ----------
    root : Path
        Of the repository.

    Yields
    ------
    tuple of Path and str
        The page's path from the root, and its text.
    """
    figures = json.loads((root / FIGURES).read_text(encoding="utf-8"))
    for path, written in PAGES.items():
        page = (root / path).read_text(encoding="utf-8")
        yield path, with_table(page, written(figures))


def main() -> None:
    """Write the tables of the pages of this folder."""
    for path, text in list(pages(Path())):
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
