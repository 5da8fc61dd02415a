"""Find generated pages that are out of date, links that lead nowhere, and files that are not there.

Checked are the pages that code writes, every relative link of every Markdown page with its anchor,
and every ``path/file.py`` that a page names in backticks: a page that names a file which was moved
misleads more than none.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PARTS = ("secagg", "client", "server", "simulations")
BUILT = ("_build", "project", "reference")
"""Folders of docs/ that the site's build makes: no page of theirs is written by hand."""

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|(?:src|href)=\"([^\"]+)\"")
FILE = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|toml|md|csv|json|ini|cff))`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)


def generated() -> Iterator[str]:
    """Yield a line for each generated page that is not what the code says."""
    from zerosum.simulations.commands.configuration_page import keys_page
    from zerosum.simulations.commands.readme_figures import FIGURES
    from zerosum.simulations.commands.readme_figures import pages as figure_pages

    sys.path.insert(0, str(DOCS))
    import wire_example  # it lies beside the page that it writes

    pages = {"configuration.md": keys_page, "secagg-wire-example.md": wire_example.page}
    for name, page in pages.items():
        if (DOCS / name).read_text(encoding="utf-8") != page():
            yield f"docs/{name} is out of date: run `make docs`"
    for path, text in figure_pages(ROOT):
        if (ROOT / path).read_text(encoding="utf-8") != text:
            yield f"{path} has other figures than {FIGURES}: run `make docs`"


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", t) for t in HEADING.findall(FENCE.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path, root: Path) -> Iterator[str]:
    """Yield a line for each relative link of a page that leads nowhere."""
    text = page.read_text(encoding="utf-8")
    for match in LINK.finditer(FENCE.sub("", text)):
        link = match[1] or match[2]
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        where = f"{page.relative_to(root)}: the link {link}"
        if not target.exists():
            yield f"{where} leads to no file"
        elif anchor and (
            target.suffix != ".md" or anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            yield f"{where} leads to no heading"


def missing_files(page: Path, root: Path) -> Iterator[str]:
    """Yield a line for each file that a page names and that is not there.

    ``client/protocol/stages.py`` is short for ``client/zerosum/client/protocol/stages.py``.
    """
    for name in FILE.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        part, _, rest = name.partition("/")
        long = [root / part / "zerosum" / part / rest] if part in PARTS else []
        if not any(path.exists() for path in (root / name, page.parent / name, *long)):
            yield f"{page.relative_to(root)}: there is no file {name}"


def pages(root: Path) -> list[Path]:
    """Return all Markdown pages of the repository, of tests and examples too."""
    folders = ("docs", "examples", "tests", ".github")
    below = (page for folder in folders for page in (root / folder).rglob("*.md"))
    built = [root / "docs" / folder for folder in BUILT]
    return [*root.glob("*.md"), *(p for p in below if not {*built} & {*p.parents})]


def problems(root: Path = ROOT) -> list[str]:
    """Return a line for everything that is wrong in the written pages."""
    design = root / "docs" / "design"
    return [line for page in pages(root) for line in broken_links(page, root)] + [
        line for page in sorted(design.glob("*.md")) for line in missing_files(page, root)
    ]


def main() -> None:
    """Print what is wrong, and exit with 1 if anything is."""
    found = [*generated(), *problems()]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
