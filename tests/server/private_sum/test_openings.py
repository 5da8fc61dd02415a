"""A server plans for as many sessions as its nodes let begin, and holds its run folder alone."""

import fcntl
import os

import pytest
from policies import policy_of

from zerosum.client.spec import PrivacySpec, SecAggSpec
from zerosum.secagg import Session, UnsafeGraph
from zerosum.secagg.stages import ServerMode
from zerosum.server.config import ConfigError, parse_experiment
from zerosum.server.flower.server_app import _check_deployable
from zerosum.server.private_sum.thresholds import Thresholds, survivors_needed
from zerosum.server.runs.resume import held
from zerosum.server.runs.run_folder import LOCK, RunFolder

OPEN = PrivacySpec(model="none")


def session(n, **secagg):
    spec = SecAggSpec(corruption=0.05, dropout=0.05, **secagg)
    limits = Thresholds.of(n, roster=n, secagg=spec, privacy=OPEN)
    return Session(
        run_id=b"run", round=1, attempt=0, roster_version=0, roster_digest=bytes(32),
        cohort=tuple(range(n)), threshold=limits.threshold, degree=limits.degree,
        min_survivors=limits.min_survivors, ring_bits=20, vector_length=5,
        mode=ServerMode(spec.server),
        graph_seed=bytes(32) if spec.server == "semi-honest" else b"",
    )  # fmt: skip


@pytest.mark.parametrize("server", ["malicious", "semi-honest"])
def test_nodes_accept_what_a_server_chose_for_as_many_openings_as_theirs(server):
    policy = policy_of(corruption=0.05, servers=[server]).for_sessions()
    policy.admit(session(600, server=server))
    with pytest.raises(UnsafeGraph):  # the control: one session's share of 2^-40 is too much
        policy.admit(session(600, server=server, openings=1))


def test_a_written_threshold_is_held_to_the_openings_too():
    least = session(600).threshold
    lower = session(600, openings=1)
    assert lower.threshold <= least
    with pytest.raises(Exception, match=r"secagg\.threshold"):
        session(600, degree=session(600).degree, threshold=least - 1)


def test_survivors_needed_agrees_with_the_whole_search_at_any_openings():
    private = PrivacySpec(clip=1.0, noise_multiplier=1.0, delta=1e-5)
    for openings in (1, 2000, 10**9):
        spec = SecAggSpec(corruption=0.02, dropout=0.05, openings=openings)
        whole = Thresholds.of(700, roster=700, secagg=spec, privacy=private).min_survivors
        assert survivors_needed(700, roster=700, secagg=spec, privacy=private) == whole


def experiment(**secagg):
    return parse_experiment(
        {
            "task": "digits",
            "rounds": 1500,
            "privacy": {"model": "none"},
            "encoding": {"range": 1.0},
            "sampling": {"kind": "everyone"},
            "evaluation": {"federated_every": 3},
            "secagg": secagg,
        }
    )


def test_a_run_that_asks_more_often_than_nodes_answer_is_refused_before_it_starts():
    _check_deployable(experiment(), simulated=False)  # 1500 and 500
    with pytest.raises(ConfigError, match=r"secagg\.openings = 1999: .* 2000 times.*at least 2000"):
        _check_deployable(experiment(openings=1999), simulated=False)
    _check_deployable(experiment(openings=1), simulated=True)


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


@pytest.mark.parametrize("mask", [0o000, 0o777])
def test_the_lock_of_a_run_is_its_owners_alone(folder, mask):
    before = os.umask(mask)
    try:
        with held(folder):
            assert (folder.path / LOCK).stat().st_mode & 0o777 == 0o600
            why = f"another process .process {os.getpid()}"
            with pytest.raises(ConfigError, match=why), held(folder):
                pass
    finally:
        os.umask(before)


@pytest.mark.parametrize("kind", ["open to others", "link"])
def test_a_lock_that_another_user_could_hold_is_refused(folder, tmp_path_factory, kind):
    lock = folder.path / LOCK
    if kind == "link":
        theirs = tmp_path_factory.mktemp("theirs") / "lock"
        theirs.touch(0o600)
        lock.symlink_to(theirs)
    else:
        lock.touch()
        lock.chmod(0o644)
    reader = os.open(lock, os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_EX)  # all that it takes
    try:
        with pytest.raises(ConfigError, match=r"chmod 600|symbolic link"), held(folder):
            pass
    finally:
        os.close(reader)
