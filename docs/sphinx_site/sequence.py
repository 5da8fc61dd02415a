"""Draw a page's sequence diagrams, which GitHub draws by Mermaid, as SVG without any script.

Understood is what the pages use: participants with a name, and messages ``A->>B: text`` (a full
line) or ``A-->>B: text`` (a dashed one).
"""

import html
import re

_DIAGRAM = re.compile(r"^```mermaid\nsequenceDiagram\n(?P<lines>.*?)^```$", re.M | re.S)
_PARTICIPANT = re.compile(r" *participant (\w+) as (.+)")
_MESSAGE = re.compile(r" *(\w+)(--?)>>(\w+): (.+)")

_COLUMN_PX, _ROW_PX, _HEAD_PX, _MARGIN_PX = 195, 42, 60, 75
_ARROW_PX = 8


def with_pictures(text: str) -> str:
    """Return a page with each of its sequence diagrams as an inline SVG.

    Raises
    ------
    ValueError
        At a line of a diagram that is not understood.
    """
    return _DIAGRAM.sub(lambda match: _picture(match["lines"].splitlines()), text)


def _picture(lines: list[str]) -> str:
    columns: dict[str, int] = {}
    heads: list[str] = []
    rows: list[str] = []
    for line in lines:
        if found := _PARTICIPANT.fullmatch(line):
            columns[found[1]] = x = _MARGIN_PX + _COLUMN_PX * len(columns)
            heads.append(_words(x, 20, found[2], "head"))
        elif found := _MESSAGE.fullmatch(line):
            y = _HEAD_PX + _ROW_PX * len(rows)
            ends = columns[found[1]], columns[found[3]]
            rows.append(_message(*ends, y, found[4], dashed=found[2] == "--"))
        else:
            raise ValueError(f"a line of a sequence diagram is not understood: {line!r}")
    height = _HEAD_PX + _ROW_PX * len(rows)
    width = 2 * _MARGIN_PX + _COLUMN_PX * (len(columns) - 1)
    lives = "".join(f'<path class="life" d="M{x} 32V{height - 14}"/>' for x in columns.values())
    label = html.escape(f"Messages between {', '.join(columns)}: the page says each in words.")
    return (
        f'<div class="sequence"><svg viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{label}">'
        f"{lives}{''.join(heads)}{''.join(rows)}</svg></div>\n"
    )


def _message(start: int, end: int, y: int, text: str, *, dashed: bool) -> str:
    if start == end:  # to itself: a hook to the left, where there is room
        line = f"M{start} {y}h-26v14h{26 - _ARROW_PX}"
        tip, words = (start, y + 14, 1), _words(start + 8, y + 4, text, "own")
    else:
        way = 1 if end > start else -1
        line = f"M{start} {y}H{end - way * _ARROW_PX}"
        tip, words = (end, y, way), _words((start + end) // 2, y - 7, text, "said")
    x, y, way = tip
    back = x - way * _ARROW_PX
    arrow = f'<path class="tip" d="M{x} {y}L{back} {y - 5}V{y + 5}z"/>'
    kind = "line dashed" if dashed else "line"
    return f'<path class="{kind}" d="{line}"/>{arrow}{words}'


def _words(x: int, y: int, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{html.escape(text)}</text>'
