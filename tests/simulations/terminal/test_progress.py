"""Progress is a bar on a terminal, and about ten lines elsewhere."""

from io import StringIO

import pytest
from rich.console import Console

from zerosum.simulations.terminal.progress import LINES, ProgressBar


def shown(total: int | None, done: int, *, terminal: bool) -> str:
    console = Console(file=StringIO(), width=100, force_terminal=terminal)
    with ProgressBar(total, "step", console) as bar:
        for number in range(1, done + 1):
            bar.step(number)
        bar.show("beside the bar")
        bar.line("[/a] line")
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_few_steps_are_a_line_each_where_there_is_no_terminal() -> None:
    expected = [f"step {n}/4" for n in range(1, 5)]
    assert shown(4, 4, terminal=False).splitlines() == [*expected, "[/a] line"]


def test_of_many_steps_some_are_printed_the_first_and_the_last_among_them() -> None:
    lines = shown(1005, 1005, terminal=False).splitlines()[:-1]
    assert lines[0] == "step 1/1005"
    assert lines[-1] == "step 1005/1005"
    assert len(lines) == LINES + 2


@pytest.mark.parametrize("total", [None, 3])
def test_a_terminal_has_a_bar_with_words_and_lines_above_it(total: int | None) -> None:
    text = shown(total, 2, terminal=True)
    assert "beside the bar" in text
    assert "[/a] line" in text
