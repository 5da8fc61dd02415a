"""Count the code that a reader has to follow: what one round runs, and what starting a run runs.

Prints how many functions of ours were executed, in how many files, how many lines their source
has, and how many of these are code (no docstring, comment or blank), in two stretches of one
simulated run:

- *round*: one pairwise round against a server that may lie, after set-up;
- *start*: from a TOML file to the first round.

Only ``zerosum.simulations.run`` is called, so that the script counts any version of the package
that is installed: ``python benchmarks/executed_code.py [EXPERIMENT]``.
"""

import ast
import inspect
import itertools
import sys
import tempfile
import threading
import tokenize
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from zerosum.simulations import run

PART_FOLDERS = ("secagg", "client", "server", "simulations")

EXPERIMENT = """\
extends = "{experiment}"
rounds = 2
engine = "serial"

[secagg]
protocol = "pairwise"
server = "malicious"
"""

FIRST_CALL_OF_ROUNDS = "FederatedTraining.run"


class Executed:
    """The functions of ours that ran while this was profiling."""

    def __init__(self, until: str = "") -> None:
        self.codes: set[CodeType] = set()
        self.ended = False
        self._until = until

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a function that is called; the signature that ``sys.setprofile`` asks for."""
        if event != "call":
            return
        code = frame.f_code
        if self._until and code.co_qualname == self._until:
            self.stop()
        elif code not in self.codes and is_ours(code):
            self.codes.add(code)

    def start(self) -> None:
        """Profile this thread, and those that it starts."""
        threading.setprofile(self)
        sys.setprofile(self)

    def stop(self) -> None:
        """Profile no more."""
        sys.setprofile(None)
        threading.setprofile(None)
        self.ended = True


def is_ours(code: CodeType) -> bool:
    """Return whether code is a function of the package: no module, class body or comprehension."""
    named = code.co_name == "<lambda>" or not code.co_name.startswith("<")
    function = bool(code.co_flags & inspect.CO_OPTIMIZED)
    folders = Path(code.co_filename).parts
    return named and function and any(pair in PORTIONS for pair in itertools.pairwise(folders))


PORTIONS = {("zerosum", part) for part in PART_FOLDERS}


def part_of(path: str) -> str:
    """Return the part that a file belongs to."""
    return next(b for a, b in itertools.pairwise(Path(path).parts) if (a, b) in PORTIONS)


def lines_of(codes: Iterable[CodeType]) -> set[tuple[str, int]]:
    """Return each line of the functions' source once, as file and number.

    A function in a function is part of both: its lines are counted once.
    """
    lines = set()
    for code in codes:
        source, first = inspect.getsourcelines(code)
        lines |= {(code.co_filename, first + number) for number in range(len(source))}
    return lines


@cache
def code_lines(path: str) -> set[int]:
    """Return the numbers of a file's lines that are code: no docstring, comment or blank."""
    words = ast.walk(ast.parse(Path(path).read_text(encoding="utf-8")))
    docstrings = [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in words
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type not in blank | {tokenize.ENDMARKER}:
                lines |= set(range(token.start[0], token.end[0] + 1))
    return lines.difference(*docstrings)


def table(stretches: dict[str, set[CodeType]]) -> str:
    """Return the table of counts: a row a stretch and part, and one for their sum."""
    rows = [f"{'':24}{'functions':>10}{'files':>8}{'lines':>8}{'code':>8}"]
    for name, codes in stretches.items():
        for part in ("", *PART_FOLDERS):
            chosen = {c for c in codes if not part or part_of(c.co_filename) == part}
            files = {c.co_filename for c in chosen}
            lines = lines_of(chosen)
            code = sum(number in code_lines(path) for path, number in lines)
            title = f"  {part}" if part else name
            rows.append(f"{title:24}{len(chosen):10,}{len(files):8,}{len(lines):8,}{code:8,}")
    return "\n".join(rows)


def measured(folder: Path, experiment: str = "mnist5k") -> dict[str, set[CodeType]]:
    """Run two rounds and return what was executed in each stretch.

    Parameters
    ----------
    folder : Path
        An empty one: the experiment's file and the run folder are written into it.
    experiment : str
        A shipped experiment.

    Returns
    -------
    dict
        The executed functions of each stretch.

    Raises
    ------
    RuntimeError
        If the first round's caller has another name than this script knows.
    """
    config = folder / "experiment.toml"
    config.write_text(EXPERIMENT.format(experiment=experiment), encoding="utf-8")
    start, one_round = Executed(until=FIRST_CALL_OF_ROUNDS), Executed()

    def on_round(record: Any) -> None:
        if record["round"] == 1:
            one_round.start()
        else:
            one_round.stop()

    start.start()
    run(config, out=folder / "run", on_round=on_round, report=False)
    if not start.ended:
        start.stop()
        raise RuntimeError(f"{FIRST_CALL_OF_ROUNDS} was never called: name what begins the rounds")
    return {"one pairwise round": one_round.codes, "from TOML to round 1": start.codes}


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        print(table(measured(Path(folder), *sys.argv[1:2])))


if __name__ == "__main__":
    main()
