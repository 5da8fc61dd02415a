"""Show what is reconstructed: the same images once, with noise that rises from left to right."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.report.matrix import said_of, style_of
from zerosum.simulations.attacks.report.protections import Judged, differences, key_of, keys_of
from zerosum.simulations.attacks.report.table import epsilon_text, value_text
from zerosum.simulations.report.images import png_of
from zerosum.simulations.report.paper import POINTS, WIDTH, inks, written

IMAGES_SHOWN = 4
"""Of a cell."""

_SIDE_PIXELS = 640
_STEPS_ON_PAPER = 6
"""In a row of a figure for a paper; more go on below it."""

_LETTERS_PER_STEP = 12


@dataclass(frozen=True)
class Step:
    """The images of one cell, or the true ones.

    Attributes
    ----------
    label, note : str
        Protection and setting, and the figure.
    style : str
        Class of the colours of its frame, as the matrix has them.
    images : numpy.ndarray
        uint8, shape (k, h, w).
    """

    label: str
    note: str
    style: str
    images: np.ndarray

    @property
    def pngs(self) -> list[str]:
        """Return the images as addresses."""
        return [png_of(image, _SIDE_PIXELS) for image in self.images]


@dataclass(frozen=True)
class Strip:
    """True images, and what an attack makes of them as noise rises.

    Attributes
    ----------
    attack, what, setting : str
        Its name, that of its pictures, and what its settings have in common.
    seed : int
        Of whose play they are.
    steps : tuple of Step
        The true images first.
    """

    attack: str
    what: str
    setting: str
    seed: int
    steps: tuple[Step, ...]

    def file(self, kind: str) -> bytes:
        """Return the images as a file for a paper: "pdf", "svg" or "png"."""
        return written(lambda: strip_figure(self), kind)


def strips(
    attacks: Mapping[str, Sequence[Judged]], outcomes: Sequence[Outcome], cells: Sequence[Cell]
) -> list[Strip]:
    """Return the pictures of all attacks, those of equal true images beside each other.

    Parameters
    ----------
    attacks : mapping of str to sequence of Judged
        As :func:`~.protections.judged` returns them.
    outcomes : sequence of Outcome
    cells : sequence of Cell

    Returns
    -------
    list of Strip
    """
    numbers = keys_of(cells)
    first: dict[int, Outcome] = {}
    for outcome in sorted(outcomes, key=lambda outcome: outcome.seed):
        if outcome.pictures:
            first.setdefault(outcome.number, outcome)
    found: dict[tuple[str, str, int, bytes, tuple[int, ...]], list[tuple[Judged, np.ndarray]]] = {}
    for attack, of in attacks.items():
        for each in of:
            drawn = first.get(numbers[key_of(each.row)])
            if drawn is None:
                continue
            for what, pairs in drawn.pictures.items():
                if len(pairs):
                    shown = grey(pairs[:IMAGES_SHOWN])
                    true = np.ascontiguousarray(shown[:, 0])
                    key = (attack, what, drawn.seed, true.tobytes(), true.shape)
                    found.setdefault(key, []).append((each, shown))
    return [_strip(*key[:3], of) for key, of in found.items()]


def _strip(attack: str, what: str, seed: int, of: Sequence[tuple[Judged, np.ndarray]]) -> Strip:
    """Put the setting with the most protections first: there noise rises without a gap."""
    settings = [each.row.setting for each, _ in of]
    differing = differences(settings)
    ordered = sorted(of, key=lambda pair: (-settings.count(pair[0].row.setting),
                                           settings.index(pair[0].row.setting)))  # fmt: skip
    common = re.split(r",\s+", settings[0])
    where = ", ".join(part for part in common if part not in differing[settings[0]].split(", "))
    steps = [_step(each, images[:, 1], differing[each.row.setting]) for each, images in ordered]
    return Strip(attack, what, where, seed, (Step("target", "", "target", of[0][1][:, 0]), *steps))


def _step(each: Judged, images: np.ndarray, differs: str) -> Step:
    label = ", ".join(part for part in (each.row.protection, differs) if part)
    figure = value_text(each.row) if each.verdict == "at baseline" else said_of(each)
    noised = each.defense.noise != "none" and each.row.epsilon is not None
    note = f"{figure}, epsilon {epsilon_text(each.row)}" if noised else figure
    return Step(label, note, style_of(each), images)


def grey(images: np.ndarray) -> np.ndarray:
    """Return images in [0, 1] as uint8; what is beyond is clipped, what is no number is grey.

    Parameters
    ----------
    images : numpy.ndarray
        Any shape.

    Returns
    -------
    numpy.ndarray
        uint8, of the same shape.
    """
    known = np.nan_to_num(np.asarray(images, dtype=np.float64), nan=0.5)
    return np.round(np.clip(known, 0, 1) * 255).astype(np.uint8)


def strip_figure(strip: Strip) -> Figure:
    """Draw a strip with matplotlib, sized for a column, with nothing global.

    Parameters
    ----------
    strip : Strip

    Returns
    -------
    Figure
    """
    columns = min(len(strip.steps), _STEPS_ON_PAPER)
    rows = -(-len(strip.steps) // columns)
    k, h, w = strip.steps[0].images.shape
    side = WIDTH / columns
    line = POINTS * 0.8 * 1.25 / 72
    words = [
        textwrap.wrap(step.label, _LETTERS_PER_STEP) + textwrap.wrap(step.note, _LETTERS_PER_STEP)
        for step in strip.steps
    ]
    below = line * (max(map(len, words)) + 0.6)
    tall = k * side * h / w
    height = rows * (tall + below)
    figure = Figure(figsize=(WIDTH, height), facecolor="none")
    ink = inks()["ink"]
    for index, (step, said) in enumerate(zip(strip.steps, words, strict=True)):
        left, top = index % columns / columns, height - index // columns * (tall + below)
        axes = figure.add_axes((left + 0.004, (top - tall) / height, 1 / columns - 0.008,
                                tall / height))  # fmt: skip
        axes.imshow(np.concatenate(step.images), cmap="gray", vmin=0, vmax=255, aspect="auto")
        axes.set_axis_off()
        figure.text(
            left + 0.5 / columns, (top - tall - 0.3 * line) / height,
            "\n".join(said).replace("$", r"\$"), ha="center", va="top",
            fontsize=POINTS * 0.8, color=ink, linespacing=1.15,
        )  # fmt: skip
    return figure
