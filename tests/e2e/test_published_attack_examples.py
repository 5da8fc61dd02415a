"""The scripts that attack what is published run as they are, and print figures."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("attack_differencing_counts.py", "masked: 100.0% of the bits right"),
        ("attack_subset_sums.py", "exact sums: 100% of the bits right"),
        ("attack_small_tables.py", "of the ages are known to two years"),
        ("attack_linkage.py", "k-anonymous, k = 5: 0.0% of the people are unique"),
    ],
)
def test_the_script_prints_what_is_learnt(script, says, tmp_path):
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert says in ran.stdout
