"""Colours and sizes of a page: contrast as WCAG 2.2 has it, told apart, and large enough."""

import itertools
import re
from collections.abc import Mapping
from importlib import resources

import numpy as np
import pytest

FOLDER = resources.files("zerosum.simulations.report") / "templates"
STYLES = [each for each in FOLDER.iterdir() if each.name.endswith(".css")]

TEXT = ("ink", "muted", "accent", "release", "sum", "local", "warn", "bad", "good")
"""Colours that text has somewhere."""

DRAWN = (
    *("kept", "late", "lost1", "lost2", "lost3", "abandoned"),
    *("part1", "part2", "part3", "part4", "part5", "rest"),
)
"""Colours of charts alone."""

CHARTS = {
    "observers": ("release", "sum", "local"),
    "methods": ("accent", "local", "release", "part1", "part3", "muted"),
    "cohort": ("kept", "late", "lost3", "lost2", "lost1", "abandoned"),
    "seconds": ("part1", "part2", "part3", "part4", "part5", "rest"),
    "norms": ("accent", "local", "release"),
}
"""Colours that stand in one chart."""

# Machado, Oliveira, Fernandes 2009, severity 1: what a linear RGB colour looks like.
SIGHTS = {
    "trichromat": np.eye(3),
    "protanope": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranope": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
}  # fmt: skip


def themes() -> dict[str, dict[str, str]]:
    """Return the custom properties of the page, light and dark."""
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    light, _, rest = style.partition("@media screen and (prefers-color-scheme: dark)")
    dark = rest[: rest.index("\n}\n")]
    pattern = r"--([\w-]+): (#[0-9a-f]{6})"
    found = dict(re.findall(pattern, light))
    return {"light": found, "dark": found | dict(re.findall(pattern, dark))}


def linear(colour: str) -> np.ndarray:
    """Return the linear RGB of a colour (WCAG 2.2, relative luminance)."""
    part = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2)."""
    lights = sorted(float(linear(each) @ [0.2126, 0.7152, 0.0722]) for each in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def difference(one: str, other: str) -> float:
    """Return how far apart two colours are in CIELAB, to whoever tells them apart least."""
    return min(
        float(np.linalg.norm(_lab(sight @ linear(one)) - _lab(sight @ linear(other))))
        for sight in SIGHTS.values()
    )


def _lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.array(to_xyz) @ np.clip(rgb, 0.001, 1) / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def faint(theme: Mapping[str, str]) -> list[str]:
    """Return which colours have too little contrast on the page's papers."""
    papers = [theme["paper"], theme["card"]]
    needs = [(name, 4.5) for name in TEXT] + [(name, 3.0) for name in DRAWN]
    found = [name for name, least in needs if min(contrast(theme[name], p) for p in papers) < least]
    boxes = [(kind, f"{kind}-paper") for kind in ("warn", "bad", "good")] + [("ink", "warn-paper")]
    found += [box for word, box in boxes if contrast(theme[word], theme[box]) < 4.5]
    # The line of an interval lies across a bar.
    return found + (["ink on kept"] if contrast(theme["ink"], theme["kept"]) < 3 else [])


def test_contrast_is_that_of_the_formula() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_text_has_a_contrast_of_4_5_and_charts_of_3(name: str) -> None:
    theme = themes()[name]
    assert faint(theme) == []
    assert faint(theme | {"late": theme["card"], "muted": theme["line"]}) == ["muted", "late"]


@pytest.mark.parametrize("name", ["light", "dark"])
@pytest.mark.parametrize("chart", CHARTS)
def test_colours_of_a_chart_differ_without_red_or_green_cones(chart: str, name: str) -> None:
    theme = themes()[name]
    pairs = itertools.combinations(CHARTS[chart], 2)
    assert min(difference(theme[a], theme[b]) for a, b in pairs) > 7
    assert (
        difference("#c23b3b", "#6b7d1e")
        < 25
        < np.linalg.norm(_lab(linear("#c23b3b")) - _lab(linear("#6b7d1e")))
    )  # the control: red and olive, which a protanope confuses


def test_every_colour_that_is_used_is_defined() -> None:
    used = {
        name
        for each in FOLDER.iterdir()
        if each.name.endswith((".css", ".html"))
        for name in re.findall(r"var\(--([\w-]+)\)", each.read_text(encoding="utf-8"))
    }
    board = (FOLDER / "board.css").read_text(encoding="utf-8")  # a printed page of its own
    own = {"share", *re.findall(r"--([\w-]+):", board)}  # the elements of a matrix set theirs
    assert used - own <= set(themes()["light"])
    assert set(themes()["light"]) == {*TEXT, *DRAWN, "paper", "card", "line"} | {
        f"{kind}-paper" for kind in ("warn", "bad", "good")
    }


def small(style: str) -> list[str]:
    """Return sizes of text below 12 pixels on a screen."""
    screen = style.partition("@media print")[0]
    sizes = re.findall(r"font(?:-size)?: (?:[\w ]*?)([\d.]+)(rem|px|em|pt)", screen)
    pixels = {"rem": 16.0, "px": 1.0, "pt": 4 / 3, "em": 12.0}
    return [size + unit for size, unit in sizes if float(size) * pixels[unit] < 12]


@pytest.mark.parametrize("style", STYLES, ids=lambda each: str(each.name))
def test_no_text_is_below_12_pixels(style) -> None:
    text = style.read_text(encoding="utf-8")
    assert small(text) == []
    assert small(text + "small { font-size: 0.7rem; }") == (
        [] if "@media print" in text else ["0.7rem"]
    )
    assert small("p { font: 0.7rem/1.5 serif; } b { font-size: 11px }") == ["0.7rem", "11px"]
