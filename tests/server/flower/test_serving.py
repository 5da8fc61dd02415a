"""Roster and authority of a server: what its settings name, or else its environment."""

import pytest

from zerosum.secagg import IdentityKey, Roster, SignedRoster
from zerosum.server.config import ConfigError
from zerosum.server.flower.serving import AUTHORITY, ROSTER, read_deployment_keys
from zerosum.server.spec import DeploymentSpec


def signed(path, count):
    """Write a roster of so many clients, and return its authority's public key."""
    authority = IdentityKey.generate()
    roster = Roster(1, {index: IdentityKey.generate().public for index in range(count)})
    path.write_bytes(SignedRoster.sign(roster, authority).to_bytes())
    return authority.public.hex()


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Name a roster of three in the environment."""
    monkeypatch.setenv(ROSTER, str(tmp_path / "environment"))
    monkeypatch.setenv(AUTHORITY, signed(tmp_path / "environment", 3))


@pytest.mark.usefixtures("environment")
def test_a_roster_that_no_setting_names_is_the_environments():
    roster = read_deployment_keys(DeploymentSpec(), "malicious", "secagg.server")
    assert roster is not None
    assert len(roster) == 3
    assert read_deployment_keys(DeploymentSpec(), "semi-honest", "secagg.server") is None


@pytest.mark.usefixtures("environment")
def test_settings_go_before_the_environment(tmp_path):
    authority = signed(tmp_path / "written", 5)
    spec = DeploymentSpec(roster=str(tmp_path / "written"), authority=authority)
    roster = read_deployment_keys(spec, "malicious", "secagg.server")
    assert roster is not None
    assert len(roster) == 5
    alone = DeploymentSpec(roster=str(tmp_path / "written"))
    with pytest.raises(ConfigError, match=r"deployment\.roster = .*written.* signed with the key"):
        read_deployment_keys(alone, "malicious", "secagg.server")  # whose authority is another


def test_without_any_the_line_names_all_ways(monkeypatch):
    monkeypatch.delenv(ROSTER, raising=False)
    monkeypatch.setenv(AUTHORITY, 32 * "a1")
    with pytest.raises(ConfigError) as refused:
        read_deployment_keys(DeploymentSpec(), "malicious", "secagg.server")
    for way in ("deployment.roster", "deployment.authority", ROSTER, AUTHORITY, '"semi-honest"'):
        assert way in str(refused.value)


@pytest.mark.parametrize("authority", ["", "no key", 32 * "a1"])
@pytest.mark.usefixtures("environment")
def test_an_environment_that_is_wrong_is_named(authority, monkeypatch):
    monkeypatch.setenv(AUTHORITY, authority)
    with pytest.raises(ConfigError, match=f"{ROSTER} and {AUTHORITY}"):
        read_deployment_keys(DeploymentSpec(), "malicious", "secagg.server")
