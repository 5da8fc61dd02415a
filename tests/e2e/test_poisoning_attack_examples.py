"""The examples of malicious clients run as they are, and print what they are there to show."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def figures(name, capsys, metric):
    """Return what an example prints of a metric, in order: under attack, and without."""
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    said = capsys.readouterr().out
    found = re.findall(rf"  {metric} (\S+), and (\S+) if nobody attacks", said)
    return [(float(value), float(without)) for value, without in found]


@pytest.mark.slow
def test_model_replacement(capsys):
    found = figures("attack_model_replacement.py", capsys, "attack success")
    assert [value > 0.7 for value, _ in found] == [True, False, True]
    assert all(without < 0.05 for _, without in found)


@pytest.mark.slow
def test_backdoors_by_data(capsys):
    found = figures("attack_backdoor.py", capsys, "attack success")
    assert [value > 0.5 for value, _ in found] == [True, False, False] * 2


@pytest.mark.slow
def test_sign_flip_and_inner_product(capsys):
    found = figures("attack_sign_flip.py", capsys, "main accuracy")
    assert [value < 0.3 for value, _ in found] == [True, False, False] * 2
    assert all(without > 0.8 for _, without in found)


@pytest.mark.slow
def test_hidden_attacks(capsys):
    found = figures("attack_hidden.py", capsys, "main accuracy")
    assert len(found) == 8
    assert found[6][0] < 0.3 < 0.6 < found[6][1]  # min-max against Krum, and Krum without it


@pytest.mark.slow
def test_a_backdoor_tailored_to_the_rule(capsys):
    found = figures("attack_tailored.py", capsys, "attack success")
    assert [value > 0.5 for value, _ in found] == [False] * 3 + [True, True, False]
    assert all(without < 0.1 for _, without in found)
