"""Cells of a sweep: which there are, what they are called, what is refused."""

import json
from typing import Any

import pytest

from zerosum.server.config import ConfigError
from zerosum.simulations.config import load_experiment
from zerosum.simulations.sweeps.grid import (
    cells_of,
    given_choices,
    seeds_of,
    split_values,
    written_choices,
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("SGD,Adam", ["SGD", "Adam"]),
        ("1, 2 ,4", ["1", "2", "4"]),
        ("[64],[64, 32]", ["[64]", "[64, 32]"]),
        ("{momentum=0.9, nesterov=true},{}", ["{momentum=0.9, nesterov=true}", "{}"]),
        ('"a,b",c', ['"a,b"', "c"]),
        (r'"a\",b",c', [r'"a\",b"', "c"]),
        ("5", ["5"]),
    ],
)
def test_a_list_is_split_at_commas_outside_brackets_and_quotes(text, parts):
    assert split_values(text) == parts


def test_the_product_has_every_combination_once_with_seeds_fastest():
    lists = ["server.optimizer=SGD,Adam", "privacy.epsilon=1,2", "rounds=3"]
    cells = cells_of("digits", written_choices(lists), seeds_of("0-2"))
    found = [
        (c.experiment.server.optimizer, c.experiment.privacy.epsilon, c.experiment.seed)
        for c in cells
    ]
    assert found == [(o, e, s) for o in ("SGD", "Adam") for e in (1, 2) for s in (0, 1, 2)]
    assert {c.experiment.rounds for c in cells} == {3}
    assert {tuple(c.values) for c in cells} == {("server.optimizer", "privacy.epsilon")}


def test_zip_takes_values_together_and_single_ones_with_all():
    lists = ["server.lr=0.1,1", "training.lr=0.2,0.3", "rounds=3"]
    cells = cells_of("digits", written_choices(lists), zipped=True)
    assert [(c.experiment.server.lr, c.experiment.training.lr) for c in cells] == [
        (0.1, 0.2),
        (1.0, 0.3),
    ]


def test_lists_that_go_together_are_one_factor_of_the_product():
    lists = ["server.optimizer=SGD,Adam", "privacy.epsilon=1,2", "server.lr=1,0.01"]
    together = ["server.optimizer", "server.lr"]
    cells = cells_of("digits", written_choices(lists), together=together)
    found = [
        (c.experiment.server.optimizer, c.experiment.server.lr, c.experiment.privacy.epsilon)
        for c in cells
    ]
    assert found == [("SGD", 1.0, 1), ("SGD", 1.0, 2), ("Adam", 0.01, 1), ("Adam", 0.01, 2)]
    assert list(cells[0].values) == ["server.optimizer", "privacy.epsilon", "server.lr"]
    lists = ["server.optimizer=SGD,SGD", "training.proximal=0,0.1"]
    assert len(cells_of("digits", written_choices(lists), zipped=True)) == 2


def test_a_cell_is_what_set_gives_but_for_how_it_is_computed():
    (cell, _) = cells_of("digits", written_choices(["privacy.epsilon=1,2"]), seeds_of("7"))
    alone = load_experiment("digits", ["privacy.epsilon=1", "seed=7", "engine=serial"])
    assert cell.experiment == alone
    assert cell.experiment.privacy.noise_multiplier is None


def test_python_values_make_the_cells_that_the_command_line_makes():
    grid: dict[str, list[Any]] = {
        "model.hidden": [[64], [64, 32]],
        "data.clients": [None, 50],
        "model.bias": [True],
    }
    lists = ["model.hidden=[64],[64,32]", "data.clients=none,50", "model.bias=true"]
    assert cells_of("digits", given_choices(grid)) == cells_of("digits", written_choices(lists))


def test_texts_of_python_are_texts_whatever_is_in_them():
    paths = ['a "b"\n', "true", "unset", "é,\\"]
    cells = cells_of("digits", given_choices({"data.path": paths}))
    assert [cell.experiment.data.path for cell in cells] == paths


def test_folders_differ_and_have_names_for_every_system():
    cells = cells_of("digits", given_choices({"data.path": ["a/b", "a:b", "a_b" * 90]}))
    names = [cell.folder for cell in cells]
    assert len(set(names)) == 3
    assert names[0] == "0000-path=a_b-seed=0"
    assert all(len(name) < 100 and not set(name) & set('/\\:*?"<>| ') for name in names)


@pytest.mark.parametrize(
    ("seeds", "found"),
    [("0-3", [0, 1, 2, 3]), ("5", [5]), ("1,7-8", [1, 7, 8]), (4, [4]), (range(2), [0, 1])],
)
def test_seeds_are_ranges_and_lists(seeds, found):
    assert seeds_of(seeds) == found


@pytest.mark.parametrize("seeds", ["3-1", "a", "", "-1", "0,0", [], [1, 1], "0-99999999999"])
def test_seeds_that_are_none_are_refused(seeds):
    with pytest.raises(ConfigError, match="seeds"):
        seeds_of(seeds)


@pytest.mark.parametrize(
    ("lists", "more", "words"),
    [
        (["rounds"], {}, "key=value"),
        (["rounds=1,,2"], {}, "empty"),
        (["rounds=1,1"], {}, "twice"),
        (["server.lr=1,2,1", "rounds=3,4,3"], {"zipped": True}, "server.lr, rounds: a value"),
        (["rounds=1", "rounds=2"], {}, "already"),
        (["privacy.epsilom=1,2"], {}, "privacy.epsilon"),
        (["rounds=1,many"], {}, "rounds = 'many'"),
        (["seed=1,2"], {"seeds": [0]}, "not both"),
        (["rounds=1,2", "server.lr=1,2,3"], {"zipped": True}, "rounds 2, server.lr 3"),
        (["rounds=1,2"], {"seeds": range(10**6)}, "2,000,000 cells"),
        (["rounds=1,2", "seed=3"], {"together": ["seed", "rounds"]}, "seed has no list"),
        (["rounds=1,2"], {"together": ["rounds"], "zipped": True}, "not both"),
    ],
)
def test_a_wrong_sweep_is_refused_before_anything_is_written(lists, more, words):
    with pytest.raises(ConfigError, match=words):
        cells_of("digits", written_choices(lists), **more)


@pytest.mark.parametrize("values", [5, "SGD", {"a": 1}, [object()], []])
def test_a_grid_without_lists_of_plain_values_is_refused(values):
    with pytest.raises(ConfigError, match="rounds"):
        cells_of("digits", given_choices({"rounds": values}))


def test_values_are_those_that_json_gives_back():
    cells = cells_of("digits", given_choices({"model.hidden": [(64,), (32, 16)]}))
    assert [json.loads(json.dumps(dict(cell.values))) for cell in cells] == [
        dict(cell.values) for cell in cells
    ]
