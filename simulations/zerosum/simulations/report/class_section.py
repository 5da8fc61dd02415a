"""Show what a classifier confuses on public test data, and how well calibrated it is."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from markupsafe import Markup

from zerosum.simulations.report import words

log = logging.getLogger("zerosum.simulations")

MOST_IN_TABLE: Final = 20
"""Classes up to which the page has the whole matrix: more columns are not read by anybody."""

MOST_ROWS: Final = 200
"""Classes whose figures the page lists."""

_WIDTH, _HEIGHT = 360, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 14, 46
_TEXT_PIXELS = 14


@dataclass(frozen=True)
class ClassSection:
    """The section of a report.

    Attributes
    ----------
    sentences : list of str
    matrix : list of (str, list of (str, int, bool))
        Of each label: cells of text, share of its examples in per cent, and whether it is right.
    columns : list of str
        Titles of the matrix.
    pairs, per_class : list of list of str
        Rows of tables.
    diagram : Markup
        The reliability diagram; empty without examples.
    caption : str
        Its words.
    """

    sentences: list[str]
    matrix: list[tuple[str, list[tuple[str, int, bool]]]] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    pairs: list[list[str]] = field(default_factory=list)
    per_class: list[list[str]] = field(default_factory=list)
    diagram: Markup = field(default_factory=Markup)
    caption: str = ""


def class_section(document: Mapping[str, Any]) -> ClassSection | None:
    """Return the section of what ``test-set.json`` holds.

    Parameters
    ----------
    document : mapping
        Empty where there is none.

    Returns
    -------
    ClassSection or None
        None where there is nothing to show; the log says so of a file that cannot be read.
    """
    if not document or not document.get("examples"):
        return None
    if "left_out" in document:
        why = f"Confusion and calibration are those of one class an example: {document['left_out']}"
        return ClassSection([f"{why}."])
    try:
        return _section(document)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        log.warning("test-set.json is left out of the report: %r", error)
        return None


def _section(document: Mapping[str, Any]) -> ClassSection:
    calibration = document["calibration"]
    matrix = document.get("confusion")
    shown = matrix if matrix is not None and len(matrix) <= MOST_IN_TABLE else None
    return ClassSection(
        _sentences(document),
        [] if shown is None else [_matrix_row(label, row) for label, row in enumerate(shown)],
        [] if shown is None else [str(label) for label in range(len(shown))],
        []
        if shown is not None
        else [
            [str(p["label"]), str(p["predicted"]), f"{p['examples']:,}"]
            for p in document["confused"]
        ],
        [_class_row(each) for each in document.get("per_class", [])[:MOST_ROWS]],
        reliability_diagram(calibration["reliability"]),
        _caption(calibration),
    )


def _sentences(document: Mapping[str, Any]) -> list[str]:
    k, present = document["classes"], document["classes_present"]
    over = f"all {k:,} classes" if k == present else f"the {present:,} classes of {k:,} that it has"
    sentences = [
        f"The final model on {words.count(document['examples'], 'public test example')}: "
        f"{words.percent(document['accuracy'])} are right; the mean over {over} is "
        f"{words.percent(document['balanced_accuracy'])}, the macro F1 "
        f"{words.number(document['macro_f1'])}."
    ]
    if document["undefined"]:
        lost = words.count(document["undefined"], "example")
        sentences.append(f"{lost} with outputs that are NaN are left out.")
    if k > MOST_IN_TABLE:
        kept = "test-set.json has the matrix" if document.get("confusion") else "no matrix is kept"
        sentences.append(f"Of {k:,} classes the pairs most confused are listed; {kept}.")
    if len(document.get("per_class", [])) > MOST_ROWS:
        sentences.append(f"The first {MOST_ROWS} classes are listed; test-set.json has all.")
    return sentences


def _matrix_row(label: int, row: Sequence[int]) -> tuple[str, list[tuple[str, int, bool]]]:
    total = sum(row)
    cells = [
        (f"{count:,}" if count else "", round(100 * count / total) if total else 0, place == label)
        for place, count in enumerate(row)
    ]
    return str(label), cells


def _class_row(each: Mapping[str, Any]) -> list[str]:
    parts = (each["accuracy"], each["precision"])
    shares = ["–" if part is None else words.percent(part) for part in parts]
    return [str(each["label"]), f"{each['examples']:,}", f"{each['predicted']:,}", *shares]


def _caption(calibration: Mapping[str, Any]) -> str:
    ece = calibration["ece"]
    if ece is None:
        return ""
    return (
        f"Expected calibration error {words.number(ece)}, over {calibration['bins']} bins of equal "
        f"width (Guo et al. 2017). Confidence is {calibration['reading']}. A calibrated model's "
        "bars end at the dashed line."
    )


def reliability_diagram(bins: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw accuracy against confidence, a bar for each bin that has examples.

    Drawn here and not by matplotlib: text stays text, at a size that a phone's screen shows whole.

    Parameters
    ----------
    bins : sequence of mapping
        ``from``, ``to``, ``examples``, ``confidence``, ``accuracy``.

    Returns
    -------
    Markup
        One SVG element; empty where no bin has an example.
    """
    used = [each for each in bins if each["examples"]]
    if not used:
        return Markup()
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    parts = [_grid(wide, high)]
    bar = Markup(
        '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="var(--accent)" '
        'fill-opacity="{:.2f}" stroke="var(--accent)"><title>{}</title></rect>'
    )
    most = max(each["examples"] for each in used)
    for each in used:
        x, right = _LEFT + wide * each["from"], _LEFT + wide * each["to"]
        tall = max(1.0, high * each["accuracy"])
        sure, correct = words.percent(each["confidence"]), words.percent(each["accuracy"])
        counted = words.count(each["examples"], "example")
        said = f"confidence {sure}, right {correct}, {counted}"
        # Bins of few examples are pale: their height says little.
        opacity = 0.35 + 0.65 * each["examples"] / most
        top = _TOP + high - tall
        parts.append(bar.format(x + 1, top, right - x - 2, tall, opacity, said))
    parts.append(
        Markup(
            '<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="var(--ink)" stroke-width="1.3" '
            'stroke-dasharray="5 4"/>'
        ).format(_LEFT, _TOP + high, _LEFT + wide, _TOP)
    )
    alt = f"Accuracy against confidence in {words.count(len(used), 'bin')}."
    frame = Markup(
        '<svg class="reliability" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    )
    return frame.format(_WIDTH, _HEIGHT, alt, Markup().join(parts))


def _grid(wide: int, high: int) -> Markup:
    line = Markup('<line x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}" stroke="var(--line)"/>')
    text = Markup(
        '<text x="{:.1f}" y="{:.1f}" fill="var(--muted)" font-size="{}" text-anchor="{}">{}</text>'
    )
    parts = []
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _TOP + high * (1 - part)
        label, size = f"{100 * part:.0f} %", _TEXT_PIXELS
        parts.append(line.format(_LEFT, y, _LEFT + wide, y))
        parts.append(text.format(_LEFT - 5, y + 5, size, "end", label))
        if part in (0.0, 0.5, 1.0):
            anchor = {0.0: "start", 1.0: "end"}.get(part, "middle")
            parts.append(text.format(_LEFT + wide * part, _TOP + high + 17, size, anchor, label))
    middle = _LEFT + wide / 2
    parts.append(text.format(middle, _HEIGHT - 8, _TEXT_PIXELS, "middle", "confidence"))
    return Markup().join(parts)
