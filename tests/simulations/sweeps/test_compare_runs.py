"""A comparison from Python is the command's: the same files, a frame, and a table in a notebook."""

import pytest
from made_runs import made_run

from zerosum.server.config import ConfigError
from zerosum.simulations import compare
from zerosum.simulations.sweeps.grid import cells_of, written_choices
from zerosum.simulations.sweeps.sweep_folder import SweepFolder

METHODS = {
    "training.proximal": "0,0.1,0",
    "server.optimizer": "SGD,SGD,Adam",
    "server.lr": "1,1,0.03",
}
NAMES = {"name": "FedAvg,FedProx,FedAdam"}
EPSILONS = {"privacy.epsilon": "1,2"}


def made_sweep(path, lists, together, finished=lambda number: True):
    """Write a sweep of two seeds whose later cells are the better ones."""
    settings = [f"{key}={values}" for key, values in lists.items()]
    settings += ["rounds=2", "privacy.noise_multiplier=unset"]
    cells = cells_of("digits", written_choices(settings), [0, 1], together=together)
    folder = SweepFolder.claim(path, cells)
    (path / "cells").mkdir()
    for number, cell in enumerate(cells):
        if finished(number):
            made_run(folder.run_path(cell), [f"seed={cell.experiment.seed}"], [0.1, number / 100])
    return path


def labels(*folders, out):
    return [method.label for method in compare(folders, out=out).comparison.shown]


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


@pytest.mark.slow
def test_a_name_that_goes_with_the_methods_is_their_label(tmp_path):
    lists = EPSILONS | METHODS | NAMES
    sweep = made_sweep(tmp_path / "s", lists, [*METHODS, *NAMES])
    compared = compare(sweep, out=tmp_path / "out")
    named = [f"{n}, epsilon={e}" for e in (1, 2) for n in ("FedAvg", "FedProx", "FedAdam")]
    assert [method.label for method in compared.comparison.shown] == named
    assert compared.comparison.shown[0].family == "FedAvg"
    assert list(compared.frame["server.optimizer"][:3]) == ["SGD", "SGD", "Adam"]
    page = compared.files[0].read_text(encoding="utf-8")
    assert "What each name stands for" in page
    assert "epsilon=1, proximal=0.1, optimizer=SGD, lr=1" in page


def test_a_name_that_two_methods_share_hides_no_key(tmp_path):
    lists = METHODS | {"name": "averaged,averaged,FedAdam"}
    sweep = made_sweep(tmp_path / "s", lists, list(lists))
    assert labels(sweep, out=tmp_path) == [
        "averaged, proximal=0",
        "averaged, proximal=0.1",
        "FedAdam, proximal=0",
    ]


@pytest.mark.slow
def test_names_beside_the_methods_are_no_labels(tmp_path):
    """Every name has every method: the same cell under another name counts once."""
    sweep = made_sweep(tmp_path / "s", METHODS | {"name": "a,b"}, list(METHODS))
    assert labels(sweep, out=tmp_path)[0] == "proximal=0, optimizer=SGD, lr=1"


@pytest.mark.slow
def test_keys_of_a_label_stand_as_the_sweep_was_asked(tmp_path):
    turned = dict(reversed((METHODS | EPSILONS).items()))
    first, other = (
        made_sweep(tmp_path / name, lists, list(METHODS))
        for name, lists in (("first", METHODS | EPSILONS), ("other", turned))
    )
    assert labels(first, out=tmp_path)[0] == "proximal=0, optimizer=SGD, lr=1, epsilon=1"
    assert labels(other, out=tmp_path)[0] == "epsilon=1, lr=1, optimizer=SGD, proximal=0"


def test_open_runs_of_a_sweep_are_one_caution_that_says_what_completes_them(tmp_path):
    sweep = made_sweep(tmp_path / "s", METHODS | EPSILONS, list(METHODS), lambda n: n < 2)
    compared = compare(sweep)
    resume = f"(zerosum sweep --resume {sweep} completes them)"
    caution = f"10 of 12 runs have not finished and are left out {resume}."
    assert [each for each in compared.cautions if "left out" in each] == [caution]
    page = compared.files[0].read_text(encoding="utf-8")
    assert page.count("have not finished") == 1
    assert page.count("<li>00") == 10
    assert page.index("<summary>Which") < page.index("<li>00")
    assert "..<" not in compared._repr_html_()
    none = made_sweep(tmp_path / "none", METHODS, list(METHODS), lambda n: False)
    with pytest.raises(ConfigError, match=r"none of these runs .* sweep --resume .*none complete"):
        compare(none)
