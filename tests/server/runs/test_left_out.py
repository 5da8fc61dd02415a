"""Proved liars are asked no more, and nothing changes for anybody else."""

import json
import os

import pytest

from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.secagg import IdentityKey, Roster
from zerosum.server.config import ConfigError, parse_experiment
from zerosum.server.private_sum.transport import Traffic
from zerosum.server.runs.left_out import LEFT_OUT, LeftOut
from zerosum.server.runs.records import RoundRecord
from zerosum.server.runs.round_line import MOST_PAIRS, lies_in_words, lies_record
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.sampling import CohortSampler
from zerosum.server.spec import DeploymentSpec
from zerosum.server.training.schedule import Schedule

SAMPLING = {
    "everyone": {"kind": "everyone"},
    "poisson": {"kind": "poisson", "cohort": 15},
    "fixed": {"kind": "fixed", "cohort": 15},
    "once": {"kind": "once", "cohort": 10},
}


def schedule(kind, left_out):
    experiment = parse_experiment({"rounds": 3, "sampling": SAMPLING[kind]})
    sampler = CohortSampler(experiment.sampling, 40, SeededEntropy(1))
    return Schedule(experiment, sampler, lambda number, kind: 0, left_out), sampler


@pytest.mark.parametrize("kind", SAMPLING)
def test_cohorts_are_drawn_as_before_and_lose_who_is_left_out(tmp_path, kind):
    out = LeftOut(tmp_path / LEFT_OUT)
    plan, sampler = schedule(kind, out)
    before = {number: plan.draw(number, "train").groups[0] for number in (1, 2, 3)}
    rate, expected = sampler.rate, sampler.expected_cohort
    liars = {before[2][0], before[3][-1]}
    out.add(liars, round=1, since=2)
    assert plan.draw(1, "train").groups[0] == before[1]
    for number in (2, 3):
        planned = plan.draw(number, "train")
        assert planned.groups[0] == tuple(i for i in before[number] if i not in liars)
        assert planned.left_out == len(liars & set(before[number])) > 0
    assert (sampler.rate, sampler.expected_cohort) == (rate, expected)


def test_who_is_left_out_is_known_to_the_next_process_until_its_line_is_deleted(tmp_path):
    path = tmp_path / LEFT_OUT
    LeftOut(path).add([3, 5], round=4, since=6)
    again = LeftOut(path)
    assert again.clients == (3, 5)
    assert again.before(5) == frozenset()
    assert again.before(6) == {3, 5}
    again.add([5], round=7, since=8)
    lines = path.read_text().splitlines()
    assert [json.loads(line)["client"] for line in lines] == [3, 5]
    path.write_text(lines[1] + "\n")
    assert LeftOut(path).clients == (5,)


def test_other_runs_of_a_shared_file_do_without_a_liar_from_the_start(tmp_path):
    shared = tmp_path / "liars.jsonl"
    spring, summer = (tmp_path / name / LEFT_OUT for name in ("spring", "summer"))
    spring.parent.mkdir()
    LeftOut(spring, shared=shared).add([3], round=4, since=5)
    assert LeftOut(spring, shared=shared).before(4) == frozenset()
    assert LeftOut(spring, shared=shared).before(5) == {3}
    assert LeftOut(summer, shared=shared).before(1) == {3}
    assert json.loads(shared.read_text())["run"] == "spring"


def test_another_run_in_a_folder_of_the_same_name_does_without_a_liar_from_the_start(tmp_path):
    shared, places = tmp_path / "liars.jsonl", [tmp_path / "a" / "run", tmp_path / "b" / "run"]
    for place in places:
        place.mkdir(parents=True)
    LeftOut(places[0] / LEFT_OUT, shared=shared).add([3], round=50, since=51)
    assert LeftOut(places[1] / LEFT_OUT, shared=shared).before(1) == {3}
    (places[0] / LEFT_OUT).unlink()  # the run folder was removed, and another run begins there
    assert LeftOut(places[0] / LEFT_OUT, shared=shared).before(1) == {3}


