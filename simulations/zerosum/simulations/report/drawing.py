"""Draw SVG with matplotlib, without its global state and in colours that the page defines."""

import base64
import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

COLOURS = (
    *("ink", "muted", "line", "accent", "sum", "local", "release"),
    *("kept", "late", "lost1", "lost2", "lost3", "abandoned"),
    *("part1", "part2", "part3", "part4", "part5", "rest"),
)
"""Custom properties of page.css: light, dark and paper each give them values."""

# matplotlib writes colours into the SVG as numbers; custom properties of CSS it does not know. So
# each colour is drawn as a number that no figure uses, "#fe01" and its place in COLOURS, and
# replaced by "var(--name)" in the text: one figure serves light and dark pages and paper.

_SIZE_INCHES = (4.7, 2.75)
_TEXT_POINTS = 8.5
_MOST_MARKERS = 60
_MOST_POINTS = 300


def colour(name: str) -> str:
    """Return a placeholder that :func:`to_svg` replaces by the page's colour of that name."""
    return f"#fe01{COLOURS.index(name):02x}"


def new_axes(x: str, y: str) -> Axes:
    """Return the axes of a new figure that belongs to nothing global.

    Parameters
    ----------
    x, y : str
        Labels of the axes.

    Returns
    -------
    Axes
        Empty axes.
    """
    figure = Figure(figsize=_SIZE_INCHES, facecolor="none")
    figure.subplots_adjust(left=0.15, right=0.975, bottom=0.17, top=0.965)
    axes = figure.add_subplot(facecolor="none")
    axes.set_xlabel(x, color=colour("muted"), fontsize=_TEXT_POINTS)
    axes.set_ylabel(y, color=colour("muted"), fontsize=_TEXT_POINTS)
    axes.tick_params(
        which="both", colors=colour("muted"), labelsize=_TEXT_POINTS, length=3, color=colour("line")
    )
    axes.grid(True, axis="y", color=colour("line"), linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(colour("line"))
    return axes


def plain_ticks(axis: Any, formatter: Any = None) -> None:
    """Format ticks as plain numbers, without offsets and powers of ten.

    Parameters
    ----------
    axis : matplotlib.axis.Axis
        ``axes.xaxis`` or ``axes.yaxis``.
    formatter : callable, optional
        From value and place to text; six significant digits where absent.
    """
    axis.set_major_formatter(FuncFormatter(formatter or (lambda v, _: f"{v:,.6g}")))


def log_scale(axes: Axes, which: str, values: NDArray[np.float64]) -> None:
    """Make an axis logarithmic, with plain numbers and enough of them over a short span.

    Parameters
    ----------
    axes : Axes
        From :func:`new_axes`.
    which : str
        "x" or "y".
    values : numpy.ndarray
        All that is drawn on it, float64, above 0; NaN is left out.
    """
    low, high = np.nanmin(values), np.nanmax(values)
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 200 else (1.0,)))
    axis.set_minor_locator(NullLocator())
    (axes.set_xlim if which == "x" else axes.set_ylim)(low / 1.6, high * 1.6)
    plain_ticks(axis)


