"""What every report has: one file that loads nothing, its style, sections of pictures."""

from collections.abc import Sequence
from importlib.resources import files

from zerosum.simulations.report.drawing import Picture
from zerosum.simulations.report.html import Html, join, tag

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def framed(title: str, *main: str) -> Html:
    """Return a whole page: its title and what is in it."""
    style = files("zerosum.simulations.report").joinpath("page.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", f"{title} – zerosum"),
        tag("style", Html(style)),
    )
    body = tag("body", tag("main", *main))
    return join([Html("<!doctype html>\n"), tag("html", head, body, lang="en")])


def plots(title: str, pictures: Sequence[Picture], note: str = "") -> Html:
    """Return a section of pictures; nothing where there are none."""
    if not pictures:
        return Html()
    return tag(
        "section",
        tag("h2", title),
        tag("p", note, class_="muted") if note else "",
        tag("div", *map(_plot, pictures), class_="plots"),
    )


def details(title: str, *children: str) -> Html:
    """Return what is folded away until it is asked for."""
    return tag("details", tag("summary", title), *children)


def _plot(picture: Picture) -> Html:
    return tag(
        "figure",
        tag("h3", picture.title),
        picture.svg,
        tag("figcaption", picture.caption),
        class_="plot",
    )
