"""The line that a run prints for a round."""

from io import StringIO

import pytest
from rich.console import Console

from zerosum.server.runs.records import RoundRecord
from zerosum.simulations import run
from zerosum.simulations.terminal.round_lines import describe, progress

RECORD = RoundRecord(
    round=3, cohort=25, survivors=18, status="completed", epsilon={"release": 1.2, "sum": 3.4}
)


def test_more_dropouts_than_assumed_are_warned_of_on_the_line() -> None:
    assert "WARNING" not in describe(RECORD, 6)
    line = describe(RECORD | {"dropout_charged": 0.53}, 6)
    assert "WARNING: more dropouts than secagg.dropout" in line
    assert "0.53" in line


@pytest.mark.parametrize("terminal", [False, True], ids=["file", "terminal"])
def test_brackets_of_a_quoted_error_are_no_markup_of_the_line(terminal: bool) -> None:
    """As markup a closing tag that none opened ends the run, and others vanish from the text."""
    said = "client 2: OSError: [/data/a] on [cpu]"
    record = RECORD | {"clients_failed": 1, "first_failure": said, "seconds": 1.0}
    console = Console(file=(text := StringIO()), width=200, force_terminal=terminal)
    with progress(6, console) as on_round:
        on_round(record)
    assert said in text.getvalue()


def test_rounds_that_cuts_end_name_the_cure_first_and_say_the_same_once() -> None:
    counted = "1 of 16 coordinates of 4 clients were beyond encoding.range = 8.0 and were cut to it"

    def ended(number: int, cure: str) -> RoundRecord:
        reason = f"{cure}: {counted}; it would have held: a step is 1, not 2"
        return RECORD | {"round": number, "status": "abandoned", "reason": reason, "seconds": 1.0}

    wide, wider = "set encoding.range = 80.0", "set encoding.range = 800.0"
    console = Console(file=(text := StringIO()), width=200, force_terminal=False)
    with progress(6, console) as on_round:
        for record in (ended(1, wide), ended(2, wide), ended(3, wider), ended(4, wider)):
            on_round(record)
        on_round(RECORD | {"round": 5, "seconds": 1.0})
        on_round(ended(6, wider))
    lines = [line.partition("abandoned: ")[2] for line in text.getvalue().splitlines()]
    first, second = f"{wide}: {counted}  ", f"{wider}: {counted}  "
    assert [line[: line.find("  ") + 2] for line in lines] == [
        first, "as round 1  ", second, "as round 3  ", "", second,
    ]  # fmt: skip
    # A line of a terminal is gone when the next one comes: it says all.
    assert f"abandoned: {wider}: {counted}" in describe(ended(4, wider), 6)
    assert "would have held" not in describe(ended(4, wider), 6)


def test_what_an_abandoned_round_cost_stands_before_its_reason() -> None:
    reason = "18 clients are left and 19 are needed"
    lost = RECORD | {"status": "abandoned", "reason": reason, "epsilon_charged": {"local": 4.53}}
    parts = describe(lost, 6).split("  ")
    assert f"abandoned, charged epsilon 4.53 (local): {reason}" in parts


@pytest.mark.slow
def test_a_run_with_three_times_the_assumed_dropouts_says_so(tmp_path) -> None:
    settings = ["rounds=6", "secagg.protocol=ideal", "privacy.honest_fraction=0.6"]
    found = {
        rate: run(
            "digits",
            overrides=[*settings, f"faults.contribute={rate}"],
            out=tmp_path / str(rate),
        )
        for rate in (0.05, 0.3)
    }
    assert not any("dropout_charged" in record for record in found[0.05].rounds)
    warned = [record["dropout_charged"] for record in found[0.3].rounds[4:]]
    assert min(warned) > 0.3
    told = found[0.3].summary["epsilon"]["release"]["assumptions"]
    assert any("more than assumed" in note for note in told)
