"""What the documentation's site has beyond the pages of docs/, as a Sphinx extension.

Before Sphinx looks for pages, ``docs/project`` is filled with the pages of the repository that lie
elsewhere, and ``docs/reference`` with pages of every public name and every command. Both folders
are made anew by each build and ignored by git.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from . import (
    api_pages,
    command_page,
    contents,
    example_report,
    references,
    repository_links,
    sequence,
)

if TYPE_CHECKING:  # the checks of a built site, and the tests, do without Sphinx
    from sphinx.application import Sphinx

PROJECT, REFERENCE = "project", "reference"


def _make_pages(app: "Sphinx") -> None:
    """Write all pages that are made, as the pages of folders that are made anew."""
    docs = Path(app.srcdir)
    for folder in (PROJECT, REFERENCE):
        shutil.rmtree(docs / folder, ignore_errors=True)
        (docs / folder).mkdir()
    pages = {
        **{f"{PROJECT}/{name}": text for name, text in repository_links.copied_pages(docs)},
        **{f"{REFERENCE}/{name}": text for name, text in api_pages.pages()},
        f"{REFERENCE}/commands.md": command_page.page(),
    }
    for name, text in pages.items():
        (docs / name).write_text(text, encoding="utf-8")


def _change_source(app: "Sphinx", name: str, source: list[str]) -> None:
    """Change a page as it is read: what leads out of docs/, and the contents of the first page."""
    docs = Path(app.srcdir)
    if name.split("/")[0] not in (PROJECT, REFERENCE):
        source[0] = repository_links.rewritten(source[0], docs / f"{name}.md", docs)
    source[0] = sequence.with_pictures(source[0])
    if name == "index":
        source[0] = contents.with_contents(source[0])
    if name == "glossary":
        source[0] = contents.with_terms(source[0])


def _add_report(app: "Sphinx", failure: Exception | None) -> None:
    """Put the example's report beside the finished pages, as it is."""
    if failure is None and app.builder.format == "html":
        example_report.write(Path(app.outdir) / "example-report.html")


def setup(app: "Sphinx") -> dict[str, bool]:
    """Register the events."""
    app.connect("builder-inited", _make_pages)
    app.connect("source-read", _change_source)
    app.connect("missing-reference", references.resolve)
    app.connect("autodoc-process-signature", references.without_bounds)
    app.connect("build-finished", _add_report)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
