"""Public names are those of each part's ``__all__``; pages and examples import no others."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = [
    "zerosum.secagg",
    "zerosum.client",
    "zerosum.server",
    "zerosum.simulations",
    "zerosum.simulations.attacks",
    "zerosum.simulations.data",
    "zerosum.analytics",
]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]


@pytest.mark.parametrize("part", PARTS)
def test_every_public_name_can_be_imported_and_is_listed(part: str) -> None:
    module = importlib.import_module(part)
    assert module.__all__
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None, name


@pytest.mark.parametrize("part", PARTS)
def test_a_name_that_is_not_public_is_an_attribute_error(part: str) -> None:
    with pytest.raises(AttributeError):
        importlib.import_module(part).no_such_name  # noqa: B018


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS[1:])
def test_a_part_is_imported_without_torch(part: str) -> None:
    code = f"import sys, {part}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def imports_of(text: str) -> list[tuple[str, str]]:
    """Return (module, name) of every import of this project in Python code or a page."""
    found = []
    for match in re.finditer(
        r"^[ +>]*(from zerosum[\w.]* import (?:\([^)]*\)|[^\n(]+))", text, re.M
    ):
        (node,) = ast.parse(match[1]).body
        assert isinstance(node, ast.ImportFrom)
        found += [(node.module or "", alias.name) for alias in node.names]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_and_examples_import_public_names_alone(page: Path) -> None:
    if "design" in page.parts:
        pytest.skip("design pages speak of modules")
    for module, name in imports_of(page.read_text(encoding="utf-8")):
        assert module in PARTS, f"{module} is no part: import {name} from one of {PARTS}"
        assert name in importlib.import_module(module).__all__, f"{module} has no public {name}"
