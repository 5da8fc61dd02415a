"""Short names of tasks are entry points, of zerosum and of any other installed package."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import (
    TASK_GROUP,
    TaskError,
    builtin_tasks,
    registered_tasks,
    resolve_task,
)

NAMES = ["digits", "heart", "hf", "mnist", "mnist5k", "shakespeare", "table"]
TASK = '''
class Wards:
    """Length of stay in the wards of one hospital."""
    def model(self): return "a model"
    def data(self, client): ...
    def test_data(self): ...
    def loss(self, outputs, targets): ...
'''
Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return what installs a package of one module with one entry point, on a path of its own."""

    def install(package: str, entry: str) -> None:
        folder = tmp_path / package
        metadata = folder / f"{package}-1.0.dist-info"
        metadata.mkdir(parents=True)
        described = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        (metadata / "METADATA").write_text(described)
        (metadata / "entry_points.txt").write_text(f"[{TASK_GROUP}]\n{entry}\n")
        (folder / f"{package}_tasks.py").write_text(TASK)
        monkeypatch.syspath_prepend(folder)

    return install


def test_registered_names_are_those_of_pyproject() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    written = tomllib.loads(text)["project"]["entry-points"][TASK_GROUP]
    registered = {name: entry.value for name, entry in registered_tasks().items()}
    assert registered == written, "the installed metadata is older: run pip install -e ."
    assert builtin_tasks() == sorted(written) == NAMES


def test_every_registered_task_can_be_imported() -> None:
    for name, entry in registered_tasks().items():
        assert callable(entry.load().from_specs), name


def test_task_of_another_package_is_found_and_is_not_built_in(install: Install) -> None:
    install("hospital", "wards = hospital_tasks:Wards")
    task = resolve_task("wards", DataSpec(), ModelSpec(), 0)
    assert task.model() == "a model"  # type: ignore[comparison-overlap]
    # A node whose policy says tasks = "built-in" does not run it.
    assert builtin_tasks() == NAMES
    assert list(registered_tasks()) == sorted([*NAMES, "wards"])
    with pytest.raises(TaskError, match=r'table, wards.*did you mean "wards"'):
        resolve_task("ward", DataSpec(), ModelSpec(), 0)


def test_list_shows_the_task_of_another_package_or_why_it_cannot_be_imported(
    install: Install,
) -> None:
    from zerosum.simulations.commands.listing import catalog

    install("hospital", "wards = hospital_tasks:Wards")
    install("clinic", "beds = nowhere_to_be_found:Beds")
    rows = dict(catalog()["Tasks"])
    assert rows["wards"] == "Length of stay in the wards of one hospital."
    assert rows["beds"].startswith("cannot be imported: ModuleNotFoundError")
    assert rows["digits"].startswith("1,797 digits")


def test_name_that_two_packages_register_is_refused(install: Install) -> None:
    install("impostor", "digits = impostor_tasks:Wards")
    with pytest.raises(TaskError, match=r"two packages register it, .*impostor.*; uninstall one"):
        resolve_task("digits", DataSpec(), ModelSpec(), 0)


def test_entry_that_names_no_object_is_refused_with_its_package(install: Install) -> None:
    install("hasty", "beds = no object")
    with pytest.raises(TaskError, match="hasty registers it as 'no object', which is no"):
        resolve_task("beds", DataSpec(), ModelSpec(), 0)


def test_metadata_that_cannot_be_read_are_refused(install: Install, tmp_path: Path) -> None:
    install("broken", "beds = beds:Beds")
    [entries] = tmp_path.rglob("entry_points.txt")
    entries.write_bytes(b"[zerosum.tasks]\n\xff = beds:Beds\n")
    with pytest.raises(TaskError, match=r"cannot be read \(UnicodeDecodeError"):
        resolve_task("digits", DataSpec(), ModelSpec(), 0)


def test_impostor_without_metadata_is_refused(install: Install, tmp_path: Path) -> None:
    install("impostor", "digits = impostor_tasks:Wards")
    [metadata] = tmp_path.rglob("METADATA")
    metadata.unlink()
    with pytest.raises(TaskError, match="one without a name"):
        resolve_task("digits", DataSpec(), ModelSpec(), 0)


def test_missing_metadata_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerosum.client.task.entry_points", lambda group: ())
    monkeypatch.setattr(sys, "path", [*sys.path, "/nowhere"])  # past the cache
    with pytest.raises(TaskError, match=r"registers none; install it again"):
        resolve_task("digits", DataSpec(), ModelSpec(), 0)


@pytest.mark.slow
def test_pandas_is_imported_only_where_a_table_is_read(tmp_path: Path) -> None:
    """In a fresh process, as a deployed node is at every stage."""
    (tmp_path / "table.csv").write_text("age,label\n" + "1,0\n2,1\n3,0\n4,1\n" * 5)
    code = """
import sys
from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import registered_tasks, resolve_task
for entry in registered_tasks().values():
    entry.load()
print("pandas" in sys.modules)
resolve_task("table", DataSpec(path="table.csv"), ModelSpec(name="linear"), 0)
print("pandas" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]
