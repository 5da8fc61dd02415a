"""What the documentation's site has beyond the pages of docs/."""

import ast
import importlib
import re
from pathlib import Path

import click
import pytest
import typer

from sphinx_site import (
    api_pages,
    command_page,
    contents,
    references,
    repository_links,
    sequence,
)
from zerosum.simulations.commands.main import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_modules_with_pages_are_the_public_ones() -> None:
    source = (ROOT / "tests" / "test_public_names.py").read_text(encoding="utf-8")
    (parts,) = re.findall(r"^PARTS = (\[.*?^\])", source, re.M | re.S)
    assert set(api_pages.MODULES) == set(ast.literal_eval(parts))


def test_each_public_name_is_described_once() -> None:
    text = "".join(text for _, text in api_pages.pages())
    entry = r"^\.\. (?:auto|py:)(?:class|data|exception|function|module):: ([\w.]+)"
    described = [name for name in re.findall(entry, text, re.M) if name not in api_pages.MODULES]
    public = [f"{m}.{n}" for m in api_pages.MODULES for n in importlib.import_module(m).__all__]
    # A module among the names is described where it is defined, too.
    assert sorted(name for name in described if name in public) == sorted(public)


def test_pages_of_names_differ_on_file_systems_without_case() -> None:
    names = [name.lower() for name, _ in api_pages.pages()]
    assert len(names) == len(set(names))


def visible(command: click.Command, path: str) -> list[str]:
    own = getattr(command, "commands", {})
    below = [visible(child, f"{path} {name}") for name, child in own.items() if not child.hidden]
    return [path, *(each for paths in below for each in paths)]


def test_every_command_and_option_is_on_the_page_of_commands() -> None:
    page, root = command_page.page(), typer.main.get_command(app)
    paths = visible(root, "zerosum")[1:]
    assert {"zerosum run", "zerosum keys new"} <= set(paths)
    assert sorted(command_page.command_paths()) == sorted(paths)
    assert set(paths) <= set(re.findall(r"^#+ (.*)$", page, re.M))
    sections = dict(re.findall(r"^#+ (zerosum [\w -]+)\n(.*?)(?=^#|\Z)", page, re.M | re.S))
    for path in paths:
        command = root
        for name in path.split()[1:]:
            command = command.commands[name]  # type: ignore[attr-defined]
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert f"`{parameter.opts[0]}`" in sections[path], (path, parameter.opts)


@pytest.mark.parametrize(
    ("link", "led"),
    [
        ("../README.md", "project/readme.md"),
        ("../CONTRIBUTING.md#a-task", "project/contributing.md#a-task"),
        ("../examples/flower-digits", "project/flower-digits.md"),
        ("../examples/my_task.py", "../examples/my_task.py"),
        ("privacy.md#choosing", "privacy.md#choosing"),
        ("#here", "#here"),
        ("https://flower.ai", "https://flower.ai"),
    ],
)
def test_a_link_out_of_docs_leads_to_the_sites_copy(link: str, led: str) -> None:
    text = f'[a]({link}) <img src="{link}">\n```\n[a]({link})\n```\n'
    changed = repository_links.rewritten(text, DOCS / "page.md", DOCS)
    assert changed == f'[a]({led}) <img src="{led}">\n```\n[a]({link})\n```\n'


def test_links_of_copies_lead_to_what_there_is() -> None:
    copies = dict(repository_links.copied_pages(DOCS))
    assert len(copies) == len(repository_links.COPIED)
    for text in copies.values():
        text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
        for path in re.findall(r"\]\(([^):#]+)(?:#[^)]*)?\)", text):
            target = DOCS / "project" / path
            made = target.parent == DOCS / "project" and target.name in copies
            assert made or target.resolve().is_file(), path


def test_the_contents_hold_every_page_of_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    text = contents.with_contents(repository_links.rewritten(index, DOCS / "index.md", DOCS))
    trees = re.findall(r"```\{toctree\}\n:hidden:\n:caption: ([^\n]*)\n\n(.*?)```", text, re.S)
    listed = [page for _, pages in trees for page in pages.split()]
    rows = re.findall(r"^\| \[[^]]*\]\(([^)]*)\)", index, re.M)
    assert len(listed) == len(set(listed)) == len(rows) + 1 + len(api_pages.MODULES)
    assert {"project/readme", "reference/commands", "glossary"} <= set(listed)


def test_every_row_of_the_glossary_is_a_term() -> None:
    page = (DOCS / "glossary.md").read_text(encoding="utf-8")
    text = contents.with_terms(page)
    assert text.count("\n  ") == page.count("\n| ") - 1
    assert "\ndropout\n  A client that vanished" in text
    assert "| term |" not in text


def test_every_message_of_a_sequence_diagram_is_drawn() -> None:
    page = (DOCS / "design" / "one-round.md").read_text(encoding="utf-8")
    drawn = sequence.with_pictures(page)
    assert "mermaid" not in drawn
    for words in re.findall(r">>\w+: (.*)", page):
        assert f">{words}</text>" in drawn


def test_a_line_of_a_diagram_that_is_not_understood_is_refused() -> None:
    with pytest.raises(ValueError, match="not understood: 'loop forever'"):
        sequence.with_pictures("```mermaid\nsequenceDiagram\nloop forever\n```\n")


@pytest.mark.parametrize(
    ("shown", "plain"),
    [
        ("(a: ~typing.Annotated[int, Ge(ge=0)] = 1)", "(a: int = 1)"),
        ("Annotated[dict[str, int], X(f[1], (2, 3))] | None", "dict[str, int] | None"),
        ("(a: int)", "(a: int)"),
        (None, None),
    ],
)
def test_signatures_are_shown_without_bounds(shown: str | None, plain: str | None) -> None:
    assert references.plain_type(shown) == plain


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("zerosum.secagg.parties.client.ClientParty", True),
        ("Session", True),
        ("numpy.ndarray", True),
        ("zerosum.secagg.Sesion", False),
        ("no_such_package.thing", False),
    ],
)
def test_a_reference_to_nothing_is_told_from_one_to_what_has_no_page(
    name: str, there: bool
) -> None:
    assert references.exists(name) is there
