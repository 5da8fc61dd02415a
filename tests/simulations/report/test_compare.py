"""Comparisons: means and deviations over seeds, the best, the frontier, page, table and figures."""

import csv
import io
import re
import statistics
from pathlib import Path

import pytest
from made_runs import made_run
from report_pages import Page
from typer.testing import CliRunner

from zerosum.server.config import ConfigError
from zerosum.simulations.commands.main import app
from zerosum.simulations.report import paper
from zerosum.simulations.report.compare import Spread, compare, direction
from zerosum.simulations.report.compare_figures import drawings, frontier_of
from zerosum.simulations.report.compare_page import csv_of, write_comparison
from zerosum.simulations.sweeps.compare_runs import candidates

ROOT = Path(__file__).parents[3]

# By optimizer and noise: epsilon, and the accuracies of two rounds for each seed.
RUNS = {
    ("SGD", 2.0): (1.0, [(0.2, 0.50), (0.3, 0.60), (0.1, 0.55)]),
    ("SGD", 1.0): (4.0, [(0.3, 0.70), (0.4, 0.76), (0.2, 0.73)]),
    ("Adam", 2.0): (1.0, [(0.2, 0.40), (0.3, 0.44), (0.1, 0.42)]),
    ("Adam", 1.0): (4.0, [(0.3, 0.80), (0.4, 0.90), (0.2, 0.85)]),
    ("Adam", 0.5): (9.0, [(0.3, 0.84), (0.4, 0.84), (0.2, 0.84)]),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return [
        made_run(
            root / f"{optimizer}-{noise}-{seed}",
            [f"server.optimizer={optimizer}", f"privacy.noise_multiplier={noise}", f"seed={seed}"],
            accuracies,
            epsilon=epsilon,
        )
        for (optimizer, noise), (epsilon, seeds) in RUNS.items()
        for seed, accuracies in enumerate(seeds)
    ]


@pytest.fixture(scope="module")
def comparison(folders):
    return compare(candidates(folders))


def first_group(pattern, text):
    match = re.search(pattern, text, re.MULTILINE)
    assert match is not None
    return match[1]


def best_label(comparison, metric):
    best = comparison.best(metric)
    return None if best is None else best.label


def by_label(comparison):
    return {method.label: method for method in comparison.methods}


@pytest.mark.slow
def test_runs_that_differ_by_the_seed_alone_are_one_method(comparison):
    assert list(comparison.differences) == ["server.optimizer", "privacy.noise_multiplier"]
    assert [len(method.runs) for method in comparison.methods] == [3] * 5
    assert "optimizer=Adam, noise_multiplier=0.5" in by_label(comparison)


def test_means_and_deviations_are_those_of_the_sample(comparison):
    method = by_label(comparison)["optimizer=Adam, noise_multiplier=1"]
    last = [0.80, 0.90, 0.85]
    spread = method.metrics["test_accuracy"]
    assert spread.mean == pytest.approx(statistics.mean(last))
    assert spread.deviation == pytest.approx(statistics.stdev(last))
    assert spread.deviation != pytest.approx(statistics.pstdev(last))
    first = method.curve("test_accuracy")[0]
    assert (first[0], first[1].mean) == (1, pytest.approx(0.3))
    assert spread.text("test_accuracy") == "85.0 ± 5.0 %"


def test_the_best_mean_is_the_largest_accuracy_and_the_smallest_loss(comparison):
    best = "optimizer=Adam, noise_multiplier=1"
    assert best_label(comparison, "test_accuracy") == best
    assert best_label(comparison, "test_loss") == best
    assert comparison.best("test_something") is None


@pytest.mark.parametrize(
    ("metric", "sign"),
    [("test_accuracy", 1), ("federated_loss", -1), ("test_macro_f1", 1), ("test_mae", -1),
     ("test_predictions", 0), ("test_AUROC", 1), ("test_hamming_score", 0)],
)  # fmt: skip
def test_only_known_metrics_have_a_better_side(metric, sign):
    assert direction(metric) == sign


def test_the_frontier_leaves_out_who_is_beaten_at_a_smaller_or_equal_epsilon(comparison):
    frontier = frontier_of(comparison.shown, "test_accuracy", "release")
    assert [method.label for method in frontier] == [
        "optimizer=SGD, noise_multiplier=2",
        "optimizer=Adam, noise_multiplier=1",
    ]


def test_epsilons_of_other_deltas_are_on_no_frontier(folders, tmp_path):
    other = made_run(tmp_path / "other", ["privacy.delta=1e-4", "seed=9"], (0.1, 0.9), delta=1e-4)
    mixed = compare(candidates([*folders, other]))
    assert any("different deltas" in caution for caution in mixed.cautions)
    assert "frontier" not in [drawing.name for drawing in drawings(mixed)]
    alone = compare(candidates(folders))
    assert "frontier" in [drawing.name for drawing in drawings(alone)]


def test_a_run_that_is_given_twice_counts_once(folders, tmp_path):
    again = made_run(
        tmp_path / "again",
        ["server.optimizer=SGD", "privacy.noise_multiplier=2.0", "seed=0", "engine=serial"],
        (0.2, 0.5),
    )
    twice = compare(candidates([*folders[:3], again, folders[0]]))
    assert [len(method.runs) for method in twice.methods] == [3]
    (caution,) = (caution for caution in twice.cautions if "counted once" in caution)
    assert caution == "2 of 5 runs are here already: each is counted once."
    assert twice.about[caution] == ("again", folders[0].name)


def test_runs_without_an_end_or_without_training_are_left_out(folders, tmp_path):
    open_run = made_run(tmp_path / "open", ["seed=5"], (0.1, 0.2), finished=False)
    untrained = made_run(tmp_path / "un", ["seed=6"], (0.1, 0.99), nothing_learnt="all failed")
    found = compare(candidates([open_run, untrained, *folders[:3]]))
    assert best_label(found, "test_accuracy") == "noise_multiplier=2"
    assert [len(method.runs) for method in found.methods] == [0, 3]
    assert sum("left out" in caution for caution in found.cautions) == 2
    with pytest.raises(ConfigError, match="none of these runs has finished"):
        compare(candidates([open_run, untrained]))


def test_one_seed_has_no_deviation_and_a_caution(folders):
    found = compare(candidates([folders[0], folders[3]]))
    assert any("luck of a seed" in caution for caution in found.cautions)
    assert Spread.of([0.5]).text("test_accuracy") == "50.0 %"
    row = next(csv.DictReader(io.StringIO(csv_of(found))))
    assert (row["test_accuracy_mean"], row["test_accuracy_std"]) == ("0.5", "")


def test_a_diverged_run_is_not_averaged_away(tmp_path):
    paths = [
        made_run(tmp_path / str(seed), [f"seed={seed}"], (0.1, value))
        for seed, value in enumerate([0.5, float("nan")])
    ]
    assert "nan" in compare(candidates(paths)).methods[0].metrics["test_loss"].text("test_loss")


def test_the_table_has_a_row_a_method_with_all_digits(comparison):
    rows = list(csv.DictReader(io.StringIO(csv_of(comparison))))
    assert [row["server.optimizer"] for row in rows] == [optimizer for optimizer, _ in RUNS]
    last = [0.50, 0.60, 0.55]
    assert float(rows[0]["test_accuracy_mean"]) == statistics.mean(last)
    assert float(rows[0]["test_accuracy_std"]) == pytest.approx(statistics.stdev(last), rel=1e-12)
    assert (rows[0]["runs"], rows[0]["finished"], rows[0]["seconds"]) == ("3", "3", "4.0")


def test_the_page_shows_means_the_best_in_bold_and_text_as_text(comparison, tmp_path):
    write_comparison(comparison, tmp_path, ["runs/s"])
    html = (tmp_path / "compare.html").read_text()
    page = Page(html)
    assert not page.open
    assert re.findall(r"<strong>(.*?)</strong>", html) == ["85.0 ± 5.0 %", "0.150 ± 0.050"]
    assert "Best test accuracy: optimizer=Adam, noise_multiplier=1" in page.text
    assert "zerosum compare runs/s" in page.text
    assert re.search(r"<text[^>]*>60 %</text>", html)
    assert len(page.alts()) == len(drawings(comparison))


def test_the_page_loads_nothing_and_escapes_what_runs_say(tmp_path):
    made_run(tmp_path / "x", ["name=<b>x", "data.label=<script>"], (0.1, 0.5))
    made_run(tmp_path / "y", ["name=<b>x", "data.label=</svg>"], (0.1, 0.6))
    write_comparison(compare(candidates([tmp_path / "x", tmp_path / "y"])), tmp_path, [])
    html = (tmp_path / "compare.html").read_text()
    assert not Page(html).open
    assert not Page(html).foreign_scripts()
    assert "label=&lt;script&gt;" in html
    assert "http" not in html.replace("http-equiv", "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pdf", "svg", "png"])
