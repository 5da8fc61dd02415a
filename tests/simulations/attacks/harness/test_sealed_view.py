"""A view is data alone: neither clients nor the truth can be reached from it."""

import types
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from view_parts import parts

from zerosum.client.spec import ModelSpec
from zerosum.simulations.attacks.harness.interface import Defense, ThreatModel, View
from zerosum.simulations.attacks.harness.sealed_view import UnsealedView, sealed

THREAT = ThreatModel("curious server")
PLAIN = Defense("plain")


@dataclass(frozen=True)
class Holding(View):
    what: object = None


@dataclass
class Mutable:
    value: int = 0


@dataclass(frozen=True)
class Cached:
    value: int = 0


class Client:
    """Stands for whoever must not be reached."""

    secret = 7

    def answer(self):
        return self.secret


def holding(what):
    return Holding(THREAT, PLAIN, what=what)


CLIENT = Client()
SMUGGLED = {
    "an object": CLIENT,
    "a bound method": CLIENT.answer,
    "a closure": lambda: CLIENT,
    "a list": [1, 2],
    "a tensor": torch.zeros(2),
    "a module": torch.nn.Linear(1, 1),
    "an array of objects": np.array([CLIENT]),
    "a class": Client,
    "a subclass of a dict": OrderedDict(a=1),
    "a subclass of a tuple": type("Pair", (tuple,), {})((1, 2)),
    "a frozen set of objects": frozenset({CLIENT.answer}),
    "a mutable dataclass": Mutable(),
    "an object in a tuple in a mapping": {"a": (1, CLIENT)},
    "a subclass of text": type("Text", (str,), {})("a"),
    "a masked array": np.ma.masked_array([1.0], mask=[False]),
    "a generator": (i for i in range(3)),
    "numpy's generator": np.random.default_rng(0),
}


@pytest.mark.parametrize("what", SMUGGLED.values(), ids=SMUGGLED)
def test_nothing_but_data_is_sealed(what):
    with pytest.raises(UnsealedView, match="Holding"):
        sealed(holding(what))


def test_what_hides_beside_the_fields_of_a_dataclass_is_refused():
    cached = Cached()
    object.__setattr__(cached, "client", CLIENT)
    with pytest.raises(UnsealedView, match="client"):
        sealed(holding(cached))


def test_data_are_sealed_as_they_are():
    what = {"a": (1, 2.5, b"x", None), "b": np.arange(3), "c": frozenset({"y"}), "d": ModelSpec()}
    found = sealed(holding(what))
    assert found.what["a"] == (1, 2.5, b"x", None)
    np.testing.assert_array_equal(found.what["b"], np.arange(3))
    assert found.what["c"] == frozenset({"y"})
    assert found.what["d"] == ModelSpec()
    assert found.threat == THREAT


def test_a_sealed_array_leads_to_no_larger_one_and_is_read_only():
    whole = np.arange(10)
    found = sealed(holding(whole[:2])).what
    assert found.base is None
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


def test_a_sealed_mapping_and_spec_are_the_views_own():
    inner, model = {"a": 1}, ModelSpec(hidden=[3])
    found = sealed(holding({"inner": inner, "model": model}))
    inner["a"] = 2
    model.hidden.append(4)
    assert isinstance(found.what, types.MappingProxyType)
    assert found.what["inner"]["a"] == 1
    assert found.what["model"].hidden == [3]


def test_all_parts_of_a_view_are_yielded():
    array = np.arange(3)
    found = list(parts(sealed(holding({"a": (1, array)}))))
    assert any(isinstance(part, np.ndarray) and (part == array).all() for part in found)
    assert 1 in [part for part in found if isinstance(part, int)]


@dataclass(frozen=True)
class Lacking(View):
    there: np.ndarray = field(default_factory=lambda: np.zeros(1))
    absent: np.ndarray | None = None


def test_a_view_says_what_it_lacks():
    view = Lacking(THREAT, PLAIN)
    assert view.lacks(("there", "absent", "unknown")) == ("absent", "unknown")