def round_axis(axes: Axes, rounds: Sequence[int]) -> None:
    """Let the horizontal axis run over the rounds, in whole numbers.

    Parameters
    ----------
    axes : Axes
        From :func:`new_axes`.
    rounds : sequence of int
        Numbers of the rounds.
    """
    axes.set_xlim(min(rounds) - 0.5, max(rounds) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    plain_ticks(axes.xaxis)


def line(
    axes: Axes, x: Any, y: Any, name: str, label: str, *, marker: str = "o", dashed: bool = False
) -> None:
    """Draw a line, with a marker at each point as long as they can be told apart.

    Of very many points a regular sample is drawn, the last one always.

    Parameters
    ----------
    axes : Axes
        From :func:`new_axes`.
    x, y : sequence of float
        Shape (points,).
    name : str
        Colour, one of :data:`COLOURS`.
    label : str
        In the legend.
    marker : str
        As matplotlib names it.
    dashed : bool
        Whether the line is.
    """
    step = -(-len(x) // _MOST_POINTS)
    axes.plot(
        x[::-1][::step],
        y[::-1][::step],
        color=colour(name),
        label=label,
        linewidth=1.6,
        linestyle="--" if dashed else "-",
        marker=marker if len(x) <= _MOST_MARKERS else "",
        markersize=3.2,
        markeredgewidth=0,
    )


def shade(axes: Axes, rounds: Sequence[int], flags: NDArray[np.bool_], label: str) -> None:
    """Shade some rounds; where rounds are grouped, to the height of their share in the group.

    Parameters
    ----------
    axes : Axes
        From :func:`new_axes`.
    rounds : sequence of int
        Numbers of the rounds.
    flags : numpy.ndarray
        Which of them are shaded, bool, shape (rounds,).
    label : str
        In the legend.
    """
    if flags.any():
        borders, (share,) = grouped(rounds, flags.astype(np.float64))
        axes.stairs(
            share,
            borders,
            fill=True,
            transform=axes.get_xaxis_transform(),
            color=colour("abandoned"),
            alpha=0.3,
            linewidth=0,
            label=label,
            zorder=0.5,
        )


def stack(
    axes: Axes, rounds: Sequence[int], layers: Sequence[tuple[str, str, NDArray[np.float64]]]
) -> None:
    """Stack layers (colour, label, values) over the rounds, or over the means of groups of them.

    Parameters
    ----------
    axes : Axes
        From :func:`new_axes`.
    rounds : sequence of int
        Numbers of the rounds.
    layers : sequence of (colour, label, values)
        From the bottom; values are float64, shape (rounds,).
    """
    borders, heights = grouped(rounds, *(values for _, _, values in layers))
    base = np.zeros(len(borders) - 1)
    for (name, label, _), height in zip(layers, heights, strict=True):
        top = base + height
        axes.stairs(top, borders, baseline=base, fill=True, color=colour(name), label=label, lw=0)
        base = top
    axes.set_ylim(0, float(base.max()) * 1.05)


def grouped(
    rounds: Sequence[int], *values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """Return the borders between rounds and the values, as means of groups of very many rounds.

    Returns
    -------
    borders : numpy.ndarray
        Half-way between rounds, shape (groups + 1,).
    means : list of numpy.ndarray
        Each of shape (groups,).
    """
    starts = np.arange(0, len(rounds), -(-len(rounds) // _MOST_POINTS))
    sizes = np.diff(starts, append=len(rounds))
    borders = np.append(np.asarray(rounds)[starts] - 0.5, rounds[-1] + 0.5)
    return borders, [np.add.reduceat(series, starts) / sizes for series in values]


def legend(axes: Axes, columns: int = 3) -> None:
    """Put the legend above the axes, where it covers no data, and make room for its rows.

    Parameters
    ----------
    axes : Axes
        From :func:`new_axes`, with all that is drawn.
    columns : int
        Entries in a row.
    """
    rows = -(-len(axes.get_legend_handles_labels()[0]) // columns)
    axes.figure.subplots_adjust(top=0.965 - 0.078 * rows)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=_TEXT_POINTS,
        labelcolor=colour("ink"),
        handlelength=1.3,
        columnspacing=1.0,
        borderaxespad=0.2,
    )


def to_svg(axes: Axes, name: str, alt: str) -> Markup:
    """Return the axes' figure as one SVG element that stands by itself in a page.

    Parameters
    ----------
    axes : Axes
        From :func:`new_axes`.
    name : str
        Prefix of the identifiers, unique in the page.
    alt : str
        What the picture shows, for those who do not see it.

    Returns
    -------
    Markup
        The element.

    Raises
    ------
    ValueError
        If the axes belong to no figure.
    """
    file = io.StringIO()
    figure = axes.get_figure(root=True)
    if figure is None:
        raise ValueError("the axes belong to no figure")
    figure.savefig(file, format="svg", facecolor="none", metadata={"Date": None})
    text = file.getvalue()
    box = re.search(r'viewBox="([^"]+)"', text)
    inner = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    inner = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", "", inner, flags=re.S)
    inner = _rename(inner.replace("xlink:href", "href"), name)
    for index, known in enumerate(COLOURS):
        inner = inner.replace(f"#fe01{index:02x}", f"var(--{known})")
    inner = re.sub(r"\n\s*", "\n", inner)
    frame = Markup('<svg viewBox="{}" role="img" aria-label="{}">{}</svg>')
    return frame.format(box[1] if box else "", alt, Markup(inner))


def png_of(image: NDArray[np.uint8], side: int) -> str:
    """Return an image as the address of an ``img``, coarser where it is wider than ``side``.

    Parameters
    ----------
    image : numpy.ndarray
        uint8, shape (h, w) or (h, w, 3).
    side : int
        Longest side wanted, in pixels.

    Returns
    -------
    str
        A ``data:`` address.
    """
    step = max(1, -(-max(image.shape[:2]) // side))
    file = io.BytesIO()
    imsave(file, image[::step, ::step], cmap="gray", vmin=0, vmax=255, format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _rename(svg: str, name: str) -> str:
    """Give the identifiers in use names of this picture's own; drop the others."""
    used = dict.fromkeys(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    names = {old: f"{name}-{index}" for index, old in enumerate(used)}
    svg = re.sub(
        r' ?\bid="([^"]+)"', lambda m: f' id="{names[m[1]]}"' if m[1] in names else "", svg
    )
    return re.sub(r'(href="#|url\(#)([^")]+)', lambda m: m[1] + names[m[2]], svg)
