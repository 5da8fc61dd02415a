"""Errors found in pages: links, anchors and names of files."""

from pathlib import Path

import pytest

import check_docs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "design").mkdir(parents=True)
    (tmp_path / "client" / "zerosum" / "client").mkdir(parents=True)
    (tmp_path / "client" / "zerosum" / "client" / "task.py").touch()
    (tmp_path / "docs" / "other.md").write_text("# A title, with `code`\n")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "[a](docs/other.md)",
        "[a](docs/other.md#a-title-with-code)",
        "[a](https://nowhere.example/x)",
        "# Here\n[a](#here)",
        "```\n[a](gone.md)\n```",
    ],
)
def test_links_that_lead_somewhere_are_right(root: Path, text: str) -> None:
    (root / "README.md").write_text(text)
    assert check_docs.problems(root) == []


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("docs/gone.md", "no file"),
        ("docs/other.md#gone", "no heading"),
        ("#gone", "no heading"),
    ],
)
def test_links_that_lead_nowhere_are_found(root: Path, link: str, why: str) -> None:
    (root / "README.md").write_text(f"[a]({link})")
    assert check_docs.problems(root) == [f"README.md: the link {link} leads to {why}"]


def test_a_link_with_a_title_is_a_link(root: Path) -> None:
    (root / "README.md").write_text('[a](docs/gone.md "its title")')
    assert check_docs.problems(root) == ["README.md: the link docs/gone.md leads to no file"]


def test_an_anchor_in_a_folder_leads_nowhere(root: Path) -> None:
    (root / "README.md").write_text("[a](docs#gone)")
    assert check_docs.problems(root) == ["README.md: the link docs#gone leads to no heading"]


def test_a_picture_that_is_not_there_is_found(root: Path) -> None:
    (root / "README.md").write_text('<img src="docs/gone.svg">')
    assert check_docs.problems(root) == ["README.md: the link docs/gone.svg leads to no file"]


def test_a_design_page_names_files_that_exist(root: Path) -> None:
    page = root / "docs" / "design" / "map.md"
    page.write_text("`client/task.py`, `client/zerosum/client/task.py`, `docs/other.md`")
    assert check_docs.problems(root) == []
    page.write_text("`client/gone.py`")
    assert check_docs.problems(root) == ["docs/design/map.md: there is no file client/gone.py"]


def test_pages_that_the_sites_build_made_are_not_read(root: Path) -> None:
    for folder in (*check_docs.BUILT, "tutorials"):
        (root / "docs" / folder).mkdir()
        (root / "docs" / folder / "page.md").write_text("[a](gone.md)")
    assert check_docs.problems(root) == [
        "docs/tutorials/page.md: the link gone.md leads to no file"
    ]
