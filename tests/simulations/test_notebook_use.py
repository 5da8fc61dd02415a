"""What a user of a notebook does: completes names, looks at results, runs in an event loop."""

import asyncio
import inspect
import re
from typing import Any

import pytest

import zerosum.analytics
import zerosum.simulations
from zerosum.simulations import load_experiment, plan, run
from zerosum.simulations.attacks.harness.results import Row
from zerosum.simulations.attacks.report.display import Rows

ipython = pytest.importorskip("IPython", reason="completion is IPython's")


@pytest.mark.parametrize("module", [zerosum.simulations, zerosum.analytics])
def test_tab_completion_offers_the_public_names(module):
    from IPython.core.completer import IPCompleter, provisionalcompleter

    completer = IPCompleter(namespace={"zs": module}, use_jedi=False)
    with provisionalcompleter():
        offered = {each.text.removeprefix(".") for each in completer.completions("zs.", 3)}
    assert {name.removeprefix("zs.") for name in offered} >= set(module.__all__)
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("name", dir(zerosum.simulations))
def test_a_public_name_has_a_signature_and_a_docstring(name):
    found = getattr(zerosum.simulations, name)
    assert inspect.getdoc(found)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        assert inspect.signature(found)


def test_a_run_in_a_running_event_loop_is_that_of_none(tmp_path):
    def quiet(out):
        settings = ["rounds=1", "engine=serial"]
        return run("digits", overrides=settings, out=tmp_path / out, report=False)

    async def inside():
        assert asyncio.get_running_loop()
        return quiet("inside")

    assert asyncio.run(inside()).metrics == quiet("outside").metrics


def test_a_plan_is_a_line_and_a_table():
    outlook = plan("digits", population=100, dimension=650)
    assert re.fullmatch(
        r"Outlook\('digits', 15 rounds, 100 clients, 650 parameters, epsilon_release=\S+, "
        r"epsilon_sum=\S+, epsilon_local=\S+, warnings: 1\)",
        repr(outlook),
    )
    assert "against outsiders, who see the models" in outlook._repr_html_()
    odd = plan({"extends": "fedavg", "name": "<b>x"}, population=100, dimension=650)
    assert "<b>x" not in odd._repr_html_()


def test_an_experiment_shows_what_is_not_usual():
    shown = repr(load_experiment("digits", ["privacy.clip=2"]))
    assert shown.startswith("Experiment(name='digits', task='digits', rounds=15, data=DataSpec(")
    assert "clip=2.0" in shown
    assert "momentum" not in shown
    assert len(shown) < 500


def attack_rows(count):
    figures = {"value": 0.5, "low": 0.4, "high": 0.6, "count": 9, "baseline": 0.1, "epsilon": 1.0}
    text = dict.fromkeys(("adaptive", "setting", "threat", "metric", "unit", "note", "at"), "")
    rest = {"at_baseline": False, "delta": 1e-5, "cpu_seconds": 1.0, "version": "0"}
    row: dict[str, Any] = {**text, **figures, **rest, "seed": "pooled", "status": "value"}
    return [Row(attack=f"<i>{n}", protection="none", **row) for n in range(count)]


def test_rows_of_attacks_are_a_list_a_line_and_a_table(tmp_path):
    rows = attack_rows(100)
    shown = Rows(rows, rows, tmp_path)
    assert shown == rows
    assert repr(shown) == f"Rows(100 rows, attacks: 100, folder={str(tmp_path)!r})"
    page = shown._repr_html_()
    assert page.count("<tr") == 41
    assert "60 more rows" in page
    assert "<i>" not in page
    assert Rows([], [], tmp_path)._repr_html_()
