"""Pages of reports as a reader gets them: their text, tags and figures."""

import re
from html.parser import HTMLParser

INLINE = ("code", "strong", "small")
VOID = {"meta", "img"}


class Page(HTMLParser):
    """The page as read: its text, its tags with attributes, and whether they nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def headings(self, level: str = "h3") -> list[str]:
        pattern = rf"<{level}>(.*?)</{level}>"
        return re.findall(pattern, self.html)

    def alts(self) -> list[str]:
        return [a["aria-label"] or "" for tag, a in self.tags if tag == "svg"]


class Lines(HTMLParser):
    """A page as lines of text; a figure is its description and the colours it uses."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines: list[str] = [""]
        self.skipped = False
        self.feed(re.sub(r"(<svg [^>]*>)(.*?)</svg>", _svg_colours, page, flags=re.S))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.skipped = tag == "style"
        if tag not in INLINE:
            self.lines.append("")
        described = dict(attrs).get("aria-label") or dict(attrs).get("alt")
        if described:
            self.lines[-1] = f"[{tag}] {described} "

    def handle_endtag(self, tag: str) -> None:
        self.skipped = False
        if tag not in INLINE:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            self.lines[-1] += re.sub(r"\s+", " ", data)


def _svg_colours(found: re.Match[str]) -> str:
    colours = sorted(set(re.findall(r"var[(]--(\w+)", found[2])))
    return f"{found[1]}{' '.join(colours)}</svg>"


def text_of(page: str) -> str:
    """Return a page as text, a line an element, with what each figure shows and its colours."""
    lines = (line.strip() for line in Lines(page).lines)
    return "\n".join(line for line in lines if line) + "\n"
