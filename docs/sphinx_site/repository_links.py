"""Links of pages that lead out of docs/: on GitHub they lead to the file, in the site to a copy.

Pages outside docs/ are copied into docs/project under a name that tells their folder. A link to any
other file needs no help: MyST offers the file for download. A folder is linked by its README.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

COPIED = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "examples/flower-digits/README.md",
    "examples/flower-pytorch/README.md",
)

_LINK = re.compile(
    r"(?P<before>\]\(|(?:src|href)=\")(?P<path>[^)\s\"#]*)(?P<anchor>#[^)\s\"]*)?(?=[\s)\"])"
)
_FENCE = re.compile(r"(^```.*?^```[ ]*$)", re.MULTILINE | re.DOTALL)


def copy_name(path: str) -> str:
    """Return the name of the copy of one of ``COPIED``: of a README its folder's, in lower case."""
    folder, _, name = path.rpartition("/")
    return (folder.rpartition("/")[2] or name.removesuffix(".md")).lower() + ".md"


def copied_pages(docs: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each copy, with links that are right where the copy lies."""
    for path in COPIED:
        page = docs.parent / path
        text = page.read_text(encoding="utf-8")
        yield copy_name(path), rewritten(text, page, docs, docs / "project")


def rewritten(text: str, page: Path, docs: Path, folder: Path | None = None) -> str:
    """Return a page with links that are right in the site.

    Parameters
    ----------
    text : str
        The page, in Markdown.
    page : Path
        Where it lies in the repository: what its links are relative to.
    docs : Path
        The site's sources.
    folder : Path, optional
        Where it lies in the site, if elsewhere.

    Returns
    -------
    str
        Fenced code is left as it is, and so are links that were right.
    """
    root, folder = docs.parent, folder or page.parent
    copies = {(root / path).resolve(): docs / "project" / copy_name(path) for path in COPIED}

    def lead(match: re.Match[str]) -> str:
        path = match["path"]
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        target = (page.parent / path).resolve()
        target = target / "README.md" if target.is_dir() else target
        target = copies.get(target, target)
        # A file keeps its link as it was written, for the build to complain of in those words.
        if folder == page.parent and target == (page.parent / path).resolve():
            return match[0]
        return match["before"] + os.path.relpath(target, folder) + (match["anchor"] or "")

    parts = _FENCE.split(text)
    return "".join(p if _FENCE.fullmatch(p) else _LINK.sub(lead, p) for p in parts)
