"""``zerosum budget`` reads what was spent, of a run and of a node, and touches nothing."""

import json
import math
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from narrowed import present
from typer.testing import CliRunner

from zerosum.client import renyi_filter
from zerosum.client.files.private_files import write_private
from zerosum.client.privacy import renyi_curves
from zerosum.client.privacy.spending import Price, UnitPrice, run_name
from zerosum.client.protocol import own_budget as costs
from zerosum.client.protocol.admission import Declined, check_epsilon
from zerosum.client.protocol.file_store import FileStore
from zerosum.server.config import ConfigError
from zerosum.server.planning.spent_budget import ObserverSpending, RunSpending
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.runs.run_folder import LEDGER, SUMMARY, RunFolder
from zerosum.simulations import api
from zerosum.simulations.commands.budget import further_contributions, spending_in
from zerosum.simulations.commands.main import app

SETTINGS = {
    "distributed": [
        "evaluation.federated_every=2",
        "evaluation.federated_noise_multiplier=1.0",
        "privacy.clipping=adaptive",
    ],
    "local": ["privacy.model=local", "privacy.noise_multiplier=2.0"],
    "laplace": ["privacy.model=local", "privacy.mechanism=discrete-laplace",
                "privacy.noise_multiplier=2.0", "encoding.rotate=false",
                "evaluation.federated_every=2",
                "evaluation.federated_noise_multiplier=1.0"],
    "example": ["privacy.unit=example", "privacy.examples=1438", "privacy.delta=1e-4",
                "privacy.lot=200", "encoding.range=4.0", "sampling.kind=everyone"],
    "none": ["privacy.model=none", "evaluation.federated_every=2"],
}  # fmt: skip


def run_spending_in(folder: Path) -> RunSpending:
    found = spending_in(folder)
    assert isinstance(found, RunSpending)
    return found


