"""Figures of a task are called by what its records are: rows of a table are no images."""

import pickle
import re
from typing import Any

import own_tasks
import pytest

from zerosum.client.given_task import GivenTask
from zerosum.simulations.attacks import Imprint, play
from zerosum.simulations.attacks.harness.registry import built_in
from zerosum.simulations.attacks.own_task.cases import fitting
from zerosum.simulations.attacks.own_task.subject import Subject, pool_of
from zerosum.simulations.attacks.own_task.words import Renamed

OF_IMAGES = re.compile(r"\b(images?|pixels?)\b")


class Rows(own_tasks.Images):
    """A table whose records are far closer together than images are."""

    shape = (12,)
    lowest, scale = -3.0, 8.0


def texts(task):
    """Return all that a table says of a task: attackers, settings, metrics."""
    found = fitting(built_in(), Subject(GivenTask(task)), "quick")
    said = [found.counts]
    for cell in found.cells:
        said += [cell.attack.adaptive, cell.case.setting.name]
        said += [metric.name for metric in cell.attack.metrics]
    return found, list(dict.fromkeys(said))


def test_a_table_is_never_spoken_of_as_images():
    found, said = texts(Rows())
    least = pool_of(Subject(GivenTask(Rows()))).recognised
    assert least > 20
    assert f"records above {least:.0f} dB" in said
    assert f"A record counts as recovered above {least:.0f} dB" in found.counts
    assert [text for text in said if OF_IMAGES.search(text) or "count as 20" in text] == []
    played = {cell.attack.name for cell in found.cells}
    assert {"gradient inversion", "imprint", "membership inference"} <= played


def test_images_between_0_and_1_are_called_what_they_always_were():
    """The control: of images the words are the attack's own, and so are its coins."""
    found, said = texts(own_tasks.Images())
    assert "images above 20 dB" in said
    assert found.counts == ""
    assert not [cell for cell in found.cells if isinstance(cell.attack, Renamed)]


def test_an_attack_by_another_name_plays_as_it_did(one_thread):
    subject = Subject(GivenTask(Rows(width=400)))
    cells = [cell for cell in fitting([Imprint()], subject, "quick").cells
             if cell.case.protection.name == "plain"]  # fmt: skip
    played = play(0, cells[0], 0)
    assert played.status == "value", played.note
    (name,) = played.units
    assert re.fullmatch(r"records above \d+ dB", name)
    units: Any = played.units[name]
    blind: Any = played.baseline[name]
    assert units.figure().value > 0.5 > blind.figure().value


def test_an_attack_by_another_name_travels_to_other_processes():
    renamed = Renamed(Imprint(), False, 60.0)
    again = pickle.loads(pickle.dumps(renamed))  # noqa: S301 (written here)
    assert again == renamed
    assert again.bins == 512
    with pytest.raises(AttributeError):
        again.pictured  # noqa: B018


def test_complete_success_is_as_far_above_what_counts():
    (first, *_) = built_in(["gradient-inversion"])
    assert [each.whole for each in Renamed(first, False, 60.0).metrics] == [80.0, None]
    assert [each.whole for each in first.metrics] == [40.0, None]
