"""The documentation runs as it stands."""

import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import zerosum.secagg

DOCS = Path(__file__).parents[2] / "docs"
MODULES = [
    module.name for module in pkgutil.walk_packages(zerosum.secagg.__path__, "zerosum.secagg.")
]


def test_the_code_of_the_page_runs_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    page = DOCS / "secagg.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    assert len(blocks) >= 5
    names: dict[str, Any] = {}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        for block in blocks:
            exec(compile(block, str(page), "exec"), names)  # noqa: S102
    assert said.getvalue() == "", "no honest client is refused"
    assert names["total"].tolist() == [42, 420, -9]


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("module", ["zerosum.secagg", *MODULES])
def test_the_examples_of_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_the_package_docstring_has_a_whole_session():
    finder = doctest.DocTestFinder(recurse=False)
    (found,) = finder.find(zerosum.secagg, "zerosum.secagg")
    assert len(found.examples) > 5


def test_everything_public_says_what_it_is():
    for name in zerosum.secagg.__all__:
        thing = getattr(zerosum.secagg, name)
        assert inspect.getdoc(thing), name
        for attribute, value in vars(thing).items() if inspect.isclass(thing) else ():
            if callable(value) and not attribute.startswith("_"):
                assert inspect.getdoc(value), f"{name}.{attribute}"


def test_the_names_of_the_pages_exist():
    for page in ("secagg.md", "secagg-wire.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        for name in re.findall(r"`([A-Z][A-Za-z]+[a-z][A-Z][A-Za-z]*)`", text):
            assert hasattr(zerosum.secagg, name), f"{name} of {page}"


def test_every_module_needs_numpy_and_cryptography_alone():
    """In a process where nothing else can be imported."""
    code = f"""
import sys
allowed = {{"zerosum", "numpy", "cryptography", "_cffi_backend"}} | set(sys.stdlib_module_names)

class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        ours = not name.startswith("zerosum.") or name.startswith("zerosum.secagg")
        if top not in allowed or not ours:
            raise ImportError(f"{{name}} is not for secure sums")

for name in [m for m in sys.modules if m.split(".")[0] in ("torch", "flwr", "pydantic", "scipy")]:
    raise SystemExit(name + " was there before")
sys.meta_path.insert(0, Refuse())
for module in {MODULES!r}:
    __import__(module)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