def test_who_is_readmitted_in_a_shared_file_comes_back_to_the_run_that_named_it(tmp_path):
    own, shared = tmp_path / LEFT_OUT, tmp_path / "liars.jsonl"
    LeftOut(own, shared=shared).add([3], round=1, since=2)
    shared.write_text("")
    again = LeftOut(own, shared=shared)
    assert again.clients == ()
    again.add([3], round=7, since=8)
    assert LeftOut(own, shared=shared).before(7) == frozenset()
    assert LeftOut(own, shared=shared).before(8) == {3}


def test_a_line_written_by_hand_without_its_end_is_not_joined_to_the_next(tmp_path):
    path = tmp_path / LEFT_OUT
    path.write_text('{"client": 3, "key": "", "run": "by hand", "round": 0, "since": 0}')
    LeftOut(path).add([5], round=1, since=2)
    LeftOut(path).add([6], round=1, since=2)
    assert LeftOut(path).clients == (3, 5, 6)
    assert len(path.read_text().splitlines()) == 3


def test_an_index_with_another_identity_key_is_another_party(tmp_path):
    path, keys = tmp_path / "liars.jsonl", [IdentityKey.generate().public for _ in range(3)]
    LeftOut(path, Roster(1, {0: keys[0], 1: keys[1]})).add([1], round=1, since=2)
    assert LeftOut(path, Roster(2, {0: keys[0], 1: keys[1]})).clients == (1,)
    assert LeftOut(path, Roster(3, {0: keys[0], 1: keys[2]})).clients == ()


def test_a_file_that_was_named_is_used_and_one_that_cannot_be_written_is_refused(tmp_path):
    folder = RunFolder(tmp_path)
    shared = tmp_path / "liars.jsonl"
    LeftOut.of(folder, DeploymentSpec(left_out=str(shared)), None).add([1], round=1, since=2)
    assert shared.read_text()
    assert LeftOut.of(RunFolder(tmp_path / "other"), DeploymentSpec(), None).clients == ()


@pytest.mark.parametrize("name", ["absent/liars.jsonl", "", "folder", "nul\0", "pipe"])
def test_a_shared_file_that_cannot_be_written_is_refused(tmp_path, name):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")  # to open one would wait for its other end
    spec = DeploymentSpec(left_out=f"{tmp_path}/{name}")
    with pytest.raises(ConfigError, match=r"deployment\.left_out = .*cannot be written"):
        LeftOut.of(RunFolder(tmp_path), spec, None)


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "3",
        "[" * 10**5,
        '{"client": 3}',
        '{"client": -1, "key": "", "run": "", "round": 1, "since": 2}',
    ],
)
def test_a_damaged_file_is_refused_with_the_line_that_it_should_have(tmp_path, line):
    path = tmp_path / LEFT_OUT
    LeftOut(path).add([3], round=4, since=5)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ConfigError, match=r"line 2: .*delete it to readmit"):
        LeftOut(path)


def test_a_line_of_metrics_counts_wrong_shares_and_has_the_pairs_that_prove_nothing():
    named = [(dealer, 7) for dealer in range(200) if dealer != 7]
    traffic = Traffic(wrong_shares=[*named, (3, 4), (3, 5)], liars=[7])
    found = lies_record(traffic)
    assert found == {"wrong_shares": 201, "liars": [7], "wrong_pairs": [[3, 4], [3, 5]]}
    named_liar = RoundRecord(round=1, **found, left_out=2)
    assert lies_in_words(named_liar) == ", proved to lie: 7, left out: 2"
    nobody_named = RoundRecord(round=1, **lies_record(Traffic(wrong_shares=[(3, 4)])))
    assert lies_in_words(nobody_named) == ", wrong shares: 1"
    assert len(lies_record(Traffic(wrong_shares=named))["wrong_pairs"]) == MOST_PAIRS
    assert lies_record(Traffic()) == {}
