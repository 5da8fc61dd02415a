"""Files of ``--json`` are written whole or not at all, and into pipes as well."""

import json
import os
import threading

import pytest

from zerosum.server.config import ConfigError
from zerosum.simulations.terminal.user_errors import write_json


def test_figures_replace_a_file_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "figures.json"
    file.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(ConfigError, match=r"figures\.json: No space left on device"):
            write_json(file, {"a": 1})
    assert file.read_text() == "old"
    write_json(file, {"a": 1})
    assert json.loads(file.read_text()) == {"a": 1}


def test_a_link_is_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_json(tmp_path / "link", [])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "[]\n"


def test_a_pipe_stays_one_and_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
    reader.start()
    write_json(pipe, {"a": 1})
    reader.join(5)
    assert json.loads(found[0]) == {"a": 1}
    assert pipe.is_fifo()
