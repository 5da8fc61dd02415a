"""Experiments by name, file, values and spec are the same experiments."""

from pathlib import Path

import pytest

from zerosum.client.task import TaskError
from zerosum.server.config import ConfigError, to_toml
from zerosum.server.spec import Experiment, ServerSpec
from zerosum.server.training.optimizers import ServerOptimizer
from zerosum.simulations.commands.configuration_page import keys_page
from zerosum.simulations.config import attempt, experiment_names, load_experiment


@pytest.mark.parametrize("name", experiment_names())
def test_a_shipped_experiment_is_valid_and_loads_the_same_every_way(name, tmp_path):
    experiment = load_experiment(name)
    assert load_experiment(experiment) == experiment
    path = tmp_path / "copy.toml"
    path.write_text(to_toml(experiment))
    assert load_experiment(path) == experiment


@pytest.mark.parametrize(
    "settings",
    [
        ["privacy.model=none", "privacy.clip=none", "encoding.range=1.0"],
        ["training.batch_size=all"],
        ["training.steps=3"],
        ["sampling.kind=everyone"],
        ["privacy.epsilon=1.0"],
    ],
)
def test_a_spec_loads_back_to_itself_even_where_a_default_would_differ(settings):
    experiment = load_experiment("mnist5k", settings)
    assert load_experiment(experiment) == experiment
    assert load_experiment(experiment, ["rounds=3"]).privacy == experiment.privacy


def test_extending_starts_from_the_preset_and_keeps_what_is_written():
    experiment = load_experiment({"extends": "cross-silo", "rounds": 2})
    assert experiment.rounds == 2
    assert experiment.sampling.kind == "everyone"
    with pytest.raises(ConfigError, match="extends = 'cross-galaxy'"):
        load_experiment({"extends": "cross-galaxy"})


def test_an_experiment_is_called_as_its_file_unless_it_says_otherwise(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = "cross-silo"\n')
    assert load_experiment(path).name == "mine"
    path.write_text('extends = "cross-silo"\nname = "theirs"\n')
    assert load_experiment(path).name == "theirs"
    assert load_experiment("cross-silo").name == "cross-silo"


def test_an_unknown_experiment_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match='did you mean "mnist5k"'):
        load_experiment("mnist5")


def test_the_page_of_keys_names_every_key_with_a_meaning():
    page = keys_page()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 60
    for row in rows:
        assert row.split(" | ")[-1].strip(" |"), f"no meaning: {row}"
    assert all(f"`[{name}]`" in page for name in ("privacy", "secagg", "training"))
    assert Experiment().name in page


def test_a_path_meant_from_the_experiments_folder_is_named(tmp_path: Path) -> None:
    message = 'data.path = "x.csv": no such file; give a .csv file; did you mean "z.csv"?'

    def read(experiment: Experiment) -> None:
        raise TaskError(message)

    file = tmp_path / "e.toml"
    file.write_text('task = "table"\ndata = { path = "x.csv", label = "y" }\n')
    with pytest.raises(TaskError) as caught:
        attempt(file, [], read)
    assert str(caught.value) == message  # there is none beside it either
    (tmp_path / "x.csv").touch()
    with pytest.raises(TaskError) as caught:
        attempt(file, [], read)
    assert str(caught.value).endswith(f"write data.path = '{tmp_path / 'x.csv'}'")
    assert "did you mean" not in str(caught.value)


def test_a_mistyped_file_and_a_runs_folder_are_told_what_was_meant(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text("rounds = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r'did you mean "mine\.toml"\?$'):
        load_experiment("mine.tml")
    Path("runs").mkdir()
    Path("runs/config.toml").write_text("rounds = 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="folder of a run: to go on, write --resume"):
        load_experiment("runs")


def test_a_mistyped_optimizer_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r'did you mean "Adam"\?'):
        ServerOptimizer.check(ServerSpec(optimizer="Adamm"))
