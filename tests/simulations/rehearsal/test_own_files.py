"""A rehearsal's nodes with a file each: what is typed, and what the server tests on."""

from pathlib import Path
from typing import Any

import pytest

from zerosum.client.files.named_files import named_files
from zerosum.simulations.rehearsal.own_files import check_count, linked, own_files, paths_of
from zerosum.simulations.rehearsal.processes import DeploymentError


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text(name)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_come_in_the_order_of_their_nodes(files: Path) -> None:
    assert own_files(["1=b.csv", "0=a.csv"]) == (str(files / "a.csv"), str(files / "b.csv"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0=a.csv", "0=b.csv"], "node 0 has a file already"),
        (["0=a.csv", "2=b.csv"], "no file for node 1"),
        (["0=a.csv", "999999=b.csv"], "no file for node 1"),
        (["0=a.csv", "9999999=b.csv"], "no node and file"),
        (["a.csv"], "no node and file"),
        (["-1=a.csv"], "no node and file"),
        (["0=a.csv", "1=absent.csv"], "it is not there"),
        (["0=a.csv", "1=folder"], "it is a folder"),
        (["0=a.csv", "1=a.csv"], "named twice"),
    ],
)
@pytest.mark.usefixtures("files")
def test_what_is_no_file_a_node_is_refused_in_one_line(words: list[str], message: str) -> None:
    with pytest.raises(DeploymentError, match=message) as caught:
        own_files(words)
    assert "\n" not in str(caught.value)


def experiment(**data: Any) -> dict[str, Any]:
    return {"task": "ours.task:Task", "data": data, "deployment": {"min_nodes": 2}}


def test_more_and_fewer_files_than_clients_are_refused(files: Path) -> None:
    natural = experiment(path="../*.csv", partition="natural")
    app = files / "folder"
    check_count(["a", "b", "c"], natural, app)
    for count in (2, 4):
        with pytest.raises(DeploymentError, match=f"{count} files, and the experiment is for 3"):
            check_count(["x"] * count, natural, app)
    check_count(["x"] * 5, experiment(path="../a.csv"), app)
    with pytest.raises(DeploymentError, match="only an app of zerosum new"):
        check_count(["x"] * 3, natural | {"task": "table"}, app)


def test_the_servers_pattern_names_the_nodes_own_files(files: Path) -> None:
    own = [files / "a.csv", files / "b.csv"]
    assert [file.resolve() for file in named_files(linked(own, files / "n [1]"))] == own
    (files / "folder" / "a.csv").write_text("another")
    same = [files / "a.csv", files / "folder" / "a.csv"]
    assert [file.resolve() for file in named_files(linked(same, files / "n [1]"))] == same
    (files / ".c.csv").write_text("begins with a dot")
    hidden = [files / "a.csv", files / ".c.csv"]
    assert [file.resolve() for file in named_files(linked(hidden, files / "n [1]"))] == hidden


def test_paths_lead_from_the_apps_folder(files: Path) -> None:
    assert [file.name for file in paths_of("../*.csv", files / "folder")] == [
        "a.csv",
        "b.csv",
        "c.csv",
    ]
    assert paths_of(["../b.csv", "../a.csv"], files / "folder") == (
        files / "b.csv",
        files / "a.csv",
    )
    assert paths_of(None, files) == ()
