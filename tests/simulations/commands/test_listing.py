"""``zerosum list`` names everything as commands and configurations take it."""

from typing import get_args

import pytest
from typer.testing import CliRunner

from zerosum.client.spec import ModelSpec
from zerosum.simulations.attacks.harness.built_in import BUILT_IN
from zerosum.simulations.commands.listing import MODELS, catalog, rows_of
from zerosum.simulations.commands.main import app
from zerosum.simulations.config import experiment_names

KINDS = (
    *("experiments", "presets", "tasks", "models", "privacy-models", "mechanisms", "clipping"),
    *("protocols", "sampling", "rules", "attacks", "queries"),
)


def listed(*words: str) -> list[list[str]]:
    done = CliRunner().invoke(app, ["list", *words])
    assert done.exit_code == 0, done.output
    return [line.split("\t") for line in done.output.splitlines()]


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("kind", KINDS)
def test_a_piped_kind_is_a_line_a_name_and_each_says_what_it_is(kind: str) -> None:
    rows = listed(kind)
    assert [tuple(row) for row in rows] == rows_of(kind)
    assert all(len(row) == 2 and row[0] and row[1] for row in rows), rows
    assert all(" " not in name for name, _ in rows)


@pytest.mark.slow
def test_all_kinds_are_listed_with_the_kind_beside_the_name() -> None:
    rows = listed()
    assert {row[1] for row in rows} == set(KINDS)
    assert len(rows) == sum(map(len, catalog().values()))
    assert not any(set(cell) & set("│─┃━╭") for row in rows for cell in row)


def test_names_are_those_that_commands_take() -> None:
    assert [name for name, _ in listed("attacks")][:-1] == list(BUILT_IN)
    assert [name for name, _ in listed("experiments")] == experiment_names()
    assert list(MODELS) == list(get_args(ModelSpec.model_fields["name"].annotation))
    assert {name for name, _ in listed("presets")} == {"fedavg", "cross-silo", "cross-device"}


def test_an_unknown_kind_is_refused_with_what_there_is() -> None:
    done = CliRunner().invoke(app, ["list", "atacks"])
    assert done.exit_code == 2
    assert 'did you mean "attacks"?' in done.output
    assert all(kind in done.output for kind in KINDS)
