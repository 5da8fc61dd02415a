"""HTML that cannot be forgotten to be escaped: plain text is escaped, only ``Html`` is not."""

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"img", "meta"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def join(parts: Iterable[str]) -> Html:
    """Join parts, escaping those that are plain text."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def tag(element: str, /, *children: str, **attributes: str | None) -> Html:
    """Return an element; attributes that are None are left out, underscores become hyphens.

    A trailing underscore, as in ``class_``, is dropped.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    end = "" if element in _VOID else f"</{element}>"
    return Html(f"<{element}{written}>{join(children)}{end}")


def table(
    headers: Iterable[str], rows: Iterable[Iterable[str]], *, class_: str | None = None
) -> Html:
    """Return a table whose first column names the row; a phone stacks it (``data-label``)."""
    titles = list(headers)
    head = tag("tr", *(tag("th", title, scope="col", role="columnheader") for title in titles))
    body = []
    for row in rows:
        first, *others = row
        cells = [tag("th", first, scope="row", role="rowheader")]
        cells += [
            tag("td", tag("div", cell), data_label=title, role="cell")
            for title, cell in zip(titles[1:], others, strict=True)
        ]
        body.append(tag("tr", *cells, role="row"))
    return tag(
        "table",
        tag("thead", head, role="rowgroup"),
        tag("tbody", *body, role="rowgroup"),
        class_=class_,
        role="table",
    )
