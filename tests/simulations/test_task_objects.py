"""A task that is given as an object trains as the same task by name, and goes on when given again.

The task of this file, written to a module, is the one by name.
"""

import inspect
import logging
import multiprocessing
import random
import shutil
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from zerosum.client.task import TaskError
from zerosum.server.config import ConfigError, read_toml
from zerosum.simulations import load_experiment, plan, resume, run, sweep
from zerosum.simulations.data import task_records


class ObjectTask:
    """Six clients of twenty records; ``shift`` makes other records, ``width`` another model."""

    def __init__(self, shift=0.0, width=4):
        self.shift, self.width = shift, width

    def model(self):
        return nn.Linear(self.width, 2)

    def num_clients(self):
        return 6

    def data(self, client):
        inputs = torch.randn(20, self.width) + client.index / 10 + self.shift
        return inputs, (inputs.sum(1) > 0).long()

    def test_data(self):
        inputs = torch.randn(50, self.width)
        return inputs, (inputs.sum(1) > 0).long()

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


SOURCE = f"import torch\nfrom torch import nn\n\n{inspect.getsource(ObjectTask)}"
PLAIN = {
    "extends": "fedavg",
    "unset": ["data.clients"],
    "rounds": 2,
    "sampling": {"cohort": 4},
}
PRIVATE = {
    "extends": "cross-device",
    "rounds": 1,
    "data": {"clients": 6},
    "privacy": {"delta": 0.01},
    "sampling": {"cohort": 4},
    "secagg": {"protocol": "ideal"},
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "object_task.py").write_text(SOURCE)
    yield tmp_path
    sys.modules.pop("object_task", None)


def bits(result):
    rounds = [dict(record.metrics) for record in result.rounds]
    return rounds, {name: values.tobytes() for name, values in result.model.items()}


@pytest.mark.slow
@pytest.mark.parametrize("values", [PLAIN, PRIVATE], ids=["plain", "private"])
def test_an_object_trains_bit_for_bit_as_its_name(here, values, monkeypatch):
    quiet = partial(run, report=False)
    by_name = bits(quiet({**values, "task": "object_task:ObjectTask"}))
    assert bits(quiet({**values, "task": ObjectTask()})) == by_name
    assert len(by_name[0]) == values["rounds"]
    assert bits(quiet(values, task=ObjectTask)) == by_name
    assert bits(quiet(load_experiment({**values, "task": ObjectTask()}))) == by_name
    serial = quiet(values, task=ObjectTask(), overrides=["engine=serial"])
    workers = quiet(values, task=ObjectTask(), overrides=["engine=processes", "workers=2"])
    assert (serial.summary.engine["name"], workers.summary.engine["name"]) == (
        *("serial", "processes"),
    )
    assert bits(serial) == bits(workers) == by_name
    assert bits(quiet(values, task=ObjectTask(shift=0.5))) != by_name  # the control


def test_a_file_may_be_given_with_an_object(here):
    (here / "my.toml").write_text(
        'extends = "fedavg"\nunset = ["data.clients"]\nrounds = 1\n[sampling]\ncohort = 4\n'
    )
    result = run("my.toml", task=ObjectTask(), report=False)
    assert result.summary.name == "my"
    config = read_toml(result.folder / "config.toml")
    assert config["task"] == f"<{__name__}.ObjectTask object>"


@pytest.mark.slow
def test_a_run_goes_on_with_its_object_and_with_no_other(here):
    whole = run({**PLAIN, "rounds": 4}, task=ObjectTask(), out="whole", report=False)
    run(PLAIN, task=ObjectTask(), out="begun", report=False)
    more: dict[str, Any] = {"overrides": ["rounds=4"], "report": False}
    with pytest.raises(TaskError, match=r"resume\(folder, task=MyTask\(\)\)"):
        resume("begun", **more)
    for other in (ObjectTask(shift=1.0), ObjectTask(width=5)):
        with pytest.raises(ConfigError, match="its records or its model are not those"):
            resume("begun", task=other, **more)
    assert bits(resume("begun", task=ObjectTask, **more)) == bits(whole)


