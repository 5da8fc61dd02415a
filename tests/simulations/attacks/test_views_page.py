"""docs/attack-views.md names every field of every view, and what it says of arrays is so."""

import importlib
import pkgutil
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from narrowed import present, view_of

from zerosum.simulations import attacks
from zerosum.simulations.attacks import Defense, RoundsSetting, ThreatModel, View
from zerosum.simulations.attacks.inference.mirrored_sums import PropertySetting
from zerosum.simulations.attacks.inference.trained import TrainedSetting
from zerosum.simulations.attacks.inversion.two_cohorts import TwoCohorts
from zerosum.simulations.attacks.poisoning.poisoned import PoisonedSetting
from zerosum.simulations.attacks.protocol.asked_sums import AskedSumsSetting
from zerosum.simulations.attacks.protocol.sessions import SessionsSetting
from zerosum.simulations.attacks.published.ages import TablesSetting
from zerosum.simulations.attacks.published.answers import AnswersSetting
from zerosum.simulations.attacks.published.asked_subsets import AskedSubsets
from zerosum.simulations.attacks.published.asked_tables import noised
from zerosum.simulations.attacks.published.counts import CountsSetting
from zerosum.simulations.attacks.published.lied_counts import LiedCountsSetting
from zerosum.simulations.attacks.published.released import ReleasedSetting

PAGE = (Path(__file__).parents[3] / "docs" / "attack-views.md").read_text(encoding="utf-8")


def table_of(kind):
    """Return the rows of a view's table: type by name."""
    (rows,) = re.findall(rf"\| `{kind}` \| type \| what it is \|\n\|---.*\n((?:\|.*\n)+)", PAGE)
    return dict(re.findall(r"\| `([^`]+)` \| ([^|]+) \|", rows))


def views():
    """Return every view of this library."""
    for module in pkgutil.walk_packages(attacks.__path__, f"{attacks.__name__}."):
        importlib.import_module(module.name)
    found, more = [], [View]
    while more:
        kind = more.pop()
        more += kind.__subclasses__()
        found += [kind] if kind.__module__.startswith(attacks.__name__) else []
    return found


@pytest.mark.parametrize("kind", views(), ids=lambda kind: kind.__name__)
def test_the_page_names_the_fields_of_every_view_and_no_others(kind):
    own = {each.name for each in fields(kind)}
    if kind is not View:
        own -= {each.name for each in fields(kind.__base__)}
    named = {name for name in table_of(kind.__name__) if not name.startswith("truth[")}
    assert named == own


class Curious:
    """Knows all that can be known."""

    threat = ThreatModel(
        "curious server", knows=frozenset({"labels", "auxiliary data", "candidates", "mean image"})
    )
    requires = ("references",)

    def craft(self, view, rng):
        raise NotImplementedError


class Malicious:
    name = "still"
    threat = ThreatModel("malicious client", knows=frozenset({"rule"}))

    def craft(self, view, rng):
        check(view, "PoisonView", {"final"})
        return np.zeros_like(view.honest)


