"""A round with noise from a seed is done again on the records that it had, or not at all."""

import json

import numpy as np
import pytest

from zerosum.server.config import ConfigError
from zerosum.server.runs.resume import fingerprint
from zerosum.server.runs.run_folder import CONFIG, DATA, LEDGER
from zerosum.server.training.loop import FederatedTraining
from zerosum.simulations import api

SMALL = [
    "task=table",
    "rounds=2",
    "data.clients=20",
    "sampling.cohort=12",
    "privacy.delta=1e-2",
    "training.epochs=1",
    "secagg.protocol=ideal",
    "model.name=linear",
]

pytestmark = pytest.mark.usefixtures("one_thread")


class Killed(BaseException):
    """The process is gone."""


def write_records(path, seed):
    rng = np.random.default_rng(seed)
    rows = [f"{x:.4f},{y:.4f},{int(x > y)}" for x, y in rng.normal(size=(200, 2))]
    path.write_text("\n".join(["a,b,label", *rows]) + "\n")
    return path


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """Return a function that runs an experiment, and kills it in its second round."""

    def run(*settings):
        save = FederatedTraining._save

        def die(training, number, line):
            if number == 2:
                raise Killed
            save(training, number, line)

        data = write_records(tmp_path / "ours.csv", 1)
        given = [*SMALL, f"data.path={data}", *settings]
        with monkeypatch.context() as patch:
            patch.setattr(FederatedTraining, "_save", die)
            with pytest.raises(Killed):
                api.run("digits", overrides=given, out=tmp_path / "run", report=False)
        return tmp_path / "run"

    return run


def resumed(folder, data, *more):
    return api.resume(folder, overrides=[f"data.path={data}", *more], report=False)


@pytest.mark.slow
def test_a_begun_round_is_not_done_again_on_other_records(killed, tmp_path):
    folder = killed()
    before = {name: (folder / name).read_bytes() for name in (CONFIG, LEDGER, DATA)}
    with pytest.raises(ConfigError, match="was begun on other records"):
        resumed(folder, write_records(tmp_path / "others.csv", 2))
    assert before == {name: (folder / name).read_bytes() for name in before}


@pytest.mark.slow
def test_records_that_changed_in_their_place_are_other_records(killed, tmp_path):
    folder = killed()
    with pytest.raises(ConfigError, match="was begun on other records"):
        resumed(folder, write_records(tmp_path / "ours.csv", 2))


@pytest.mark.slow
def test_a_fingerprint_that_is_gone_is_no_way_around(killed, tmp_path):
    folder = killed()
    (folder / DATA).unlink()
    with pytest.raises(ConfigError, match="was begun on unknown records"):
        resumed(folder, tmp_path / "ours.csv")


@pytest.mark.slow
def test_a_file_that_was_moved_is_the_same(killed, tmp_path):
    folder = killed()
    asked = len((folder / LEDGER).read_text().splitlines())
    moved = (tmp_path / "ours.csv").rename(tmp_path / "moved.csv")
    result = resumed(folder, moved)
    assert [record["round"] for record in result.rounds] == [1, 2]
    assert len((folder / LEDGER).read_text().splitlines()) == asked, "the same release"
    assert json.dumps(str(moved)) in (folder / CONFIG).read_text()


@pytest.mark.slow
def test_rounds_that_were_not_begun_may_be_of_other_records(killed, tmp_path):
    folder = killed()
    resumed(folder, tmp_path / "ours.csv")
    result = resumed(folder, write_records(tmp_path / "others.csv", 2), "rounds=3")
    assert len(result.rounds) == 3


@pytest.mark.slow
def test_without_noise_there_is_nothing_to_take_away(killed, tmp_path):
    folder = killed("privacy.model=none")
    result = resumed(folder, write_records(tmp_path / "others.csv", 2))
    assert len(result.rounds) == 2


def test_a_folder_is_all_that_it_holds(tmp_path):
    folder = tmp_path / "records"
    (folder / "part").mkdir(parents=True)
    (folder / "part" / "one").write_text("1")
    before = fingerprint(str(folder))
    assert before == fingerprint(str(folder.rename(tmp_path / "moved")))
    (tmp_path / "moved" / "part" / "one").rename(tmp_path / "moved" / "part" / "two")
    assert before != fingerprint(str(tmp_path / "moved"))
    assert fingerprint(None) != fingerprint("None")
