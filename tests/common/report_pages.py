"""Pages of reports as a reader gets them: their text, tags and figures."""

import base64
import hashlib
import re
from html.parser import HTMLParser

INLINE = ("code", "strong", "small")
VOID = {"meta", "img"}
UNREAD = ("style", "script", "text")
"""Elements whose text is no sentence of the page: numbers beside an axis too."""


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
        if self.open and self.open[-1] not in UNREAD and "nav" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def foreign_scripts(self) -> list[str]:
        """Return the scripts that the page's policy does not name by their hash."""
        policies = [a["content"] or "" for tag, a in self.tags if tag == "meta" and "content" in a]
        policy = next(each for each in policies if each.startswith("default-src"))
        scripts = re.findall(r"<script>(.*?)</script>", self.html, flags=re.S)
        assert len(scripts) == sum(tag == "script" for tag, _ in self.tags)
        return [each for each in scripts if f"script-src '{hash_of(each)}'" not in policy]

    def headings(self, level: str = "h3") -> list[str]:
        pattern = rf"<{level}>(.*?)</{level}>"
        return re.findall(pattern, self.html)

    def alts(self) -> list[str]:
        return [a["aria-label"] or "" for _, a in self.tags if a.get("role") == "img"]


def hash_of(script: str) -> str:
    """Return the hash of a script as a content security policy has it (W3C CSP Level 3, 2.3.1)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


class Lines(HTMLParser):
    """A page as lines of text; a figure is its description and the colours it uses."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines: list[str] = [""]
        self.skipped = False
        self.within, self.colours = 0, set[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.within or tag == "svg":
            self.within += tag == "svg"
            self.colours |= set(re.findall(r"var[(]--(\w+)", " ".join(v or "" for _, v in attrs)))
        self.skipped = tag in UNREAD[:2]
        if tag not in INLINE and self.within <= (tag == "svg"):
            self.lines.append("")
        described = dict(attrs).get("aria-label") or dict(attrs).get("alt")
        if described:
            self.lines[-1] = f"[{tag}] {described} "

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.skipped = False

    def handle_endtag(self, tag: str) -> None:
        self.skipped = False
        self.within -= tag == "svg"
        if tag == "text":
            self.lines[-1] += " "
        if tag == "svg" and not self.within:
            self.lines[-1] += " " + " ".join(sorted(self.colours))
            self.colours.clear()
        if tag not in INLINE and not self.within:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            self.lines[-1] += re.sub(r"\s+", " ", data)


def text_of(page: str) -> str:
    """Return a page as text, a line an element, with what each figure shows and its colours."""
    lines = (re.sub(r"\s+", " ", line).strip() for line in Lines(page).lines)
    return "\n".join(line for line in lines if line) + "\n"
