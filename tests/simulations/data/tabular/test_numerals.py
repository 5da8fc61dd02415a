"""Numbers in texts are read under one convention for the file, or the file is refused."""

import pytest

from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.tabular.numerals import (
    CONVENTIONS,
    Convention,
    convention_of,
    is_number,
    number,
)


def found(*columns: list[str], separator: str = ",") -> Convention:
    return convention_of(columns, decimal=None, thousands=None, separator=separator, key="k")


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("value", [0.0, -0.5, 12.25, 1234.5, -1234567.125, 999.0, 1e6])
def test_a_number_comes_back_from_every_convention(convention: Convention, value: float) -> None:
    written = f"{value:,.3f}".replace(",", "T").replace(".", convention.decimal)
    written = written.replace("T", convention.thousands)
    assert is_number(written, convention)
    assert number(written, convention) == value


@pytest.mark.parametrize(
    "text", ["", "-", ".", "1_000", "nan", "inf", "0x1f", "1,2", "1.2.3", "١٢", "1e", "--1", "5 mg"]
)
def test_what_is_no_plain_number_is_none(text: str) -> None:
    assert not is_number(text)


@pytest.mark.parametrize(
    ("columns", "separator", "expected"),
    [
        ([["1.5", "2"]], ",", Convention()),
        ([["1.234", "2.345"]], ",", Convention()),
        ([["1,234", "1,234.5"]], ",", Convention(".", ",")),
        ([["1,5", "2,25"]], ";", Convention(",")),
        ([["1,234"], ["0,5"]], ";", Convention(",")),
        ([["1.234", "5"], ["0,5"]], ";", Convention(",", ".")),
        ([["1 234", "1 234 567"], ["2.5"]], ",", Convention(".", " ")),
        ([["a, b", "1,234 of them"], ["2.5", "3.5"]], ",", Convention()),
    ],
)
def test_one_clear_cell_decides_for_the_file(
    columns: list[list[str]], separator: str, expected: Convention
) -> None:
    assert found(*columns, separator=separator) == expected


@pytest.mark.parametrize("cell", ["1,234", "12,345"])
def test_a_cell_that_could_be_two_numbers_is_refused(cell: str) -> None:
    with pytest.raises(DataError, match=r'data\.decimal = "\." with data\.thousands = ","'):
        found([cell], separator=";")
