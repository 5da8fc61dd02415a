"""The run folder and its checkpoint survive crashes and refuse what is not theirs."""

import json

import pytest
import torch

from zerosum.server.config import ConfigError
from zerosum.server.runs.checkpoint import STATE, Checkpoint, load_checkpoint, save_checkpoint
from zerosum.server.runs.run_folder import METRICS, RunFolder, check_unused
from zerosum.server.spec import Experiment


def test_a_new_folder_holds_its_configuration(tmp_path):
    experiment = Experiment(name="mine", rounds=3)
    folder = RunFolder.create(tmp_path / "deep" / "run", experiment)
    assert RunFolder.open(folder.path).experiment == experiment


def test_a_folder_with_another_run_is_refused_with_the_way_to_resume(tmp_path):
    RunFolder.create(tmp_path / "run", Experiment())
    with pytest.raises(ConfigError, match=r"already holds a run.*--resume"):
        RunFolder.create(tmp_path / "run", Experiment())


def test_a_folder_with_anything_else_and_a_file_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not an empty folder"):
        check_unused(tmp_path)
    with pytest.raises(ConfigError, match="not an empty folder"):
        check_unused(tmp_path / "notes.txt")


def test_an_empty_folder_is_used(tmp_path):
    assert RunFolder.create(tmp_path, Experiment()).path == tmp_path


def test_resuming_where_there_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="holds no run"):
        RunFolder.open(tmp_path)


def test_a_line_torn_by_a_crash_is_left_out(tmp_path):
    folder = RunFolder(tmp_path)
    folder.append_line(METRICS, {"round": 1})
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"round": 2, "acc')
    assert folder.read_lines(METRICS) == [{"round": 1}]
    folder.rewrite_lines(METRICS, folder.read_lines(METRICS))
    folder.append_line(METRICS, {"round": 2})
    assert [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()] == [
        {"round": 1},
        {"round": 2},
    ]


def test_a_checkpoint_comes_back_whole(tmp_path):
    folder = RunFolder.create(tmp_path / "run", Experiment())
    assert load_checkpoint(folder) is None
    saved = Checkpoint(
        round=7,
        model=torch.tensor([1.0, -0.0, 3e-45]),
        optimizer_tensors={"momentum_buffer": torch.tensor([0.1, 0.2, 0.3])},
        optimizer_scalars={"step": 7.0},
        order_seed=bytes(range(32)),
        configuration="digest",
        files={METRICS: (12, "hash")},
    )
    save_checkpoint(folder, saved)
    loaded = load_checkpoint(folder)
    assert loaded is not None
    assert loaded.round == 7
    assert loaded.order_seed == saved.order_seed
    assert (loaded.configuration, loaded.files) == (saved.configuration, saved.files)
    assert loaded.optimizer_scalars == {"step": 7.0}
    assert torch.equal(loaded.model.view(torch.int32), saved.model.view(torch.int32))
    assert torch.equal(
        loaded.optimizer_tensors["momentum_buffer"], saved.optimizer_tensors["momentum_buffer"]
    )


@pytest.mark.parametrize("keep", [0, 5, 40, -3])
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path, keep):
    folder = RunFolder.create(tmp_path / "run", Experiment())
    save_checkpoint(folder, Checkpoint(1, torch.zeros(9), {}, {}, bytes(32), "", {}))
    path = folder.path / STATE
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ConfigError, match="damaged"):
        load_checkpoint(folder)