def ran(name: str, tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp(name) / "run"
    api.run("digits", overrides=["rounds=3", "workers=1", *SETTINGS[name]], out=found)
    return found


@pytest.fixture(scope="module", params=SETTINGS)
def any_folder(request, tmp_path_factory) -> Path:
    return ran(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return ran("distributed", tmp_path_factory)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_a_run_has_spent_what_its_summary_says(any_folder):
    folder = any_folder
    before = contents(folder)
    spent = run_spending_in(folder).document()
    assert contents(folder) == before
    summary = json.loads((folder / SUMMARY).read_text())
    for name, figure in summary["epsilon"].items():
        found = spent["observers"][name]
        assert found["value"] == figure["value"], name
        assert found["participations"] == figure["participations"]
        if found["value"] is not None:
            assert found["left"] == max(0.0, found["planned"] - found["value"])
            alone = [kind["epsilon"][name] for kind in spent["kinds"].values()]
            assert max(alone) <= found["value"] <= sum(alone)
    assert spent["kinds"]["train"]["sums"] == 3 - summary["rounds_abandoned"]


@pytest.mark.slow
def test_a_torn_line_of_a_run_in_progress_is_neither_read_nor_cut_off(folder, tmp_path):
    there = tmp_path / "run"
    there.mkdir()
    for name in ("config.toml", LEDGER):
        (there / name).write_bytes((folder / name).read_bytes())
    with (there / LEDGER).open("ab") as file:
        file.write(b'{"type":"contributions","key":[4,0,"tra')
    before = contents(there)
    spent = run_spending_in(there)
    assert contents(there) == before
    assert spent.rounds == 0
    assert spent.participations == run_spending_in(folder).participations
    for path in (there, there / LEDGER, there / "config.toml"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        assert spending_in(there) == spent
    finally:
        there.chmod(0o700)


def copied(folder: Path, there: Path) -> Path:
    there.mkdir()
    for name in ("config.toml", LEDGER):
        (there / name).write_bytes((folder / name).read_bytes())
    return there


SURVIVED = '{"type":"survived","key":[9,0,"train",0],"cohort":5,"survived":SURVIVED}\n'
ASKED = '{"type":"contributions","key":[9,0,"train",0],"cohort":0,"clients":[3]}\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: "", "damaged"),
        (lambda text: "[]\n" + text, "damaged"),
        (lambda text: text.replace('"dropout":', '"dropout":7,"was":', 1), "newer version"),
        (lambda text: text + "{}\n", "damaged"),
        (lambda text: text + '{"type":"sum","key":[1,0,"train"]}\n', "damaged"),
        (lambda text: text + '{"type":"sum","key":[99,0,"train",0]}\n', "no contributions"),
        (lambda text: text + SURVIVED.replace("SURVIVED", "500"), "500 survived of a cohort of 5"),
        (lambda text: text + SURVIVED.replace("SURVIVED", "-1"), "survived: .*equal to 0"),
        (lambda text: text + ASKED, "a cohort of 0"),
        (lambda text: '{"kinds":{"train":{"length":1}},"population":1}\n', "damaged"),
        (lambda text: '{"kinds":{"evaluate":{"length":3}},"population":100}\n', "damaged"),
    ],
)
def test_a_damaged_ledger_is_a_mistake_and_no_figure(tmp_path, folder, damage, said):
    there = copied(folder, tmp_path / "run")
    text = (there / LEDGER).read_text()
    (there / LEDGER).write_text(damage(text))
    with pytest.raises(ConfigError, match=said):
        spending_in(there)


# -- a node ---------------------------------------------------------------------------------------


def node_spending_in(folder: Path, policy: Path | None = None) -> dict[str, Any]:
    return cast(dict[str, Any], spending_in(folder, policy))


def contribute(folder: Path, times: int, run: bytes = b"run", z: float = 8.0) -> None:
    for _ in range(times):
        FileStore(folder).count_contribution(list(map(float, renyi_curves.gaussian(z))), run)


def test_a_node_that_has_a_budget_is_told_what_is_left_at_its_order(tmp_path):
    state = tmp_path / "state"
    FileStore(state).open_budget(22, 1.0, 1e-6)
    assert node_spending_in(state)["epsilon"] == 0.0
    contribute(state, 2)
    contribute(state, 1, b"other")
    before = contents(state)
    spent = node_spending_in(state)
    assert contents(state) == before
    assert sorted(spent["by_run"].values()) == [1, 2]
    assert (spent["order"], spent["max_epsilon"], spent["delta"]) == (22, 1.0, 1e-6)
    assert spent["divergence"] == pytest.approx(3 * 22 / 128)
    assert spent["used"] == pytest.approx(3 * 22 / 128 / 0.5358, rel=1e-3)
    assert spent["epsilon"] == pytest.approx(1.0 - (spent["limit"] - spent["divergence"]))


def test_a_node_without_a_budget_is_told_the_least_epsilon(tmp_path):
    contribute(tmp_path, 3)
    spent = node_spending_in(tmp_path)
    assert spent["delta"] == 1e-5
    assert spent["epsilon"] == pytest.approx(costs.epsilon(3 * renyi_curves.gaussian(8.0), 1e-5))
    assert spent["max_epsilon"] is None
    (tmp_path / "policy.toml").write_text(
        "min_cohort = 2\ncorruption = 0.0\nmax_epsilon = 2.0\nmax_contributions = 7\n"
    )
    told = node_spending_in(tmp_path, tmp_path / "policy.toml")
    assert told["order"] == renyi_filter.fixed_order(2.0, 1e-5)
    assert (told["max_epsilon"], told["max_contributions"]) == (2.0, 7)
    FileStore(tmp_path).count_contribution(None)
    assert node_spending_in(tmp_path)["epsilon"] is None


def test_a_node_that_answers_queries_is_told_what_one_record_has_spent(tmp_path):
    count = Price(record=UnitPrice(tuple(map(float, renyi_curves.pure(0.1))), 0.1))
    FileStore(tmp_path / "sum").open_budget(None, 0.5, 1e-5, "sum")
    for folder in ("sum", "renyi"):
        for _ in range(3):
            FileStore(tmp_path / folder).count_contribution(count)
    spent = node_spending_in(tmp_path / "sum")
    assert (spent["unit"], spent["rule"], spent["order"]) == ("record", "sum", None)
    assert spent["epsilon"] == pytest.approx(0.3)
    assert spent["used"] == pytest.approx(0.6)
    _, said = invoked(str(tmp_path / "sum"))
    assert "epsilon of its own count, of one record" in said
    assert "of max_epsilon = 0.5 pure" in said
    spent = node_spending_in(tmp_path / "renyi")
    assert (spent["unit"], spent["rule"]) == ("record", "renyi")
    least = costs.epsilon(3 * renyi_curves.pure(0.1), 1e-5)
    assert spent["epsilon"] == pytest.approx(least)
    contribute(tmp_path / "renyi", 1)  # a client's row alone: of neither is there a bound
    assert node_spending_in(tmp_path / "renyi")["epsilon"] is None


def test_a_node_is_told_its_runs_as_flower_calls_them_and_what_is_still_possible(tmp_path):
    store = FileStore(tmp_path)
    store.open_budget(22, 1.0, 1e-6)
    row = list(map(float, renyi_curves.gaussian(8.0)))
    store.count_contribution(row, b"new", "1234567890123")
    contribute(tmp_path, 1, b"of an earlier version")
    code, said = invoked(str(tmp_path))
    assert code == 0
    assert "run 1234567890123 │ 1 contributions" in said
    assert f"run {run_name(b'of an earlier version')[:12]} │ 1 contributions" in said
    # Two took 0.34375 of 0.5358: one more of 0.171875 fits, and no second.
    assert "each at the mean cost so far │ 1 " in said
    spent = node_spending_in(tmp_path)
    divergence, limit = spent["divergence"], spent["limit"]
    further = present(further_contributions(spent))
    assert divergence * (2 + further) / 2 <= limit < divergence * (3 + further) / 2
    for _ in range(further):
        check_epsilon(store, 1.0, 1e-6, tuple(row), "client")
        store.count_contribution(row)
    with pytest.raises(Declined):
        check_epsilon(store, 1.0, 1e-6, tuple(row), "client")
    assert further_contributions(node_spending_in(tmp_path)) == 0


@pytest.mark.parametrize(
    ("changed", "further"),
    [
        ({}, 9),
        ({"used": 1.0}, 0),
        ({"used": 1.5}, 0),
        ({"max_contributions": 4}, 3),
        ({"max_contributions": 4, "max_epsilon": None, "used": None}, 3),
        ({"used": None}, None),
        ({"contributions": 0, "used": 0.0}, None),
        ({"max_epsilon": None, "used": None}, None),
    ],
)
def test_what_is_still_possible_is_the_tightest_limit_and_never_a_guess(changed, further):
    spent = {"contributions": 1, "used": 0.095, "max_contributions": None, "max_epsilon": 3.4}
    assert further_contributions(spent | changed) == further


def test_a_running_node_is_not_locked_out_nor_waited_for(tmp_path):
    contribute(tmp_path, 1)
    with FileStore(tmp_path).exclusive():
        assert node_spending_in(tmp_path)["contributions"] == 1


def invoked(*arguments: str) -> tuple[int, str]:
    said = CliRunner().invoke(app, ["budget", *arguments], env={"COLUMNS": "200"})
    return said.exit_code, " ".join(said.output.split())


@pytest.mark.slow
def test_the_command_prints_tables_and_writes_json(tmp_path, folder):
    code, said = invoked(str(folder), "--json", str(tmp_path / "run.json"))
    assert code == 0
    assert "epsilon_release (outsiders, who see the models)" in said
    assert json.loads((tmp_path / "run.json").read_text())["kind"] == "run"
    FileStore(tmp_path / "state").open_budget(22, 1.0, 1e-6)
    contribute(tmp_path / "state", 2)
    code, said = invoked(str(tmp_path / "state"))
    assert code == 0
    assert "0.3438 of 0.5358 (64.2 % used)" in said


@pytest.mark.slow
def test_mistakes_are_one_line_and_exit_code_2(tmp_path):
    write_private(tmp_path / "counters.json", b"{")
    (tmp_path / "policy.toml").write_text("min_cohort = 2\ncorruption = 0.0\nmax_epsilon = 0.001\n")
    (tmp_path / "empty").mkdir()
    good = tmp_path / "good"
    contribute(good, 1)
    for arguments, words in (
        ((str(tmp_path / "empty"),), "neither the folder of a run"),
        ((str(tmp_path / "absent"),), "neither the folder of a run"),
        ((str(tmp_path),), "damaged or lost"),
        ((str(good), "--policy", str(tmp_path / "policy.toml")), "admits no contribution"),
        ((str(good), "--policy", str(tmp_path / "no.toml")), "cannot be used"),
    ):
        code, said = invoked(*arguments)
        assert code == 2, arguments
        assert words in said
        assert "Traceback" not in said
    assert not any((tmp_path / "empty").iterdir())
    assert not os.path.exists(tmp_path / "absent")


def test_costs_beyond_any_bound_are_no_epsilon(tmp_path):
    FileStore(tmp_path).count_contribution([float("inf")] * len(renyi_filter.ORDERS))
    assert node_spending_in(tmp_path)["epsilon"] is None
    assert np.isinf(present(FileStore(tmp_path).spent)).all()


@pytest.mark.slow
def test_a_run_that_has_not_begun_has_no_ledger(tmp_path, folder):
    there = copied(folder, tmp_path / "run")
    (there / LEDGER).unlink()
    with pytest.raises(ConfigError, match="has not begun"):
        spending_in(there)
    assert RunFolder.open(there).experiment


@pytest.mark.parametrize(
    ("spent", "planned", "left"),
    [
        (0.9839400987881098, 0.9839400987881164, 0.0),
        (4.05, 4.04, 0.0),
        (0.0, 2.0, 2.0),
        (1.999, 2.0, 0.001),
        (math.inf, 2.0, None),
        (2.0, math.inf, None),
        (2.0, None, None),
    ],
)
def test_float_rounding_of_a_plan_kept_to_its_end_is_not_left(spent, planned, left):
    reason = "none holds" if math.isinf(spent) else None
    bound = EpsilonBound(spent, 1e-5, 0.0, None, "client", "sum", None, 1, ("noise",), reason)
    found = ObserverSpending(bound, planned).left
    assert found == (left if not left else pytest.approx(left))
