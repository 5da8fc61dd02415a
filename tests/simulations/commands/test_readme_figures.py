"""Tables of figures are written from the file of ``bench all``, and from nothing else."""

import json
from pathlib import Path

import pytest

import check_docs
from zerosum.simulations.bench.all_figures import parts
from zerosum.simulations.commands import readme_figures
from zerosum.simulations.commands.readme_figures import (
    FIGURES,
    PAGES,
    marks,
    pages,
    table,
    with_table,
)

MARKED = "before\n<!-- figures: make docs -->\nold\n<!-- /figures -->\nafter\n"


def figures(**found):
    return {"parts": {name: {"figures": value} for name, value in found.items()}}


def engine_row(engine, **values):
    return {"engine": engine, "workers": 1, "clients": 1000, **values}


MLP = [
    engine_row("bare-careful", ratio_to_bare=0.8, ratio_to_zerosum=2.0),
    engine_row("zerosum", ratio_to_bare=0.4, ratio_to_zerosum=1.0),
    engine_row("pfl", ratio_to_bare=1.3, ratio_to_zerosum=3.25),
    engine_row("flower", ratio_to_bare=10.0, ratio_to_zerosum=25.4),
]


def line(text, what):
    (found,) = [line for line in text.splitlines() if what in line]
    return found


def test_a_figure_is_that_of_the_file():
    text = table(figures(mlp=MLP), short=True)
    assert line(text, "times the plain PyTorch loop") == (
        "| a round of 100 clients, MLP, times the plain PyTorch loop: open; protected; masked "
        "| 0.40; -; - | `zerosum bench engine --versus zerosum-masked` |"
    )
    assert "| 3.2; 25; - |" in line(text, "pfl; Flower's simulation; FedJAX")


def test_a_row_of_which_nothing_was_measured_is_not_written():
    assert table({"parts": {}}, short=False).splitlines() == [
        "| what | figure | command |",
        "|---|---|---|",
    ]


def test_the_readme_has_the_short_rows_alone():
    short, whole = (table(figures(mlp=MLP), short=short).splitlines() for short in (True, False))
    assert set(short) < set(whole)
    assert "| 0.50 |" in line("\n".join(whole), "written with care")


def test_a_mark_stands_beside_its_figure_and_waits_for_one():
    text = marks(figures(mlp=MLP))
    assert "| at most 0.40; 0.46; 4 | 0.40; -; - |" in line(text, "times the plain PyTorch loop")
    assert "| at most 1.2 | - |" in line(text, "a population of 1,000,000")
    assert "test accuracy" not in text


@pytest.mark.parametrize(("cpu", "figure"), [(1.95, "1.85"), (1.2, "-")])
def test_workers_on_busy_cores_have_no_figure(cpu, figure):
    wide = engine_row("zerosum", times_one_worker=1.85) | {"workers": 2}
    floor = engine_row("floor", cpu_seconds=cpu, wall_seconds=1.0) | {"workers": 2}
    text = marks(figures(**{"mlp-workers": [floor, wide]}))
    assert line(text, "two workers").endswith(f"| at least 1.8 | {figure} |")


def test_an_epsilon_is_never_printed_below_its_value():
    run = {"test_accuracy": 0.865, "epsilon": {"release": 2.9616, "sum": 13.9129}}
    text = table(figures(**{"run-0": run}), short=False)
    assert "| 2.97; 14 |" in line(text, "epsilon_release")
    assert "| 0.865; -; - |" in line(text, "test accuracy")


def test_opacus_is_measured_by_its_fastest_mode():
    rows = [
        {"model": "mlp", "method": "per-example", "ms": 1.0, "ratio_to_plain": 1.25},
        {"model": "mlp", "method": "opacus", "ratio_to_ours": 20.0, "ratio_to_plain": 25},
        {"model": "mlp", "method": "opacus-ghost", "ratio_to_ours": 3.1, "ratio_to_plain": 4},
    ]
    text = table(figures(dpsgd={"rows": rows}), short=False)
    assert "| 3.1; - |" in line(text, "Opacus")
    assert "| 1.25; - |" in line(text, "in float32, times the plain step")


@pytest.mark.parametrize("cipher", ["AES-128-GCM", "AES-128-CTR"])
def test_an_unmasking_is_set_beside_the_keystream_that_is_named(cipher):
    primitives = {"server_unmask_cpu_s": 1.0, "server_unmask_ctr_cpu_s": 1.2}
    session = {"cipher": cipher, "server_unmask_cpu_s": 1.5, "primitives": primitives}
    text = table(figures(**{"secagg-10": session}), short=False)
    assert "| 1.25; - times |" in line(text, "by AES-CTR alone")
    assert ("by AES-GCM alone | 1.50; - times |" in text) == (cipher == "AES-128-GCM")


def test_every_row_is_of_a_part_that_is_measured():
    class Asked(dict):  # type: ignore[type-arg]
        def __missing__(self, name):
            asked.add(name)
            raise KeyError(name)

    asked: set[str] = set()
    table({"parts": Asked()}, short=False)
    assert asked == {part.name for part in parts()}


def test_the_table_between_the_marks_is_replaced_and_nothing_else():
    page = with_table(MARKED, "| new |")
    assert page.startswith("before\n<!-- figures: make docs -->\n\n| new |\n\n")
    assert page.endswith("<!-- /figures -->\nafter\n")
    assert "old" not in page
    assert with_table(page, "| new |") == page


@pytest.mark.parametrize("page", ["none", MARKED * 2])
def test_a_page_without_its_marks_is_refused(page):
    with pytest.raises(ValueError, match="once"):
        with_table(page, "")


@pytest.fixture
def repository(tmp_path):
    for folder in ("benchmarks", "docs/design"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / FIGURES).write_text(json.dumps(figures(mlp=MLP)))
    for page in PAGES:
        (tmp_path / page).write_text(MARKED)
    return tmp_path


def test_the_command_writes_both_pages(repository, monkeypatch):
    monkeypatch.chdir(repository)
    readme_figures.main()
    assert "0.40" in (repository / "README.md").read_text()
    assert all((repository / path).read_text() == text for path, text in pages(repository))


@pytest.mark.slow
def test_a_page_with_other_figures_than_the_file_is_found(repository, monkeypatch):
    monkeypatch.setattr(check_docs, "ROOT", repository)
    stale = [line for line in check_docs.generated() if "other figures" in line]
    assert stale == [f"{page} has other figures than {FIGURES}: run `make docs`" for page in PAGES]
    for path, text in pages(repository):
        (repository / path).write_text(text)
    assert not [line for line in check_docs.generated() if "other figures" in line]


def test_the_readme_stays_short():
    readme = Path(check_docs.ROOT, "README.md").read_text(encoding="utf-8")
    assert len(readme.split()) <= 900
