"""What nodes are given before a run."""

import pytest

from zerosum.secagg import IdentityKey, Roster, SignedRoster


class Keys:
    """Identity keys and a signed roster in files, as nodes are given them before a run."""

    def __init__(self, folder, count, version=1):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        authority = IdentityKey.generate()
        self.authority = authority.public.hex()
        entries = {}
        for index in range(count):
            key = IdentityKey.generate()
            (folder / f"{index}.key").write_bytes(key.to_bytes())
            entries[index] = key.public
        self.roster = Roster(version, entries)
        self.path = folder / "roster"
        self.path.write_bytes(SignedRoster.sign(self.roster, authority).to_bytes())

    def node_config(self, index):
        return {
            "identity": str(self.folder / f"{index}.key"),
            "roster": str(self.path),
            "authority": self.authority,
        }


@pytest.fixture
def make_keys():
    """Return the class: ``make_keys(folder, count, version=1)`` writes the files."""
    return Keys
