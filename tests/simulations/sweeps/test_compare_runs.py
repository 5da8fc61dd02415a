"""A comparison from Python is the command's: the same files, a frame, and a table in a notebook."""

import pytest
from made_runs import made_run

from zerosum.server.config import ConfigError
from zerosum.simulations import compare


@pytest.fixture
def runs(tmp_path):
    return [
        made_run(tmp_path / f"{rate}-{seed}", [f"training.lr={rate}", f"seed={seed}"], accuracies)
        for rate, seed, accuracies in (
            (0.1, 0, [0.2, 0.5]),
            (0.1, 1, [0.2, 0.7]),
            (0.3, 0, [0.5, 0.8]),
            (0.3, 1, [0.5, 0.9]),
        )
    ]


def test_methods_stand_side_by_side_with_mean_and_deviation(runs, tmp_path):
    compared = compare(runs, out=tmp_path / "out")
    frame = compared.frame.set_index("method")
    assert frame["test_accuracy_mean"].round(6).to_dict() == {"lr=0.1": 0.6, "lr=0.3": 0.85}
    assert {file.name for file in compared.files} == {"compare.html", "compare.csv"}
    assert repr(compared).startswith("Compared(2 methods, 'Best test accuracy: lr=0.3")
    page = compared._repr_html_()
    assert page.count("<tr") == 3
    assert "<b>85.0 ± 7.1 %</b>" in page
    assert "<b>60.0" not in page


def test_one_folder_is_enough_and_figures_are_files(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compared = compare(str(runs[0]), plots="svg")
    assert compared.files[0].parent.name == "comparison"
    assert any(file.suffix == ".svg" for file in compared.files)


def test_what_is_no_run_and_no_plot_is_refused(runs, tmp_path):
    with pytest.raises(ConfigError, match="holds neither a run"):
        compare(tmp_path)
    with pytest.raises(ConfigError, match="plots = 'png8'"):
        compare(runs, plots="png8")  # type: ignore[arg-type]
