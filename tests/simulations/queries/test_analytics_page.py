"""The page on analytics runs as it stands, and names every key of a plan."""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from zerosum.client.queries.schema import Schema
from zerosum.server.analytics.query_plan import BudgetSpec, QueryPlan, read_plan

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "analytics.md"
EXAMPLE = ROOT / "examples" / "queries" / "adult.toml"
ADULT = Path("../shared/data/adult.csv")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


@pytest.mark.slow
@pytest.mark.skipif(not ADULT.exists(), reason="../shared/data/adult.csv is not there")
def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    shutil.copy(ADULT, tmp_path / "adult.csv")
    shutil.copy(EXAMPLE, tmp_path / "adult.toml")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    (code,) = blocks("python")
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102
    (promised,) = re.findall(r"print\(refused\)  # (.*)", code)
    assert promised in capsys.readouterr().out
    assert names["page"].exists()


def test_the_schema_of_the_page_is_one():
    (section,) = blocks("toml")
    assert len(Schema.of(tomllib.loads(section)["schema"]).columns) == 4


def test_every_key_of_a_plan_stands_on_the_page():
    listed = set(re.findall(r"^\| `([a-z_.]+)` \|", PAGE.read_text(encoding="utf-8"), re.M))
    keys = {name for name in QueryPlan.model_fields if name != "budget"}
    keys |= {f"budget.{name}" for name in BudgetSpec.model_fields}
    assert keys <= listed
    assert {name for name in listed if name.startswith("budget.")} <= keys


def test_the_example_is_a_plan_of_all_of_its_budget():
    plan = read_plan(EXAMPLE)
    assert len(plan.queries) == 6
    assert sum(draft.epsilon for draft in plan.queries) == pytest.approx(plan.plan.budget.epsilon)
    assert plan.plan.data is None
    for draft in plan.queries:
        draft.ask(plan.domains)