def test_figures_are_files_of_a_columns_width_and_the_same_each_time(comparison, kind):
    drawing = drawings(comparison)[-1]
    frontier = drawing.file(kind)
    assert drawing.file(kind) == frontier
    if kind == "pdf":
        width = float(first_group(rb"/MediaBox \[ 0 0 ([\d.]+)", frontier)) / 72
        assert b"/ToUnicode" in frontier or b"/TrueType" in frontier
        assert width == pytest.approx(paper.WIDTH)
    if kind == "svg":
        assert b">optimizer=Adam</text>" in frontier


def test_long_labels_stay_within_the_figure_of_a_paper(tmp_path):
    for index, optimizer in enumerate(("SGD", "Adam", "Adagrad")):
        settings = [
            f"server.optimizer={optimizer}",
            f"training.proximal=0.1234{index}",
            f"server.lr=0.0123{index}",
            f"privacy.noise_multiplier={index + 1}.25",
        ]
        made_run(tmp_path / optimizer, settings, (0.1, 0.5), epsilon=8.0 / (index + 1))
    found = compare(candidates(sorted(tmp_path.iterdir())))
    for drawing in drawings(found):
        figure, axes = paper.figure_of(drawing.chart)
        legend = axes.get_legend()
        assert legend is not None
        figure.canvas.draw()
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
        for text in legend.get_texts():  # the control: in one line the longest would not fit
            text.set_text(text.get_text().replace("\n", " ") * 2)
        figure.canvas.draw()
        assert legend.get_window_extent().x1 > figure.bbox.x1


