"""What is found wrong in the documentation's built site, each beside a site where it is right."""

import zlib
from pathlib import Path

import pytest

import check_site


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "page.html").write_text('<h1 id="there">A page</h1><a href="https://else.example">')
    check_site.page_of.cache_clear()
    return tmp_path


def write(site: Path, html: str, name: str = "index.html") -> None:
    (site / name).write_text(html)


@pytest.mark.parametrize(
    "html",
    [
        '<script src="_static/a.js?v=1"></script>',
        '<link rel="stylesheet" href="_static/a.css">',
        '<link rel="canonical" href="https://else.example/">',
        '<img src="data:image/png;base64,AA//">',
        '<a href="https://else.example">asked for</a>',
    ],
)
def test_what_is_not_loaded_or_is_local_is_right(site: Path, html: str) -> None:
    write(site, html)
    assert list(check_site.loads_from_elsewhere(site)) == []


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://else.example/a"></script>',
        '<link rel="stylesheet" href="https://else.example/a">',
        '<link rel="preconnect" href="//else.example/a">',
        '<img src="https://else.example/a">',
        '<iframe src="https://else.example/a">',
        '<style>@import "https://else.example/a";</style>',
        '<p style="background: url(https://else.example/a)">',
    ],
)
def test_what_is_loaded_from_another_address_is_found(site: Path, html: str) -> None:
    write(site, html)
    (line,) = check_site.loads_from_elsewhere(site)
    assert line.startswith("index.html loads ")
    assert line.endswith("//else.example/a")


def test_a_style_sheet_that_loads_from_another_address_is_found(site: Path) -> None:
    (site / "a.css").write_text("a { src: url('https://else.example/font') } b { src: url(x) }")
    assert list(check_site.loads_from_elsewhere(site)) == ["a.css loads https://else.example/font"]


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("page.html", ""),
        ("page.html#there", ""),
        ("#", ""),
        ("gone.html", "no file"),
        ("page.html#gone", "no anchor"),
        ("#gone", "no anchor"),
    ],
)
def test_links_within_the_site_lead_somewhere(site: Path, link: str, why: str) -> None:
    write(site, f'<a href="{link}">')
    expected = [f"index.html: the link {link} leads to {why}"] if why else []
    assert list(check_site.dead_ends(site)) == expected


def test_a_public_name_that_no_page_describes_is_found() -> None:
    lines = b"part.Here py:class 1 part.html#$ -\npart.word std:term -1 part.html#$ -\n"
    inventory = b"# v2\n# Project: a\n# Version: 1\n# zlib\n" + zlib.compress(lines)
    described = list(check_site.described_names(inventory))
    assert described == ["part.Here"]
    assert list(check_site.missing_names(described, ["part.Here"])) == []
    (line,) = check_site.missing_names(described, ["part.Here", "part.word"])
    assert line.startswith("part.word is public, and no page")


def test_a_command_without_a_heading_is_found() -> None:
    page = '<h2>zerosum <code>run</code><a class="headerlink"></a></h2>'
    assert list(check_site.missing_commands(page, ["zerosum run"])) == []
    (line,) = check_site.missing_commands(page, ["zerosum run", "zerosum go"])
    assert line.startswith("`zerosum go` has no heading")
