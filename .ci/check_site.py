"""Find what the documentation's built site lacks, and what it would load from elsewhere.

``python .ci/check_site.py docs/_build/html``, after a build. Every name of each public module's
``__all__`` has to be in the site's inventory, every command has to have a heading, every link
within the site has to lead to a page and an anchor that are there, and no page may load anything
from another address: readers of a page about privacy are not told on to a font's host.
"""

import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent

LOADING = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
"""Attributes whose address a browser loads without being asked."""

NAMING = ("canonical", "alternate", "license", "author", "help", "next", "prev", "search")
"""Relations of ``link`` that only name an address."""

STYLE_ADDRESS = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)")


class Page(HTMLParser):
    """What a page loads, where it leads, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = {"", "top"}
        self._styles = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take down an element."""
        values = {name: value or "" for name, value in attrs}
        self._styles = tag == "style"
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.loaded += STYLE_ADDRESS.findall(values.get("style", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and set(values.get("rel", "").split()) <= set(NAMING):
            return
        self.loaded += [values[name] for name in LOADING.get(tag, ()) if name in values]

    def handle_data(self, data: str) -> None:
        """Take down the addresses in a style sheet."""
        if self._styles:
            self.loaded += STYLE_ADDRESS.findall(data)


@cache
def page_of(path: Path) -> Page:
    """Return a page, read once."""
    return Page(path.read_text(encoding="utf-8"))


def missing_names(described: Iterable[str], public: Iterable[str]) -> Iterator[str]:
    """Yield a line for each public name that is not described."""
    for name in sorted({*public} - {*described}):
        yield f"{name} is public, and no page of the site describes it"


def missing_commands(page: str, commands: Iterable[str]) -> Iterator[str]:
    """Yield a line for each command without a heading on the page of commands."""
    headings = {re.sub(r"<[^>]*>", "", text) for text in re.findall(r"<h\d>(.*?)<a ", page)}
    for command in sorted({*commands} - headings):
        yield f"`{command}` has no heading on the page of commands"


def loads_from_elsewhere(site: Path) -> Iterator[str]:
    """Yield a line for each address on another host that a page or style sheet loads."""
    for path in sorted(site.rglob("*.html")):
        for address in page_of(path).loaded:
            if re.match(r"(?:[a-z]+:)?//", address):
                yield f"{path.relative_to(site)} loads {address}"
    for path in sorted(site.rglob("*.css")):
        for address in STYLE_ADDRESS.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)} loads {address}"


def dead_ends(site: Path) -> Iterator[str]:
    """Yield a line for each link of a page to a file or anchor of the site that is not there."""
    for path in sorted(site.rglob("*.html")):
        for link in page_of(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path.parent / unquote(parts.path) if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            where = f"{path.relative_to(site)}: the link {link}"
            if not target.is_file():
                yield f"{where} leads to no file"
            elif (
                target.suffix == ".html" and unquote(parts.fragment) not in page_of(target).anchors
            ):
                yield f"{where} leads to no anchor"


def described_names(inventory: bytes) -> Iterator[str]:
    """Yield the Python names of a Sphinx inventory: four lines of head, then compressed lines."""
    body = zlib.decompress(inventory.split(b"\n", 4)[4]).decode("utf-8")
    for line in body.splitlines():
        name, kind = line.split()[:2]
        if kind.startswith("py:"):
            yield name


def problems(site: Path) -> list[str]:
    """Return a line for everything that is wrong in a built site."""
    sys.path.insert(0, str(ROOT / "docs"))
    from sphinx_site.api_pages import public_names
    from sphinx_site.command_page import command_paths

    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    return [
        *missing_names(described_names((site / "objects.inv").read_bytes()), public_names()),
        *missing_commands(commands, command_paths()),
        *loads_from_elsewhere(site),
        *dead_ends(site),
    ]


def main(site: str) -> None:
    """Print what is wrong, or where the site begins; exit with 1 if anything is wrong."""
    found = problems(Path(site))
    print("\n".join(found or [f"The site: {site}/index.html"]))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main(sys.argv[1])
