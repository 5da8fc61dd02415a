"""The line that a run prints for a round."""

import pytest

from zerosum.simulations import run
from zerosum.simulations.progress import describe

RECORD = {
    "round": 3,
    "cohort": 25,
    "survivors": 18,
    "status": "completed",
    "epsilon": {"release": 1.2, "sum": 3.4},
}


def test_more_dropouts_than_assumed_are_warned_of_on_the_line() -> None:
    assert "WARNING" not in describe(RECORD, 6)
    line = describe(RECORD | {"dropout_charged": 0.53}, 6)
    assert "WARNING: more dropouts than secagg.dropout" in line
    assert "0.53" in line


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
