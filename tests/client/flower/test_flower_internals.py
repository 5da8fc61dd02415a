"""Flower's internals: one module has them, and each may be missing."""

import ast
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, Metadata, RecordDict

from zerosum.client.flower import flower_internals
from zerosum.server.config import ConfigError
from zerosum.server.flower import private_strategy
from zerosum.simulations.engine.grid import InProcessGrid

ROOT = Path(__file__).parents[3]
PARTS = ("secagg", "client", "server", "simulations", "examples", "docs", "benchmarks", ".ci")
PUBLIC = {
    "flwr",
    "flwr.app",
    "flwr.clientapp",
    "flwr.clientapp.mod",
    "flwr.serverapp",
    "flwr.serverapp.strategy",
    "flwr.simulation",
}
BENCH = ROOT / "simulations/zerosum/simulations/bench"
THEIR_SECAGG = {BENCH / "flower.py", BENCH / "secaggplus.py"}
"""They measure SecAgg+ by Flower's own functions, and may lack them."""
STAND_INS = set((ROOT / "benchmarks/flower_stand_ins").glob("*.py"))
"""They stand in Flower's own processes and count what these send, as they send it."""
HAVE_INTERNALS = {Path(flower_internals.__file__), *THEIR_SECAGG, *STAND_INS}


def modules_of(tree):
    """Return what a file imports, or names in a text: ``from a import b`` is a alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split(".")
            if words[0] == "flwr" and all(word.isidentifier() for word in words):
                yield node.value


def internals_of(source):
    """Return the internals of Flower that a source speaks of."""
    flower = {m for m in modules_of(ast.parse(source)) if m.partition(".")[0] == "flwr"}
    return flower - PUBLIC


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_one_module_alone_imports_internals_of_flower(part):
    files = [p for p in (ROOT / part).rglob("*.py") if not p.is_relative_to(ROOT / "docs/_build")]
    found = {str(p): internals_of(p.read_text()) for p in files if p not in HAVE_INTERNALS}
    assert files
    assert not {name: modules for name, modules in found.items() if modules}


@pytest.mark.parametrize(
    "source",
    [
        "from flwr.supercore.run import Run",
        "import flwr.common.config as config",
        "def f():\n    from flwr.app.user_config import UserConfig",
        "sys.modules.get('flwr.superlink.grid.inmemory_grid')",
    ],
)
def test_an_internal_would_be_found(source):
    assert internals_of(source)


def test_public_modules_are_no_internals():
    assert not internals_of("from flwr.app import Message\nfrom flwr.serverapp import strategy")


def test_every_public_module_is_there():
    assert [importlib.import_module(name) for name in sorted(PUBLIC)]


# --- Each is there ---


def test_the_run_of_a_grid_is_flowers():
    run = flower_internals.empty_run(7, {"rounds": 3})
    assert type(run).__module__.startswith("flwr.")
    assert (run.run_id, run.override_config) == (7, {"rounds": 3})
    assert flower_internals.fused_config(run) == {"rounds": 3}


def test_simulations_are_told_by_a_class_of_flowers():
    theirs = pytest.importorskip("flwr.superlink.grid.inmemory_grid").InMemoryGrid
    assert flower_internals.is_simulation_grid(theirs.__new__(theirs))
    around: Any = type("Around", (theirs,), {})
    assert flower_internals.is_simulation_grid(around.__new__(around))
    same_name = type("InMemoryGrid", (InProcessGrid,), {})
    assert not flower_internals.is_simulation_grid(same_name(echo, 1))


def test_a_changed_message_leaves_the_other_as_it_was():
    metadata = Metadata(1, "m1", 1, 2, "", "3", 0.0, 10.0, "train")
    message = flower_internals.received_message(metadata, RecordDict())
    content = RecordDict({"c": ConfigRecord({"x": 1})})
    changed = flower_internals.changed_message(message, "evaluate", content)
    assert (changed.metadata.message_type, changed.content) == ("evaluate", content)
    assert (message.metadata.message_type, message.content) == ("train", RecordDict())
    flower_internals.set_message_id(changed, "m2")
    assert (changed.metadata.message_id, message.metadata.message_id) == ("m2", "m1")


# --- Each may be missing ---


def echo(message, context):
    return Message(message.content, reply_to=message)


def asked(grid):
    content = RecordDict({"c": ConfigRecord({"x": 1})})
    messages = [
        Message(content, dst_node_id=node, message_type="query") for node in grid.get_node_ids()
    ]
    return [reply.content["c"]["x"] for reply in grid.send_and_receive(messages)]


@pytest.fixture
def without(monkeypatch):
    """Return a function after which a module of Flower's cannot be imported."""

    def without(*modules):
        for module in modules:
            monkeypatch.setitem(sys.modules, module, None)

    return without


def test_a_grid_needs_no_server_node_id(without):
    without("flwr.common.constant")
    assert asked(InProcessGrid(echo, 3)) == [1, 1, 1]


@pytest.fixture
def identity(monkeypatch):
    """Return a function that returns the process's task, run and node, which begin at 7."""
    name = "flwr.supercore.task_identity"
    identity = pytest.importorskip(name).TaskIdentity
    for field in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(identity, field, 7)
    return lambda: (identity.task_id, identity.run_id, identity.node_id)


def test_a_process_without_an_identity_is_left_alone(without, identity):
    without("flwr.supercore.task_identity")
    flower_internals.adopt_server_identity(3)
    assert identity() == (7, 7, 7)


def test_the_control_a_process_with_one_takes_that_of_a_server(identity):
    flower_internals.adopt_server_identity(3)
    task, run, node = identity()
    assert (task, run) == (1, 3)
    assert node != 7


def test_a_run_of_our_own_stands_in(monkeypatch):
    monkeypatch.setattr(flower_internals, "Run", flower_internals.PlainRun)
    grid = InProcessGrid(echo, 2, run_id=5, run_config={"lr": 0.1})
    assert (grid.run.run_id, grid.run.override_config, grid.run.fab_id) == (5, {"lr": 0.1}, "")
    assert flower_internals.fused_config(grid.run) == {"lr": 0.1}
    assert asked(grid) == [1, 1]


def test_a_run_config_that_nobody_tells_is_asked_for(without):
    without("flwr.common.config")
    grid = InProcessGrid(echo, 1)
    assert flower_internals.fused_config(grid.run) is None
    with pytest.raises(ConfigError, match=r"run_config=context\.run_config"):
        private_strategy._run_config(grid)
