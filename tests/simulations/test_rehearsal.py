"""What a rehearsal writes before it starts anything."""

import os
import shlex
import tomllib
from pathlib import Path

import pytest
from policies import LEAST, LEAST_TOML

from zerosum.simulations.rehearsal import DeploymentError, Federation
from zerosum.simulations.rehearsal.certificates import make_node_key
from zerosum.simulations.rehearsal.command import _data_of, _policy
from zerosum.simulations.rehearsal.namespaces import Loopback

POLICIES = {
    "the least": ("", {}),
    "one line": ('servers = ["semi-honest"]\nmax_clip = 1.0\n', {"max_clip": 1.0}),
    "several lines": (
        'servers = [\n    "semi-honest",\n]\ntasks = [\n    "task:task",\n]\n',
        {"tasks": ["task:task"]},
    ),
    "quoted": ('"servers" = ["semi-honest"]\nmax_clip = 1.0\n', {"max_clip": 1.0}),
}


@pytest.mark.parametrize("written", POLICIES)
def test_a_policy_is_the_apps_but_for_its_servers(written, tmp_path):
    text, kept = POLICIES[written]
    file = tmp_path / "policy.toml"
    file.write_text(text + LEAST_TOML)
    assert tomllib.loads(_policy(file, "malicious")) == LEAST | kept | {"servers": ["malicious"]}


def test_an_app_whose_policy_is_no_policy_is_not_rehearsed(tmp_path):
    file = tmp_path / "policy.toml"
    for text in (None, 'tasks = ["task:task"]\nmin_cohort = 3\n'):
        if text is not None:
            file.write_text(text)
        with pytest.raises(DeploymentError, match=r"policy\.toml lacks .* corruption = .* max_eps"):
            _policy(file, "malicious")


def test_a_policy_that_is_no_toml_is_named(tmp_path):
    (tmp_path / "policy.toml").write_text("servers = [")
    with pytest.raises(DeploymentError, match=r"policy\.toml is not valid TOML"):
        _policy(tmp_path / "policy.toml", "malicious")


@pytest.fixture
def no_chmod(monkeypatch):
    """Files keep the mode that they were made with, and nothing is taken off it."""
    monkeypatch.setattr(Path, "chmod", lambda path, mode: None)
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_chmod")
def test_private_keys_are_made_unreadable_to_others(tmp_path):
    built = Federation(tmp_path / "all", Loopback(), [Loopback(), Loopback()])
    make_node_key(built.folder / "supernode0.pem")
    keys = [
        *built.folder.glob("node*.key"),
        built.folder / "supernode0.pem",
        built.certificates.key,
    ]
    assert len(keys) == 4
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}
    assert built.roster.stat().st_mode & 0o777 == 0o666, "the control: others are as they come"


def test_nodes_are_told_of_the_experiments_own_data_by_its_whole_path(tmp_path):
    app = tmp_path / "app"
    app.mkdir()
    (tmp_path / "patients of ours.csv").write_text("a,b\n1,2\n")
    (app / "experiment.toml").write_text('[data]\npath = "../patients of ours.csv"\n')
    (setting,) = _data_of(app)
    assert shlex.split(setting) == [f"data.path={tmp_path / 'patients of ours.csv'}"]


@pytest.mark.parametrize("text", ["", "[data]\n", '[data]\npath = "absent.csv"\n', "[data\n"])
def test_where_no_data_are_named_or_there_the_run_says_so_itself(text, tmp_path):
    (tmp_path / "experiment.toml").write_text(text)
    assert _data_of(tmp_path) == []
