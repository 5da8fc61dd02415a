"""Figures for a paper: their words are text in PDF and SVG, in embedded fonts."""

import math
import re
import zlib
from io import BytesIO

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from zerosum.simulations.report import paper
from zerosum.simulations.report.chart import Axis, Chart, Level, Series

WORDS = ("FedProx, lr=0.1", "test accuracy", "epsilon_release", "no such bound", "cost $ 5 (a)")


@pytest.fixture(scope="module")
def chart() -> Chart:
    x = Axis("epsilon_release", 0.5, 20.0, ((1.0, "1"), (10.0, "10")), str, log=True)
    y = Axis("test accuracy", 0.0, 1.0, ((0.0, "0 %"), (0.5, "50 %")), str)
    at, mean = np.array([1.0, 4.0, 8.0]), np.array([0.4, math.nan, 0.7])
    series = (
        Series("FedProx, lr=0.1", "accent", at, mean, mean - 0.1, mean + 0.1, bars=True),
        Series("cost $ 5 (a)", "local", at, mean / 2, low=mean / 3, high=mean),
        Series("ring", "ink", at, mean, dash="", ring=True),
    )
    return Chart(x, y, series, levels=(Level("no such bound", 0.9),))


def pdf_text(document: bytes) -> str:
    """Return the words of a PDF of one page, as a reader copies them (ISO 32000-1, 9.10.2)."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", document, re.S)
    texts = [_inflated(each) for each in streams]
    maps = [each for each in texts if b"begincmap" in each]
    letters = {}
    for first, codes in re.findall(
        rb"<([0-9a-fA-F]{4})> <[0-9a-fA-F]{4}> \[([^\]]+)\]", b"".join(maps)
    ):
        for place, code in enumerate(re.findall(rb"<([0-9a-fA-F]{4})>", codes), int(first, 16)):
            letters[place] = chr(int(code, 16))
    lines = []
    for text in texts:
        for shown in re.findall(rb"BT(.*?)ET", text, re.S):
            strings = re.findall(rb"\(((?:[^()\\]|\\.)*)\)", shown, re.S)
            raw = b"".join(re.sub(rb"\\(.)", rb"\1", each, flags=re.S) for each in strings)
            codes = zip(raw[::2], raw[1::2], strict=False)
            lines.append("".join(letters.get(256 * high + low, "?") for high, low in codes))
    return "\n".join(lines)


def _inflated(stream: bytes) -> bytes:
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return b""


@pytest.mark.slow
def test_words_of_a_pdf_are_text_in_an_embedded_truetype_font(chart: Chart) -> None:
    document = paper.paper_file(chart, "pdf")
    assert b"/CIDFontType2" in document  # TrueType; Type 3, the default, is refused by journals
    assert b"/FontFile2" in document
    assert b"/Type3" not in document
    words = pdf_text(document)
    for each in (*WORDS, "50 %"):
        assert each in words
    with rc_context({"pdf.fonttype": 3}):  # the control
        figure, _ = paper.figure_of(chart)
        assert "FedProx" not in pdf_text(_saved(figure))


def _saved(figure: Figure) -> bytes:
    data = BytesIO()
    figure.savefig(data, format="pdf")
    return data.getvalue()


def test_words_of_an_svg_are_text(chart: Chart) -> None:
    document = paper.paper_file(chart, "svg").decode()
    found = re.findall(r"<text[^>]*>([^<]*)</text>", document)
    assert set(WORDS) <= set(found)
    assert "50 %" in found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pdf", "svg", "png"])
def test_the_same_chart_gives_the_same_bytes(chart: Chart, kind: str) -> None:
    assert paper.paper_file(chart, kind) == paper.paper_file(chart, kind)
