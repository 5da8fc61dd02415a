"""The site's contents, and its glossary: read from tables that GitHub shows as they are."""

import re

from .api_pages import MODULES

_SECTION = re.compile(r"^## (?P<title>.+?)\n(?P<body>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| \[[^\]]*\]\((?P<path>[^)#]+)\)", re.MULTILINE)

_FILE_NAME = re.compile(r"^\| \[[\w/.-]+\.md\]", re.MULTILINE)
"""A link that is called after its file: in the site it is called after its page."""

_GLOSSARY = re.compile(r"^\| term \|.*\n\|---.*\n(?P<rows>(?:\|.*\n?)+)", re.MULTILINE)

_MADE = [
    ("reference/commands.md", "zerosum", "every command of the command line, with its options"),
    *((f"reference/{module}.rst", module, MODULES[module]) for module in MODULES),
]
"""Pages of the site alone: file, title and what it is for."""

FIRST, REFERENCE = "First run", "Reference"
"""The sections of the example's report, and of the made pages."""

_EXAMPLE = '| <a href="example-report.html">A report</a> | what a run leaves, as an example |\n'


def with_contents(text: str) -> str:
    """Return the first page with rows for the made pages, and a hidden tree a section."""
    return _SECTION.sub(_section, text)


def with_terms(text: str) -> str:
    """Return the glossary with its table of term, meaning and source as terms with anchors."""
    return _GLOSSARY.sub(_terms, text)


def _terms(match: re.Match[str]) -> str:
    lines = ["```{glossary}"]
    for row in match["rows"].splitlines():
        term, meaning, source = (cell.strip() for cell in row.strip("|").split("|"))
        lines += [term, f"  {meaning}" + (f" ({source})" if source else ""), ""]
    return "\n".join([*lines, "```"]) + "\n"


def _section(match: re.Match[str]) -> str:
    title, body = match["title"], match["body"]
    if title == REFERENCE:
        rows = "".join(f"| [{name}]({path}) | {what} |\n" for path, name, what in _MADE)
        head, rule, rest = body.partition("|---|---|\n")
        body = head + rule + rows + rest
    if title == FIRST:
        body = body.rstrip() + "\n" + _EXAMPLE
    body = _FILE_NAME.sub("| []", body)
    paths = [row["path"].rpartition(".")[0] for row in _ROW.finditer(body)]
    if not paths:
        return match[0]
    tree = "\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *paths, "```"])
    return f"## {title}\n{body.rstrip()}\n\n{tree}\n\n"
