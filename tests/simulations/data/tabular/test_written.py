"""Texts that people read as dates or numbers are told from others."""

import pytest

from zerosum.simulations.data.tabular.written import are_dates, marks_of


@pytest.mark.parametrize(
    "text",
    ["2024-01-31", "2024/1/31", "31.12.2024", "1/31/2024", "31/1/2024", "2024-01-31 12:30",
     "2024-01-31T12:30:59.5Z", "2024-01-31T12:30:59+01:00"],
)  # fmt: skip
def test_a_date_is_told_however_it_is_written(text: str) -> None:
    assert are_dates([text, "2023-02-01"])


@pytest.mark.parametrize(
    "text",
    ["2024-13-31", "2024-01-32", "2024-01/31", "1.2.3", "2024-05", "12:30", "192.168.1.2",
     "555-12-2024", "May 2024", "2024-01-31 or so", ""],
)  # fmt: skip
def test_what_only_looks_like_a_date_is_none(text: str) -> None:
    assert not are_dates([text, "2023-02-01"])
    assert not are_dates([])


@pytest.mark.parametrize(
    ("texts", "marks"),
    [(["12.3%", "4 %", "n/a"], "%"), (["$45", "$1,200.50", "-$3"], "$"), (["7€", ".5 €"], "€"),
     (["+$1", "2%"], "$%"), (["a%", "b"], ""), (["100% cotton", "$$$"], ""), (["1", "2"], "")],
)  # fmt: skip
def test_marks_that_keep_texts_from_being_numbers_are_told(texts: list[str], marks: str) -> None:
    assert marks_of(texts) == marks
