"""A second run in one process uses the code of an edited file, and leaves all others alone."""

import importlib
import os
import sys
from pathlib import Path

import pytest

from zerosum.client.given_task import GivenTask
from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import TaskError, resolve_task
from zerosum.simulations.data.edited_modules import read_again

TASK = """
import numpy
from {helper} import WIDTH
class Mine:
    version = {version}
    def model(self): return (self.version, WIDTH)
    def data(self, client): return client.index
    def test_data(self): return None
    def loss(self, outputs, targets): return outputs
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def write(folder, version=1, width=4, helper="edited_helper", module="edited_task"):
    (folder / f"{module}.py").write_text(TASK.format(helper=helper, version=version))
    (folder / "edited_helper.py").write_text(f"WIDTH = {width}\n")


def model(name="edited_task:Mine"):
    with read_again(name):
        return resolve_task(name, DataSpec(), ModelSpec(), 0).model()


def test_an_edited_task_and_what_it_imports_are_read_again(here):
    write(here)
    assert model() == (1, 4)
    write(here, version=2)
    assert model() == (2, 4)
    write(here, version=2, width=5)
    assert model() == (2, 5)


def test_control_python_alone_would_give_the_old_code(here):
    write(here)
    resolve_task("edited_task:Mine", DataSpec(), ModelSpec(), 0)
    write(here, version=2, width=5)
    assert resolve_task("edited_task:Mine", DataSpec(), ModelSpec(), 0).model() == (1, 4)


def test_what_was_not_edited_stays_the_same_module(here):
    import numpy

    write(here)
    model()
    task, helper = sys.modules["edited_task"], sys.modules["edited_helper"]
    os.utime(here / "edited_task.py")  # saved again, unchanged
    model()
    assert (sys.modules["edited_task"], sys.modules["edited_helper"]) == (task, helper)
    write(here, version=2)
    model()
    assert sys.modules["edited_task"] is not task
    assert sys.modules["numpy"] is numpy
    assert sys.modules["zerosum.client.task"].resolve_task is resolve_task


def test_an_edit_of_the_same_second_and_size_is_seen(here):
    write(here)
    times = (here / "edited_helper.py").stat()
    assert model() == (1, 4)
    write(here, width=7)
    os.utime(here / "edited_helper.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert model() == (1, 7)


def test_a_module_that_the_user_imported_before_is_read_again(here, monkeypatch):
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write(here)
    importlib.import_module("edited_task")
    write(here, width=55)
    assert model() == (1, 55)


def test_after_a_slip_of_syntax_all_files_are_as_they_are_now(here):
    write(here)
    model()
    (here / "edited_task.py").write_text("def")
    with pytest.raises(TaskError, match="SyntaxError"):
        model()
    write(here, version=3, width=9)
    assert model() == (3, 9)


def test_a_package_is_read_again_with_its_parts(here):
    package = here / "edited_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    write(package, helper=".edited_helper", module="task")
    name = "edited_package.task:Mine"
    assert model(name) == (1, 4)
    write(package, helper=".edited_helper", module="task", width=6)
    assert model(name) == (1, 6)


def test_installed_packages_and_other_folders_are_left_alone(here, monkeypatch):
    write(here)
    model()
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    monkeypatch.syspath_prepend(str(here))
    write(here, version=2)
    assert model() == (1, 4)
    monkeypatch.chdir(here)
    monkeypatch.setattr(
        "zerosum.simulations.data.edited_modules._installed", lambda: [Path.cwd() / "venv", here]
    )
    assert model() == (1, 4)
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert model() == (2, 4)


def test_objects_and_built_in_tasks_have_nothing_to_forget(here):
    with read_again(GivenTask(object())), read_again("digits"):
        pass
    with pytest.raises(TaskError, match="nosuch"), read_again("nosuch"):
        resolve_task("nosuch", DataSpec(), ModelSpec(), 0)
