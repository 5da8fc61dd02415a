"""Display tables in a notebook: escaped, in the page's own colours, without scripts or requests.

A notebook keeps what a cell displayed, and shows it to whoever opens the file: a name or a path in
it may be anybody's. Colours and fonts are inherited, so that it is read on light and dark pages.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape

from zerosum.client.files.operating_system import readable

# MathJax would set what stands between two dollar signs, which a path may have.
_PANEL = '<div class="tex2jax_ignore mathjax_ignore" style="max-width:52em;overflow-x:auto">'
_CELL = "text-align:left;vertical-align:top;padding:.15em .8em .15em 0;background:transparent"
_TABLE = "border-collapse:collapse;border:0;margin:.3em 0;font-size:.95em;color:inherit"
_NAME = f"{_CELL};white-space:nowrap"
_FAINT = "opacity:.75"

WIDTH, HEIGHT, MARGIN = 340, 96, 4
"""Of a curve, in CSS pixels."""

MOST_POINTS = 400
"""Points of a curve: more than it has pixels say no more."""


def text(value: object) -> str:
    """Return a value as text of HTML."""
    return escape(one_line(value))


def one_line(value: object) -> str:
    """Return a value as text of one line; control characters, and bytes of names, as escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in readable(str(value)))


def panel(title: str, rows: Iterable[tuple[str, str, str]], chart: str = "", foot: str = "") -> str:
    """Return a table of names and values in HTML.

    Parameters
    ----------
    title : str
        Of what it is.
    rows : iterable of tuple of str
        Name, value, and a remark that may be empty: all plain text.
    chart : str
        Of :func:`curve`.
    foot : str
        A line below, plain text.

    Returns
    -------
    str
        A block without any text that was not escaped.
    """
    lines = [_PANEL, f"<div><b>{text(title)}</b></div>", chart, f'<table style="{_TABLE}">']
    for name, value, remark in rows:
        said = f' <span style="{_FAINT}">{text(remark)}</span>' if remark else ""
        lines.append(
            f'<tr style="background:transparent"><td style="{_NAME}">{text(name)}</td>'
            f'<td style="{_CELL}">{text(value)}{said}</td></tr>'
        )
    lines += ["</table>", f'<div style="{_FAINT}">{text(foot)}</div>' if foot else "", "</div>"]
    return "".join(lines)


def grid(
    title: str,
    rows: Sequence[Mapping[str, str]],
    foot: str = "",
    bold: Collection[tuple[int, str]] = (),
) -> str:
    """Return a table with a heading for each column in HTML.

    Parameters
    ----------
    title : str
        Of what it is.
    rows : sequence of mapping of str to str
        All of the same keys, which are the headings: plain text.
    foot : str
        A line below, plain text.
    bold : collection of tuple of int and str
        Row, from 0, and heading of the cells that stand out.

    Returns
    -------
    str
        As :func:`panel`.
    """
    lines = [_PANEL, f"<div><b>{text(title)}</b></div>", f'<table style="{_TABLE}">']
    heads = "".join(f'<th style="{_CELL}">{text(name)}</th>' for name in (rows[0] if rows else ()))
    lines.append(f"<thead><tr>{heads}</tr></thead><tbody>")
    for number, row in enumerate(rows):
        cells = "".join(
            f'<td style="{_CELL}">'
            f"{f'<b>{text(value)}</b>' if (number, name) in bold else text(value)}</td>"
            for name, value in row.items()
        )
        lines.append(f'<tr style="background:transparent">{cells}</tr>')
    lines += ["</tbody></table>", f'<div style="{_FAINT}">{text(foot)}</div>' if foot else ""]
    return "".join([*lines, "</div>"])


def curve(
    points: Sequence[tuple[int, float]], name: str, level: tuple[str, float] | None = None
) -> str:
    """Draw figures over rounds as inline SVG; nothing where no two of them are numbers.

    Parameters
    ----------
    points : sequence of tuple of int and float
        Round and figure; the line is broken where one is no finite number.
    name : str
        Of the figure.
    level : tuple of str and float, optional
        A reference with its name, a dashed line.

    Returns
    -------
    str
        Markup, or an empty text.
    """
    points = [*points[:: -(-len(points) // MOST_POINTS) or 1], *points[-1:]]
    finite = [value for _, value in points if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    shown = [*finite, *([level[1]] if level is not None and math.isfinite(level[1]) else [])]
    low, high = min(shown), max(shown)
    first, last = points[0][0], points[-1][0]

    def place(round: int, value: float) -> tuple[float, float]:
        # Halves: the difference of the largest floats is infinite.
        part = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
        across = (round - first) / max(1, last - first)
        return (
            MARGIN + across * (WIDTH - 2 * MARGIN),
            HEIGHT - MARGIN - part * (HEIGHT - 2 * MARGIN),
        )

    drawn = [_line([place(*point) for point in run]) for run in _unbroken(points)]
    words = f"{name}, rounds {first} to {last}: from {finite[0]:.4g} to {finite[-1]:.4g}"
    if level is not None and math.isfinite(level[1]):
        _, y = place(first, level[1])
        drawn.append(
            f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y:.1f}" y2="{y:.1f}" '
            'stroke="currentColor" stroke-dasharray="4 4" opacity=".6"/>'
        )
        words += f"; dashed: {level[0]}, {level[1]:.4g}"
    return (
        f'<svg role="img" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'style="display:block;max-width:100%;color:inherit"><title>{text(words)}</title>'
        f'{"".join(drawn)}</svg><div style="{_FAINT};font-size:.85em">{text(words)}</div>'
    )


def _unbroken(points: Sequence[tuple[int, float]]) -> list[list[tuple[int, float]]]:
    """Split points where a figure is no finite number."""
    runs: list[list[tuple[int, float]]] = [[]]
    for point in points:
        if math.isfinite(point[1]):
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _line(places: Sequence[tuple[float, float]]) -> str:
    if len(places) == 1:
        (x, y), *_ = places
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="currentColor"/>'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{path}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
