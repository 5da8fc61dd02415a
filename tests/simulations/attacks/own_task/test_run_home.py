"""A run is attacked from any folder: its task and its data are found beside it."""

import sys

import pytest

from zerosum.client.task import TaskError, resolve_task
from zerosum.server.runs.run_folder import RunFolder
from zerosum.simulations.attacks.own_task.run_home import found_path, home_of, importable_from
from zerosum.simulations.attacks.own_task.subject import Subject, loaded
from zerosum.simulations.config import load_experiment

TASK = """
import torch
from torch import nn


class Mine:
    who = {who!r}

    def model(self):
        return nn.Linear(3, 2)

    def num_clients(self):
        return 4

    def data(self, client):
        return torch.rand(5, 3), torch.arange(5) % 2

    def test_data(self):
        return None

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    """Return the folder of an app as ``zerosum new`` makes one, with a run in it."""
    return made(tmp_path / "homely_app", "first", monkeypatch)


def made(folder, who, monkeypatch):
    package = folder / "homely_app"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "task.py").write_text(TASK.format(who=who))
    monkeypatch.chdir(folder)
    forget()
    RunFolder.create(folder / "runs" / "r", load_experiment({"task": "homely_app.task:Mine"}))
    monkeypatch.chdir(folder.parent)
    return folder


def forget():
    for name in [each for each in sys.modules if each.partition(".")[0] == "homely_app"]:
        del sys.modules[name]


def task_of(folder):
    subject = Subject("homely_app.task:Mine", run=str(folder))
    return loaded(subject).task


def test_the_task_of_an_app_is_found_from_the_folder_above_it(app):
    """Where the app's own folder looks like a package, and is none."""
    assert getattr(task_of(app / "runs" / "r"), "who") == "first"  # noqa: B009
    assert str(app) not in sys.path
    forget()
    given = load_experiment({"task": "homely_app.task:Mine"})
    with pytest.raises(TaskError, match="run in the folder homely_app, or install it"):
        resolve_task(given.task, given.data, given.model, 0)  # the control: without the run


def test_of_two_apps_of_one_name_each_run_has_its_own_task(app, tmp_path, monkeypatch):
    other = made(tmp_path / "elsewhere" / "homely_app", "second", monkeypatch)
    for folder, who in ((app, "first"), (other, "second"), (app, "first")):
        assert getattr(task_of(folder / "runs" / "r"), "who") == who  # noqa: B009


def test_what_the_current_folder_has_comes_first(app, monkeypatch):
    assert home_of(str(app / "runs" / "r"), "homely_app.task") == app
    monkeypatch.chdir(app)
    assert home_of("runs/r", "homely_app.task") is None
    assert home_of("runs/r", "nowhere") is None


def test_a_built_in_task_and_no_run_change_no_path(app):
    before = list(sys.path)
    for folder, task in ((str(app / "runs" / "r"), "digits"), ("", "homely_app.task:Mine")):
        with importable_from(folder, task):
            assert sys.path == before


def test_data_are_found_beside_a_run_where_the_current_folder_has_none(app, monkeypatch):
    (app / "a_1.csv").write_text("x")
    folder = str(app / "runs" / "r")
    assert found_path(folder, "a_1.csv") == str(app / "a_1.csv")
    assert found_path(folder, "a_*.csv") == str(app / "a_*.csv")
    for path in (None, "", "b.csv", str(app / "a_1.csv"), ["a_1.csv"]):
        assert found_path(folder, path) is None
    monkeypatch.chdir(app)
    assert found_path(folder, "a_1.csv") is None
