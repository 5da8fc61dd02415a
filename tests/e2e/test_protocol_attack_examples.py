"""The examples that attack the protocol run as they are, and print what they are there to show."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(name, capsys, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.slow
def test_lies_about_dropouts(capsys, monkeypatch):
    said = printed("attack_dropout_lies.py", capsys, monkeypatch)
    assert said.count("updates recovered exactly: 1 [") == 7
    assert said.count("updates recovered exactly: at baseline in 1 seed (0 [") == 8


@pytest.mark.slow
def test_weak_seeds(capsys, monkeypatch):
    said = printed("attack_weak_seeds.py", capsys, monkeypatch, "12")
    assert said.count("12-bit seed: update recovered") == 2
    assert said.count("256-bit seed: update not recovered") == 2


@pytest.mark.slow
def test_weak_masks(capsys, monkeypatch):
    said = printed("attack_weak_masks.py", capsys, monkeypatch)
    assert said.count("recovered, 10 of 10") == 2
    assert said.count("recovered, 0 of 10") == 2