PLAIN = Defense("plain")
SMALL = TrainedSetting(
    clients=2, records=2, rounds=1, epochs=1, batch_size=2, task="digits", pool=1, references=4
)
POISONED = PoisonedSetting(malicious=2, clients=4, rounds=2, hidden=8, task="digits")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "lacks"),
    [
        (RoundsSetting(clients=3, records=2, rounds=2, task="digits"), {'truth["update"]'}),
        (TwoCohorts(clients=3, records=2, task="digits"), set()),
        (PropertySetting(cohort=2, sums=3), set()),
        (SessionsSetting(clients=4, trials=1), {'truth["changes"]'}),
        (SessionsSetting(clients=4, trials=1, rounds=2), set()),
        (AnswersSetting(people=10, queries=20), set()),
        (TablesSetting(tables=2), set()),
        (ReleasedSetting(targets=5), set()),
        (SMALL, {"blind_scores"}),
        (POISONED, {"honest"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_arrays_are_of_the_types_and_shapes_that_the_page_says(setting, lacks, one_thread):
    attack = Malicious() if isinstance(setting, PoisonedSetting) else Curious()
    if isinstance(setting, RoundsSetting):
        attack = type("Passive", (), {"threat": Curious.threat})()
    scene = setting.play(attack, PLAIN, 0)
    check(scene.view, type(scene.view).__name__, lacks, scene.truth)


@pytest.mark.slow
def test_sums_over_nodes_are_of_the_types_and_shapes_that_the_page_says(one_thread):
    setting = AskedSumsSetting("arrays", clients=4, trials=2)
    scene = setting.play(Curious(), Defense("masked", "double"), 0)
    check(scene.view, "AskedView", set(), scene.truth)
    assert not np.any(view_of(scene).totals), "nobody trains as long as nobody lies"


class Liar:
    threat = ThreatModel("malicious client", colluders=1)

    def craft(self, view, rng):
        check(view, "LiedCountsView", {"counts"})
        return 1


class Insider:
    threat = ThreatModel("analyst", knows=frozenset({"other records"}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "attack", "lacks"),
    [
        (CountsSetting(groups=10, times=2), Insider(), set()),
        (CountsSetting(groups=10), Curious(), {"others"}),
        (AskedSubsets(people=10, queries=8), Curious(), set()),
        (LiedCountsSetting(), Liar(), set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_answers_to_queries_are_of_the_types_and_shapes_that_the_page_says(setting, attack, lacks):
    scene = setting.play(attack, noised(1.0), 0)
    check(scene.view, type(scene.view).__name__, lacks, scene.truth)


def check(view, kind, lacks, truth=None):
    """Compare a view, and the truth where it is given, with its table."""
    said = table_of(kind)
    values = {name: getattr(view, name) for name in said if not name.startswith("truth[")}
    if truth is not None:
        values |= {f'truth["{name}"]': np.asarray(value) for name, value in truth.items()}
        assert values.keys() == said.keys() - {name for name in lacks if "truth" in name}
    assert {name for name, value in values.items() if value is None} == {
        name for name in lacks if "truth" not in name
    }
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            assert matches(value, said[name]), (name, said[name], value.dtype, value.shape)
        elif value is not None:
            wanted = said[name].strip("`").split()[0]
            assert type(value).__name__ == wanted, name


def matches(array, said):
    """Return whether an array is as the page says: ``float32 (n, records, ...)``."""
    dtype, shape = present(re.fullmatch(r"(\w+) \((.*)\)", said)).groups()
    sizes = [size.strip() for size in shape.split(",") if size.strip()]
    numbers = {n: int(size) for n, size in enumerate(sizes) if size.isdigit()}
    enough = array.ndim >= len(sizes) if "..." in sizes else array.ndim == len(sizes)
    right = all(array.shape[n] == size for n, size in numbers.items())
    return array.dtype == np.dtype(dtype) and enough and right


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        ("float32 (n, d)", True),
        ("float64 (n, d)", False),
        ("float32 (n)", False),
        ("float32 (n, 3)", True),
        ("float32 (n, 4)", False),
        ("float32 (n, ...)", True),
    ],
)
def test_what_is_said_of_an_array_can_be_wrong(said, fits):
    assert matches(np.zeros((2, 3), np.float32), said) == fits


def test_masks_hide_contributions_as_the_page_says(one_thread):
    masked = Defense("masked", masking="double")
    for setting in (RoundsSetting(clients=3, task="digits"), PropertySetting(cohort=3, sums=2)):
        attack = type("Passive", (), {"threat": ThreatModel("curious server")})()
        view = setting.play(attack, masked, 0).view
        gone = {name for name in table_of(type(view).__name__) if getattr(view, name, 0) is None}
        assert "contributions" in gone
        assert gone - {"labels"} == {"contributions", "auxiliary_inputs", "auxiliary_labels"}
