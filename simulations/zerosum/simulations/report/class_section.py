"""Show what a classifier confuses on public test data, and how well calibrated it is."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from markupsafe import Markup

from zerosum.simulations.report import words
from zerosum.simulations.report.chart import Axis, Chart, Layer, Series
from zerosum.simulations.report.chart_page import drawn

log = logging.getLogger("zerosum.simulations")

MOST_IN_TABLE: Final = 20
"""Classes up to which the page has the whole matrix: more columns are not read by anybody."""

LONGEST_NAME: Final = 24
"""Characters of a class's name in the matrix; tables have more room."""

LONGEST_IN_TABLE: Final = 60
"""Characters of a class's name in a table."""

MOST_ROWS: Final = 200
"""Classes whose figures the page lists."""


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
    names = names_of(document, LONGEST_IN_TABLE)
    titles = [] if shown is None else names_of(document, LONGEST_NAME)
    return ClassSection(
        _sentences(document),
        []
        if shown is None
        else [_matrix_row(titles[label], label, row) for label, row in enumerate(shown)],
        titles,
        []
        if shown is not None
        else [
            [names[p["label"]], names[p["predicted"]], f"{p['examples']:,}"]
            for p in document["confused"]
        ],
        [
            _class_row(names[each["label"]], each)
            for each in document.get("per_class", [])[:MOST_ROWS]
        ],
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
    if why := document.get("unnamed"):
        sentences.append(f"Classes are called by their numbers: {why}.")
    if k > MOST_IN_TABLE:
        kept = "test-set.json has the matrix" if document.get("confusion") else "no matrix is kept"
        sentences.append(f"Of {k:,} classes the pairs most confused are listed; {kept}.")
    if len(document.get("per_class", [])) > MOST_ROWS:
        sentences.append(f"The first {MOST_ROWS} classes are listed; test-set.json has all.")
    return sentences


def names_of(document: Mapping[str, Any], longest: int) -> list[str]:
    """Return what a page calls each class: its name, or its number where it has none.

    Parameters
    ----------
    document : mapping
        Of ``test-set.json``: ``classes``, and perhaps ``class_names``, None for one without.
    longest : int
        Characters from which on a name is cut; of names that are cut alike, each has its number.

    Returns
    -------
    list of str
        One a class, no two alike.
    """
    given = document.get("class_names") or []
    names = [None if name is None else str(name) for name in given[: document["classes"]]]
    names += [None] * (document["classes"] - len(names))
    cut = [n if n is None or len(n) <= longest else n[: longest - 1] + "…" for n in names]
    number = [str(label) for label in range(len(names))]
    alike = Counter(name or place for name, place in zip(cut, number, strict=True))
    return [
        place if name is None else name if name and alike[name] == 1 else f"{place}: {name}"
        for name, place in zip(cut, number, strict=True)
    ]


def _matrix_row(
    title: str, label: int, row: Sequence[int]
) -> tuple[str, list[tuple[str, int, bool]]]:
    total = sum(row)
    cells = [
        (f"{count:,}" if count else "", round(100 * count / total) if total else 0, place == label)
        for place, count in enumerate(row)
    ]
    return title, cells


def _class_row(name: str, each: Mapping[str, Any]) -> list[str]:
    parts = (each["accuracy"], each["precision"])
    shares = ["–" if part is None else words.percent(part) for part in parts]
    return [name, f"{each['examples']:,}", f"{each['predicted']:,}", *shares]


def _caption(calibration: Mapping[str, Any]) -> str:
    ece = calibration["ece"]
    if ece is None:
        return ""
    return (
        f"Expected calibration error {words.number(ece)}, over {calibration['bins']} bins of equal "
        f"width (Guo et al. 2017). Confidence is {calibration['reading']}. A calibrated model's "
        "bars end at the dashed line; those of few examples say little."
    )


def reliability_diagram(bins: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw accuracy against confidence, a bar for each bin that has examples.

    Parameters
    ----------
    bins : sequence of mapping
        ``from``, ``to``, ``examples``, ``confidence``, ``accuracy``; in order, without gaps.

    Returns
    -------
    Markup
        A chart of the page; empty where no bin has an example.
    """
    used = sum(bool(each["examples"]) for each in bins)
    if not used:
        return Markup()
    bars = Layer(
        "right",
        "accent",
        np.array([each["accuracy"] or 0.0 for each in bins]),
        tuple(_said(each) if each["examples"] else None for each in bins),
    )
    ends = np.array([0.0, 1.0])
    chart = Chart(
        _shares("confidence", lambda value: f"confidence about {words.percent(value)}"),
        _shares("", words.percent),
        series=(Series("calibrated", "ink", ends, ends, shape="", dash="--"),),
        layers=(bars,),
        borders=np.array([bins[0]["from"], *(each["to"] for each in bins)]),
    )
    return drawn(chart, f"Accuracy against confidence in {words.count(used, 'bin')}.")


def _said(each: Mapping[str, Any]) -> str:
    sure, correct = words.percent(each["confidence"]), words.percent(each["accuracy"])
    return f"{correct} at confidence {sure}, {words.count(each['examples'], 'example')}"


def _shares(label: str, say: Callable[[float], str]) -> Axis:
    ticks = tuple((part, f"{100 * part:g} %") for part in (0.0, 0.25, 0.5, 0.75, 1.0))
    return Axis(label, 0.0, 1.0, ticks, say)
