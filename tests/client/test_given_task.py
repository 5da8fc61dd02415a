"""A task that is an object has a name that says so; a class of a module is as good as its name."""

import copy
import functools
import importlib
import pickle
import sys
from pathlib import Path

import pytest

from zerosum.client.given_task import GivenTask, is_object_name, named_or_given, place_of
from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import TaskError, resolve_task
from zerosum.server.config import ConfigError, parse_experiment, to_toml
from zerosum.server.spec import Experiment


class Mine:
    def model(self):
        return "a model"

    def data(self, client):
        return client.index

    def test_data(self):
        return None

    def loss(self, outputs, targets):
        return outputs


def made(task):
    return Experiment.model_validate({"task": task})


def resolve(name):
    return resolve_task(name, DataSpec(clients=7), ModelSpec(), 5)


def test_an_object_stands_where_a_name_does_and_is_written_as_one():
    mine = Mine()
    experiment = made(mine)
    assert resolve(experiment.task) is mine
    assert experiment.task == f"<{__name__}.Mine object>"
    assert is_object_name(experiment.task)
    assert f'task = "<{__name__}.Mine object>"' in to_toml(experiment)
    assert type(Experiment.from_canonical(experiment.canonical()).task) is str
    longer = experiment.model_copy(update={"rounds": 3}, deep=True)
    assert resolve(longer.task) is mine


def test_a_class_of_a_module_is_named_and_one_of_a_function_is_given():
    class Local(Mine):
        pass

    assert made(Mine).task == f"{__name__}:Mine"
    assert not isinstance(made(Mine).task, GivenTask)
    assert isinstance(resolve(made(Local).task), Local)
    assert place_of(Local) is None
    assert place_of(Mine()) is None
    assert place_of(dict) is None


def wrapped(make):
    @functools.wraps(make)
    def wide():
        return make()

    return wide


def extended(kind):
    class New(kind):
        pass

    return functools.update_wrapper(New, kind, updated=())


def wrapping_class(kind):
    class New:
        pass

    return functools.update_wrapper(New, kind, updated=())


def renamed(kind):
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), named)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (wrapped, "make"),
        (extended, "Mine"),
        (wrapping_class, "Mine"),
        (renamed, "Mine"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_has_another_ones_name_goes_by_itself(tmp_path, monkeypatch, change, name):
    (tmp_path / "own_names.py").write_text(
        "class Mine:\n    pass\n\n\ndef make():\n    return Mine()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_names", raising=False)
    module = importlib.import_module("own_names")
    plain = getattr(module, name)
    changed = change(plain)
    assert (changed.__module__, changed.__qualname__) == (plain.__module__, plain.__qualname__)
    assert made(changed).task.given is changed
    importlib.reload(module)
    assert made(plain).task == f"own_names:{name}"
    setattr(module, name, changed)
    assert made(changed).task == f"own_names:{name}"
    assert made(change(changed)).task.given is not changed


def test_what_makes_a_task_is_called_as_if_it_had_been_found_by_name():
    class Specs(Mine):
        got: tuple[int, str, int]

        @classmethod
        def from_specs(cls, data, model, seed):
            own = cls()
            own.got = (data.clients, model.name, seed)
            return own

    assert resolve(GivenTask(Specs)).got == (7, "mlp", 5)
    assert isinstance(resolve(GivenTask(lambda: Mine())), Mine)
    with pytest.raises(TaskError, match="needs arguments"):
        resolve(GivenTask(lambda width: Mine()))
    with pytest.raises(TaskError, match="Path lacks model, data"):
        resolve(GivenTask(Path()))


def test_the_name_alone_leads_to_no_object():
    with pytest.raises(TaskError, match=r"given as an object.*resume\(folder, task=MyTask\(\)\)"):
        resolve(str(GivenTask(Mine())))


@pytest.mark.parametrize("value", [5, None, ["digits"], {"model": 1}, b"digits", 1.5, True])
def test_a_plain_value_is_no_task(value):
    with pytest.raises(ConfigError, match="task"):
        parse_experiment({"task": value})


def test_an_object_survives_pickling_and_is_not_copied():
    given = GivenTask(Mine(), "<my.Name object>")
    again = pickle.loads(pickle.dumps(given))  # noqa: S301
    assert (again, type(again), type(again.given)) == (given, GivenTask, Mine)
    assert copy.deepcopy({"task": given})["task"].given is given.given


def test_a_name_stays_one_line_whatever_a_class_is_called():
    odd = type("A\nB\x1b" + "x" * 5000, (Mine,), {})
    name = str(GivenTask(odd()))
    assert name.isprintable()
    assert len(name) < 250
    assert is_object_name(name)
    assert named_or_given(name, str) == name
