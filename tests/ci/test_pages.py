"""Pages that list things list all of them."""

import re
from pathlib import Path

import check_docs

ROOT = Path(__file__).parents[2]
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_the_index_names_every_page() -> None:
    docs = ROOT / "docs"
    pages = {str(p.relative_to(docs)) for p in check_docs.pages(ROOT) if docs in p.parents}
    assert {page for page in pages - {"index.md"} if f"({page})" not in INDEX} == set()


def test_each_page_of_the_index_has_one_line() -> None:
    links = re.findall(r"^\| \[[^]]*\]\(([^)]*)\)", INDEX, re.MULTILINE)
    assert len(links) == len(set(links))


def test_every_design_page_says_why_not_otherwise() -> None:
    for page in (ROOT / "docs" / "design").glob("*.md"):
        assert "## Why not otherwise" in page.read_text(encoding="utf-8"), page.name


def test_the_readme_is_a_first_hour() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def named_functions(page: str) -> list[tuple[str, str]]:
    """Return (file, name) of each "`part/file.py`: `Class.method`, `function`" on a page."""
    pairs = []
    for file, names in re.findall(r"`(\w+/[\w/]+\.py)`: ((?:`[\w.]+`(?:, )?)+)", page):
        pairs += [(file, name.split(".")[-1]) for name in re.findall(r"`([\w.]+)`", names)]
    return pairs


def test_one_round_names_functions_that_are_in_their_files() -> None:
    page = (ROOT / "docs" / "design" / "one-round.md").read_text(encoding="utf-8")
    pairs = named_functions(page)
    assert len(pairs) > 40
    for file, name in pairs:
        part, _, rest = file.partition("/")
        source = (ROOT / part / "zerosum" / part / rest).read_text(encoding="utf-8")
        assert re.search(rf"^\s*(?:def|class) {name}\b", source, re.MULTILINE), f"{file}: {name}"