@pytest.mark.slow
def test_a_run_by_name_does_not_go_on_with_an_object(here):
    run(PLAIN, task="object_task:ObjectTask", out="named", report=False)
    with pytest.raises(ConfigError, match=r"task = .*object_task:ObjectTask"):
        resume("named", task=ObjectTask(), overrides=["rounds=3"])


@pytest.mark.slow
def test_a_folder_without_a_fingerprint_takes_the_first_object(here):
    folder = run(PLAIN, task=ObjectTask(), report=False).folder
    (folder / task_records.FINGERPRINT).unlink()
    resume(folder, task=ObjectTask(), overrides=["rounds=3"], report=False)
    assert (folder / task_records.FINGERPRINT).is_file()


def test_a_fingerprint_sees_records_of_any_form_and_clients_without_any():
    class Dicts(ObjectTask):
        last = 0

        def data(self, client):
            if client.index == 5:
                raise OSError("no records")
            return [({"a": torch.zeros(2), "b": [torch.ones(1) * self.last]}, 1)] * 3

        def test_data(self):
            return None

    first, second = Dicts(), Dicts()
    assert task_records.fingerprint(first, 6, 0) == task_records.fingerprint(second, 6, 0)
    second.last = 1
    assert task_records.fingerprint(first, 6, 0) != task_records.fingerprint(second, 6, 0)
    assert task_records.fingerprint(first, 6, 0) != task_records.fingerprint(first, 7, 0)


def test_a_plan_takes_an_object(here):
    assert plan(PLAIN, task=ObjectTask()).values["dimension"] == 10
    assert plan({**PLAIN, "task": ObjectTask(width=5)}).values["dimension"] == 12


def test_a_sweep_refuses_an_object_before_anything_is_written(here):
    with pytest.raises(ConfigError, match=r'write its class into a file.*task="my_task:MyTask"'):
        sweep({**PLAIN, "task": ObjectTask()}, {"seed": [0, 1]}, out="refused")
    assert not (here / "refused").exists()


@pytest.mark.slow  # two processes that load torch
def test_a_sweep_takes_a_task_by_its_name(here):
    grid = {"training.lr": [0.1, 0.2]}
    frame = sweep(PLAIN, grid, task="object_task:ObjectTask", out="s", workers=2)
    assert list(frame["status"]) == ["completed"] * 2
    alone = run(PLAIN, task=ObjectTask(), overrides=["training.lr=0.2"], report=False)
    assert frame["test_accuracy"][1] == alone.metrics["test_accuracy"]


@pytest.mark.slow
def test_an_edited_task_is_run_as_it_is_now(here):
    (here / "my.toml").write_text(
        'extends = "fedavg"\nunset = ["data.clients"]\ntask = "object_task:ObjectTask"\n'
        "rounds = 1\n[sampling]\ncohort = 4\n"
    )
    assert run("my.toml", report=False).summary.dimension == 10
    (here / "object_task.py").write_text(SOURCE.replace("width=4", "width=6"))
    assert plan("my.toml").values["dimension"] == 14
    assert run("my.toml", report=False).summary.dimension == 14


def states():
    numpy_state: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    return random.getstate(), torch.get_rng_state().tolist(), str(numpy_state["state"])


@pytest.mark.slow
def test_an_interrupt_leaves_a_run_that_goes_on_and_the_generators_as_they_were(here):
    def stop(record):
        raise KeyboardInterrupt

    random.seed(1)
    torch.manual_seed(2)
    np.random.seed(3)  # noqa: NPY002
    before = states()
    with pytest.raises(KeyboardInterrupt) as ended:
        run(PLAIN, task=ObjectTask(), out="cut", on_round=stop, report=False)
    assert states() == before
    assert ended.value.__notes__ == ["The run goes on with resume('cut')."]
    whole = run(PLAIN, task=ObjectTask(), report=False)
    assert bits(resume("cut", task=ObjectTask(), report=False)) == bits(whole)


def _run_apart(folder):
    logging.disable()
    return run(PLAIN, task=ObjectTask(), out=folder, report=False).summary.engine["name"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="forks a process with torch in it")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_pool_forked_after_a_run_computes_serially_and_comes_back(here):
    run(PLAIN, task=ObjectTask(), report=False)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_run_apart, ["apart"]).get(timeout=60) == "serial"
    shutil.rmtree("apart")
