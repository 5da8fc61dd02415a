"""A run folder that Flower would send to every node is found out, and nothing else is."""

import pytest
from flwr.cli.build import build_fab_from_disk

from zerosum.server.flower.packed_folder import app_that_packs, packing_words
from zerosum.server.runs.run_folder import LEDGER

PROJECT = """
[project]
name = "quickstart"
version = "1.0.0"
license = "Apache-2.0"

[tool.flwr.app]
publisher = "somebody"
{more}

[tool.flwr.app.components]
serverapp = "quickstart:server"
clientapp = "quickstart:client"
"""


@pytest.fixture
def app_of(tmp_path):
    """Return a function that writes an app with a run's ledger in ``runs/1``."""

    def make(more="", **ignored):
        app = tmp_path / "app"
        (app / "runs" / "1").mkdir(parents=True)
        (app / "pyproject.toml").write_text(PROJECT.format(more=more))
        (app / "quickstart.py").write_text("server = client = None\n")
        (app / "runs" / "1" / LEDGER).write_text("{}\n")
        for place, lines in ignored.items():
            folder = app if place == "root" else app / "runs" / "1"
            (folder / ".gitignore").write_text(lines)
        return app

    return make


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's own
@pytest.mark.parametrize(
    ("more", "ignored", "packs"),
    [
        ("", {}, True),
        ("", {"nested": "*\n"}, True),
        ("", {"root": "/data/\n# runs/\n"}, True),
        ("", {"root": "runs/\n!runs/1/ledger.jsonl\n"}, None),
        ("", {"root": "/runs/\n"}, False),
        ("", {"root": "  runs  \n"}, False),
        ("", {"root": "*.jsonl\n"}, False),
        ('fab-exclude = ["runs/**"]', {}, False),
        ('fab-include = ["*.py"]', {}, False),
        ('fab-include = ["**/*.py", "runs/**"]', {}, True),
    ],
)
def test_it_is_said_of_what_flower_packs_and_of_nothing_else(more, ignored, packs, app_of):
    """The reference is Flower's own bundle."""
    app = app_of(more, **ignored)
    packed = f"runs/1/{LEDGER}".encode() in build_fab_from_disk(app)
    assert packs is None or packed is packs
    assert app_that_packs(app / "runs" / "1") == (app.resolve() if packed else None)


def test_the_line_names_both_cures(app_of, tmp_path):
    app = app_of()
    said = packing_words(app / "runs" / "new", "--out")
    assert said is not None
    assert f"write a line /runs/ into {app.resolve() / '.gitignore'}" in said
    assert said.endswith("by --out")
    (app / ".gitignore").write_text("/runs/\n")  # the cure that it names
    assert packing_words(app / "runs" / "new", "--out") is None
    assert packing_words(tmp_path / "elsewhere", "--out") is None


def test_a_project_that_is_no_flower_app_packs_nothing(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'other'\n[tool]\nflwr = 3\n")
    assert app_that_packs(tmp_path / "runs" / "1") is None
    (tmp_path / "pyproject.toml").write_text("no TOML")
    assert app_that_packs(tmp_path / "runs" / "1") is None
