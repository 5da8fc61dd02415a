"""The site's contents: read from the tables of index.md, so that there is one list of pages."""

import re

from .api_pages import MODULES

_SECTION = re.compile(r"^## (?P<title>.+?)\n(?P<body>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| \[[^\]]*\]\((?P<path>[^)#]+)\)", re.MULTILINE)

_MADE = [
    ("reference/commands.md", "zerosum", "every command of the command line, with its options"),
    *((f"reference/{module}.rst", module, MODULES[module]) for module in MODULES),
]
"""Pages of the site alone: file, title and what it is for."""

REFERENCE = "Reference"
"""The section that they are in."""


def with_contents(text: str) -> str:
    """Return the first page with rows for the made pages, and a hidden tree a section."""
    return _SECTION.sub(_section, text)


def _section(match: re.Match[str]) -> str:
    title, body = match["title"], match["body"]
    if title == REFERENCE:
        rows = "".join(f"| [{name}]({path}) | {what} |\n" for path, name, what in _MADE)
        head, rule, rest = body.partition("|---|---|\n")
        body = head + rule + rows + rest
    paths = [row["path"].rpartition(".")[0] for row in _ROW.finditer(body)]
    if not paths:
        return match[0]
    tree = "\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *paths, "```"])
    return f"## {title}\n{body.rstrip()}\n\n{tree}\n\n"
