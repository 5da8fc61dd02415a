"""A path that cannot be used is refused with its true cause."""

from pathlib import Path

import pytest

from zerosum.client.files.file_errors import reason
from zerosum.server.config import ConfigError, parse_experiment
from zerosum.server.runs.run_folder import RunFolder


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("nowhere", "it is a symbolic link that leads nowhere"),
        ("round", "it is a symbolic link that leads nowhere"),
        ("nowhere/run", "/nowhere is a symbolic link that leads nowhere"),
        ("file", "exists and is not an empty folder: choose another"),
        ("file/run", "cannot be written: Not a directory"),
        ("n" * 300, "File name too long"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_a_run_folder_that_cannot_be_made_names_the_cause(
    path: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as refused:
        RunFolder.create(tmp_path / path, parse_experiment({"task": "digits"}))
    assert why in str(refused.value)
    assert str(refused.value).count("n" * 300) <= 1


def test_a_run_folder_through_a_link_is_made_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    RunFolder.create(tmp_path / "link", parse_experiment({"task": "digits"}))
    assert (tmp_path / "real" / "config.toml").is_file()


def test_other_errors_keep_the_words_of_the_system(tmp_path: Path) -> None:
    assert reason(tmp_path, PermissionError(13, "Permission denied")) == "Permission denied"
    assert reason(tmp_path, FileExistsError(17, "File exists")) == "File exists"
    assert reason(tmp_path, OSError("by hand")) == "by hand"
