"""Overrides of a run config have the keys and types that the app's own has."""

import pytest

from zerosum.simulations.rehearsal.processes import DeploymentError
from zerosum.simulations.rehearsal.run_config import overridden

CONFIG = {"rounds": 3, "lr": 0.1, "name": "first", "fast": False, "model.depth": 2}

GIVEN = {
    "one": (["rounds=2"], {"rounds": 2}),
    "several in one, as Flower takes them": (
        ["rounds=2 lr=1 fast=true"], {"rounds": 2, "lr": 1.0, "fast": True}),
    "a text as it stands": (["name=second"], {"name": "second"}),
    "a text in quotes": (['name="a b" rounds=1'], {"name": "a b", "rounds": 1}),
    "a text with spaces": (["name=a b"], {"name": "a b"}),
    "a text of digits": (["name=7"], {"name": "7"}),
    "an empty text": (["name="], {"name": ""}),
    "a quote that is never closed": (['name="a'], {"name": '"a'}),
    "a text with a sign": (["name=a=b"], {"name": "a=b"}),
    "a nested key": (["model.depth=4"], {"model.depth": 4}),
    "the last one counts": (["rounds=2", "rounds=5"], {"rounds": 5}),
    "none": ([], {}),
}  # fmt: skip


@pytest.mark.parametrize("what", GIVEN)
def test_values_are_of_the_types_that_the_app_has(what):
    settings, wanted = GIVEN[what]
    found = overridden(CONFIG, settings)
    assert found == wanted
    assert [type(value) for value in found.values()] == [type(v) for v in wanted.values()]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("num=2", "num=2: the app's run config has fast, lr, model.depth, name, rounds"),
        ("rounds=2.5", "rounds=2.5: it is an integer; the app's own is 3"),
        ("rounds=many", "it is an integer"),
        ("rounds=true", "it is an integer"),
        ("lr=x", "lr=x: it is a number; the app's own is 0.1"),
        ("fast=1", "it is true or false; the app's own is false"),
        ("rounds", "rounds: write KEY=VALUE"),
        ("=3", "write KEY=VALUE"),
    ],
)
def test_what_the_app_would_not_take_is_one_line(setting, said):
    with pytest.raises(DeploymentError, match=r"write|the app") as refused:
        overridden(CONFIG, [setting])
    assert said in str(refused.value)


def test_an_app_without_a_run_config_has_no_keys():
    with pytest.raises(DeploymentError, match="has no keys"):
        overridden({}, ["rounds=2"])
