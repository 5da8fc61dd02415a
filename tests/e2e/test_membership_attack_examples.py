"""The examples of attacks on trained models and on sums print what they are there to show."""

import re
import runpy
from pathlib import Path

import pytest
from narrowed import present

AREA = r"AUC \D*([\d.]+) \["

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(name, capsys):
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.slow
def test_membership(capsys):
    lines = printed("attack_membership.py", capsys).splitlines()
    loss, offline, online = (float(present(re.search(AREA, line))[1]) for line in lines[:3])
    assert min(offline, online) > loss + 0.05
    assert all("at baseline" in line for line in lines[3:])


@pytest.mark.slow
def test_property(capsys):
    single, summed = printed("attack_property.py", capsys).splitlines()
    single, summed = (float(present(re.search(AREA, line))[1]) for line in (single, summed))
    assert single > 0.9 > 0.8 > summed


@pytest.mark.slow
def test_model_inversion(capsys):
    said = printed("attack_model_inversion.py", capsys)
    beyond = re.findall(r"beyond the mean digit: (\S+), .* (\S+)$", said, re.MULTILINE)
    own = re.findall(r"with the class mean: (\S+), .* (\S+)$", said, re.MULTILINE)
    assert [float(blind) for _, blind in beyond] == [0, 0, 0, 0]
    grey, knowing, *hidden = (float(found) for found, _ in beyond)
    assert min(grey, knowing) > 0.7 > 0.3 > max(hidden)
    assert float(own[1][0]) > float(own[1][1]) + 0.1
