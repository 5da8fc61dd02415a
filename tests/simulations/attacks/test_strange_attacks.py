"""Attacks whose parts are not what they should be: nothing that others found is lost to them."""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import pytest
from odd_attacks import Bits, Odd

from zerosum.secagg.randomness import numpy_generator
from zerosum.server.config import ConfigError
from zerosum.simulations.attacks import Case, Defense, Guess, Metric, Scene
from zerosum.simulations.attacks.folder import AttackFolder
from zerosum.simulations.attacks.harness.interface import View
from zerosum.simulations.attacks.harness.metrics import Mean, Ranking
from zerosum.simulations.attacks.harness.partial_results import AttackRequest
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.harness.registry import choose
from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.harness.significance import is_above
from zerosum.simulations.attacks.run import attack_run
from zerosum.simulations.terminal.logs import logged

COMMON = Path(__file__).parents[2] / "common"


class Wordless(Exception):
    def __str__(self):
        raise ValueError("no words")


@dataclass(frozen=True)
class Raising(Odd):
    what: str = "nothing"
    error: BaseException = field(default_factory=Wordless)

    def run(self, view, rng):
        raise self.error


@dataclass(frozen=True)
class Drawing(Odd):
    what: str = "nothing"
    drawn: np.ndarray = field(default_factory=lambda: np.zeros(5))

    def pictures(self, guess, truth):
        return {"reconstruction": self.drawn}


def played(attack):
    return play(0, Cell(attack, Case(Bits("a"), Defense("first"))), 0)


@pytest.mark.parametrize(
    ("error", "said"),
    [(Wordless(), "Wordless"), (GeneratorExit("x"), "GeneratorExit: x"), (SystemExit(3), ": 3")],
)
def test_whatever_an_attack_raises_fails_its_cell_alone(error, said):
    outcome = played(Raising(error=error))
    assert outcome.status == "failed"
    assert said in outcome.note


@pytest.mark.parametrize("shape", [(5,), (3, 2, 4, 4, 3), (2, 3, 4, 4)])
def test_what_is_no_picture_fails_its_cell_and_not_the_page(shape):
    assert "shape (k, 2, h, w)" in played(Drawing(drawn=np.zeros(shape))).note
    assert played(Drawing(drawn=np.zeros((3, 2, 4, 4)))).status == "value"


def test_a_place_on_an_axis_may_be_of_numpys_numbers():
    case = Case(Bits("a"), Defense("first"), {"cohort": np.int64(3)})  # type: ignore[dict-item] # a number of numpy's is what is tried
    cell = Cell(Odd("nothing"), case)
    assert json.loads(rows_of([cell], [play(0, cell, 0)])[0].at) == {"cohort": 3}


@pytest.mark.parametrize(
    "parts",
    [
        (Bits("a"), None),
        (Bits("a"), Defense("first"), {"sigma": "x"}),
        (Bits("a"), Defense("first"), {"sigma": float("nan")}),
    ],
)
def test_a_case_of_which_no_row_can_be_written_is_refused_before_it_is_played(parts):
    with pytest.raises(ValueError, match="Case"):
        Case(*parts)


@pytest.mark.parametrize("setting", [None, Bits(5)])  # type: ignore[arg-type] # a name that is none
def test_a_setting_without_a_name_is_refused_before_it_is_played(monkeypatch, setting, tmp_path):
    monkeypatch.chdir(COMMON)
    monkeypatch.setattr("odd_attacks.Odd.cases", lambda *_: [Case(setting, Defense("first"))])
    with pytest.raises(ConfigError, match=r"odd: it.* cases"):
        attack_run(AttackRequest(["odd_attacks:Odd"], [], "quick", 1), tmp_path / "out")


@pytest.mark.parametrize("epsilon", [float("nan"), -1.0])
def test_a_scene_has_an_epsilon_or_none(epsilon):
    view = View(Odd().threat, Defense("first"))
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        Scene(view, {}, epsilon)


def test_notes_are_text():
    with pytest.raises(ValueError, match="valid string"):
        Guess({}, 5)  # type: ignore[arg-type] # notes that are none


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("requires", "bits"),
        ("metrics", ("bits right",)),
        ("metrics", Metric("bits right")),
        ("name", 5),
        ("threat", "curious server"),
    ],
)
def test_an_attack_with_a_part_of_another_kind_is_refused(monkeypatch, part, value):
    monkeypatch.chdir(COMMON)
    monkeypatch.setattr("odd_attacks.Odd", lambda: _replaced(part, value))
    with pytest.raises(ConfigError, match=f"its {part}(: 0)?: it should be"):
        choose(["odd_attacks:Odd"])


def _replaced(part, value):
    made = Odd()
    object.__setattr__(made, part, value)
    return made


@pytest.mark.parametrize("kind", [np.uint8, np.bool_, np.float16])
def test_a_mean_of_short_numbers_is_that_of_long_ones(kind):
    rng = np.random.default_rng(0)
    values, others = (rng.random(64) < 0.8).astype(kind), (rng.random(64) < 0.3).astype(kind)
    values[0], others[0] = 0, 1  # whose difference a uint8 does not hold
    short, long = (
        [each.figure() for each in (Mean(values.astype(k)), Mean(others.astype(k)))]
        for k in (kind, np.float64)
    )
    assert short == long
    coins = numpy_generator(0, "above")
    assert is_above([Mean(values)], [Mean(others)], True, coins)


def test_a_mean_of_large_short_floats_is_finite():
    figure = Mean(np.full(64, 60000, np.float16)).figure()
    assert (figure.low, figure.high) == (60000, 60000)


@pytest.mark.parametrize("values", [np.array([1j, 2]), np.array([1, 2], object), np.array(["a"])])
def test_a_mean_is_of_real_numbers(values):
    with pytest.raises(ValueError, match="one finite number a unit"):
        Mean(values)


@pytest.mark.parametrize("at", [-0.5, 2.0, float("nan")])
def test_a_false_positive_rate_is_between_0_and_1(at):
    with pytest.raises(ValueError, match="a false-positive rate"):
        Ranking(np.arange(4.0), np.arange(4) < 2, at)


def test_a_folder_in_which_nothing_can_be_written_is_refused_before_anything_is_played(
    tmp_path, monkeypatch
):
    def refused(dir):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("zerosum.simulations.attacks.folder.TemporaryFile", refused, raising=False)
    with pytest.raises(ConfigError, match="cannot be written: Read-only file system"):
        AttackFolder.create(tmp_path)
    monkeypatch.setattr("zerosum.simulations.attacks.folder.TemporaryFile", TemporaryFile)
    AttackFolder.create(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_log_takes_what_is_no_text_in_utf_8(tmp_path, capsys):
    with logged("zerosum", tmp_path / "log"):
        logging.getLogger("zerosum.simulations").error("\udcff")
    assert "\\udcff" in (tmp_path / "log").read_text()
    assert "Logging error" not in capsys.readouterr().err