@pytest.mark.slow
def test_with_plots_each_figure_is_a_file_and_the_reference_that_of_the_citation_file(
    comparison, tmp_path
):
    files = write_comparison(comparison, tmp_path, [], "svg")
    names = [f"{drawing.name}.svg" for drawing in drawings(comparison)]
    assert [file.name for file in files] == [
        *("compare.html", "compare.csv"), *names, "compare.bib"
    ]  # fmt: skip
    entry = (tmp_path / "compare.bib").read_text()
    citation = (ROOT / "CITATION.cff").read_text()
    assert first_group(r'^title: "(.*)"$', citation) in entry
    assert first_group(r"- name: (.*)$", citation) in entry
    assert first_group(r"^license: (.*)$", citation) in entry


def test_the_command_prints_the_table_and_names_its_files(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["compare", *map(str, folders)], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert "85.0 ± 5.0 %" in done.output
    assert "comparison/compare.html" in done.output
    assert max(map(len, done.output.split("Best")[0].splitlines())) <= 80
    assert (tmp_path / "comparison" / "compare.csv").is_file()


def test_a_folder_of_neither_runs_nor_a_sweep_is_one_line(tmp_path):
    done = CliRunner().invoke(app, ["compare", str(tmp_path)])
    assert done.exit_code == 2
    assert "holds neither a run" in done.stderr
    assert done.stderr.count("\n") == 1
