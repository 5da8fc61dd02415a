"""Tables as other programs write them: read as meant and said, or refused with the cure."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.datasets import Collection
from zerosum.simulations.data.tables import table

COUNT = 60
RNG = np.random.default_rng(7)
A, B, C = RNG.normal(size=(3, COUNT)).round(3)
LABELS = (A + B > 0).astype(int)

Written = str | bytes | Callable[[Path], None]


def csv(
    *columns: list[Any] | np.ndarray, names: str = "a,b,c,y", separator: str = ",", end: str = "\n"
) -> str:
    """Return columns as the text of a CSV, their cells as Python writes them."""
    rows = [separator.join(map(str, row)) for row in zip(*columns, strict=True)]
    return end.join([*([names] if names else []), *rows]) + end


def some(values: list[Any] | np.ndarray, word: str, every: int = 20) -> list[str]:
    """Return values as texts, one in so many replaced by a word."""
    return [word if i % every == 3 else str(value) for i, value in enumerate(values)]


def comma(values: np.ndarray) -> list[str]:
    return [str(value).replace(".", ",") for value in values]


def load(tmp_path: Path, written: Written, name: str = "t.csv", **options: Any) -> Collection:
    path = tmp_path / name
    if callable(written):
        written(path)
    else:
        path.write_bytes(written.encode() if isinstance(written, str) else written)
    return table(DataSpec.model_validate({"path": str(path), "label": "y"} | options))


def line(found: Collection) -> str:
    assert found.read is not None
    return str(found.read["line"])


PLAIN = csv(A, B, C, LABELS)
BIG = [f"{1000 * (i % 9 + 1) + 7.5 * i:,.1f}" for i in range(COUNT)]
KINDS = [["None", "NA", "mild"][i % 3] for i in range(COUNT)]
CITIES = [["Aix", "Bonn", "Köln"][i % 3] for i in range(COUNT)]
INDEX = list(range(COUNT))

READ: dict[str, tuple[Written, dict[str, Any], int, list[str]]] = {
    # name: (file, keys, width of the inputs, what the line says)
    "plain": (PLAIN, {}, 3, ["3 inputs: a, b, c", "2 classes: 0, 1", "12 records are public"]),
    "thousands in quotes": (
        csv([f'"{x}"' for x in BIG], B, C, LABELS), {}, 3, ['read as thousands ","'],
    ),
    "decimal comma and semicolons": (
        csv(*map(comma, (A, B, C)), LABELS, names="a;b;c;y", separator=";"),
        {}, 3, ['separator ";"', 'decimal ","'],
    ),
    "decimal comma in quotes": (
        csv(*([f'"{x}"' for x in comma(v)] for v in (A, B)), C.astype(int), LABELS),
        {}, 3, ['decimal ","'],
    ),
    "German thousands": (
        csv(
            [f"{1000 * (i % 9 + 1)}.{i:03d},5".replace("000.", ".") for i in INDEX],
            comma(B), LABELS, names="a;b;y", separator=";",
        ),
        {}, 2, ['decimal ","', 'thousands "."'],
    ),
    "French thousands": (
        csv([f"{i % 9 + 1}\u202f{i:03d},25" for i in INDEX], comma(B), LABELS, names="a;b;y",
            separator=";"),
        {}, 2, ['decimal ","', 'thousands "space"'],
    ),
    "Swiss thousands": (
        csv([f"{i % 9 + 1}'{i:03d}.25" for i in INDEX], B, C, LABELS), {}, 3,
        ['thousands "apostrophe"'],
    ),
    "tabs": (csv(A, B, C, LABELS, names="a\tb\tc\ty", separator="\t"), {}, 3, ['separator "tab"']),
    "bars": (csv(A, B, C, LABELS, names="a|b|c|y", separator="|"), {}, 3, ['separator "|"']),
    "spaces after commas": (PLAIN.replace(",", ", "), {}, 3, ["3 inputs: a, b, c"]),
    "spaces as separator": (
        PLAIN.replace(",", "  "), {"separator": " "}, 3, ['separator "space"'],
    ),
    "Windows line ends": (csv(A, B, C, LABELS, end="\r\n"), {}, 3, ["60 records"]),
    "old Mac line ends": (csv(A, B, C, LABELS, end="\r"), {}, 3, ["60 records"]),
    "blank lines": (csv(A, B, C, LABELS, end="\n\n"), {}, 3, ["60 records"]),
    "UTF-8 with a mark": (b"\xef\xbb\xbf" + PLAIN.encode(), {}, 3, ["inputs: a, b, c"]),
    "UTF-16": (PLAIN.encode("utf-16"), {}, 3, ["read as UTF-16"]),
    "UTF-16, big end first": (
        b"\xfe\xff" + PLAIN.encode("utf-16-be"), {}, 3, ["read as UTF-16"],
    ),
    "UTF-32": (PLAIN.encode("utf-32"), {}, 3, ["read as UTF-32"]),
    "an encoding that is named": (
        csv(A, B, C, LABELS, names="größe,b,c,y").encode("cp1252"),
        {"encoding": "cp1252"}, 3, ["größe", "read as CP1252"],
    ),
    "labels 0.0 and 1.0": (csv(A, B, C, LABELS.astype(float)), {}, 3, ["2 classes: 0, 1"]),
    "labels None and NA": (csv(A, B, C, KINDS), {}, 3, ["3 classes: NA, None, mild"]),
    "labels nan and null": (
        csv(A, B, C, [["nan", "null"][i] for i in LABELS]), {}, 3, ["2 classes: nan, null"],
    ),
    "labels with leading zeros": (
        csv(A, B, C, [["007", "7"][i] for i in LABELS]), {}, 3, ["2 classes: 007, 7"],
    ),
    "whole prices": (
        csv(A, B, C, (200_000 + 50_000 * A).astype(int)), {}, 3, ["values to regress on"],
    ),
    "ratings in halves": (
        csv(A, B, C, [i % 9 / 2 for i in INDEX]), {}, 3, ["values to regress on"],
    ),
    "whole numbers that are said to be values": (
        csv(A, B, C, [i % 5 for i in INDEX]), {"target": "values"}, 3, ["values to regress on"],
    ),
    "mixed labels that are said to be classes": (
        csv(A, B, C, [["0", "1", "2+"][i % 3] for i in INDEX]), {"target": "classes"}, 3,
        ["3 classes: 0, 1, 2+"],
    ),
    "texts": (
        csv(A, B, CITIES, LABELS, names="a,b,city,y"), {}, 5, ["city (3 categories)"],
    ),
    "notes": (
        csv(A, B, [f"note {i}" for i in INDEX], LABELS), {}, 2,
        ["left out: c (text, 60 values)"],
    ),
    "a text that is always the same": (
        csv(A, B, ["x"] * COUNT, LABELS), {}, 2, ['left out: c (text, "x" in all'],
    ),
    "dates": (
        csv(A, B, [f"2024-{i % 12 + 1:02d}-{i % 28 + 1:02d}" for i in INDEX], LABELS), {}, 2,
        ["left out: c (dates)"],
    ),
    "dates that records share": (
        csv(A, B, [f"2024-01-0{i % 3 + 1}" for i in INDEX], LABELS), {}, 2, ["left out: c (dates)"],
    ),
    "shared dates that features name": (
        csv(A, B, [f"2024-01-0{i % 3 + 1}" for i in INDEX], LABELS), {"features": ["a", "c"]}, 4,
        ["c (3 categories)"],
    ),
    "percentages": (
        csv(A, B, [f"{i}.5%" for i in INDEX], LABELS), {}, 2,
        ["c (text, 60 values, as \"", '.5%": take off "%", and they are numbers)'],
    ),
    "dollars": (
        csv(A, B, [f"${i}" for i in INDEX], LABELS), {}, 2, ['take off "$", and they are numbers)'],
    ),
    "percentages that records share": (
        csv(A, B, [f"{i % 3}%" for i in INDEX], LABELS), {}, 5,
        ['caution: c holds numbers with "%", taken for categories'],
    ),
    "codes that are padded": (
        csv(A, B, [f"{i:05d}" for i in INDEX], LABELS), {}, 2, ["c (text, 60 values)"],
    ),
    "identifiers beyond float64": (
        csv(A, B, [f"90071992547409920000{i}" for i in INDEX], LABELS), {}, 2, ["c (text, 60"],
    ),
    "truths": (csv(A, B, [str(i % 3 == 0) for i in INDEX], LABELS), {}, 3, ["inputs: a, b, c"]),
    "an unnamed index": (
        csv(INDEX, A, B, C, LABELS, names=",a,b,c,y"), {}, 3,
        ["left out: column 1 (no name: numbers of records)"],
    ),
    "an index that was saved twice": (
        csv(INDEX, INDEX[::-1], A, B, LABELS, names=",Unnamed: 0,a,b,y"), {}, 2,
        ["column 1 (no name: numbers of records), Unnamed: 0 (no name"],
    ),
    "a trailing separator": (
        PLAIN.replace("\n", ",\n"), {}, 3, ["left out: column 5 (empty)"],
    ),
    "an empty column": (
        csv(A, [""] * COUNT, C, LABELS), {}, 2, ["left out: b (empty)"],
    ),
    "an identifier by name": (
        csv(INDEX, B, C, LABELS, names="id,b,c,y"), {}, 2,
        ["left out: id (an identifier, another in every record)"],
    ),
    "an identifier that features name": (
        csv(INDEX, B, C, LABELS, names="id,b,c,y"), {"features": ["id", "b", "c"]}, 3,
        ["caution: id counts the records"],
    ),
    "a column that counts, under a name of its own": (
        csv(INDEX, B, C, LABELS, names="day,b,c,y"), {}, 3, ["caution: day counts the records"],
    ),
    "the label in other words": (
        csv(A, B, ["mf"[i] for i in LABELS], LABELS, names="a,b,sex,y"),
        {"features": ["a", "b", "sex"]}, 4, ["caution: sex is the label in other words"],
    ),
    "missing numbers that are named": (
        csv(A, some(B, "?"), C, LABELS), {"missing": ["?"]}, 3, ["missing numbers filled: b"],
    ),
    "empty cells that are named": (
        csv(A, some(B, ""), C, LABELS), {"missing": [""]}, 3, ["missing numbers filled: b"],
    ),
    "missing words that are classes too": (
        csv(A, some(B, "NA"), C, KINDS), {"missing": ["NA"]}, 3, ["3 classes: NA, None, mild"],
    ),
    "a column that is excluded": (
        csv(A, some(B, "?"), C, LABELS), {"exclude": ["b"]}, 2, ["left out: b (data.exclude)"],
    ),
    "columns that are named": (PLAIN, {"features": ["a"]}, 1, ["b (not in data.features), c (not"]),
    "no line of names": (
        csv(A, B, C, LABELS, names=""), {"header": False, "label": 4}, 3,
        ["label 4", "read as no line of names"],
    ),
    "names that count": (csv(A, B, C, LABELS, names="0,1,2,y"), {}, 3, ["inputs: 0, 1, 2"]),
    "names that are years": (
        csv(A, B, C, LABELS, names="2019,2020,2021,y"), {"header": True}, 3, ["inputs: 2019, 2020"],
    ),
    "a label whose name is a number": (
        csv(A, B, C, LABELS, names="0,1,2,3"), {"label": 3}, 3, ["label 3 (2 classes"],
    ),
    "a quoted cell over two lines": (
        csv(A, B, [f'"x\n{i % 2}"' for i in INDEX], LABELS), {}, 4, ["60 records"],
    ),
    "exponents": (csv([f"{x:e}" for x in A], B, C, LABELS), {}, 3, ["inputs: a, b, c"]),
    "numbers without a nought": (
        csv([str(x).replace("0.", ".") for x in A], B, C, LABELS), {}, 3, ["inputs: a, b, c"],
    ),
    "ambiguous thousands beside a clear decimal": (
        csv([f"{i % 9 + 1}.{i:03d}" for i in INDEX], comma(B), LABELS, names="a;b;y",
            separator=";"),
        {}, 2, ['thousands "."'],
    ),
    "a separator that the first line states": (
        "sep=|\n" + csv(A, B, C, LABELS, names="a|b|c|y", separator="|"), {}, 3,
        ["3 inputs: a, b, c", 'separator "|"'],
    ),
    "texts with gaps": (
        csv(A, B, some(CITIES, ""), LABELS, names="a,b,city,y"), {}, 5,
        ["empty texts have no category: city"],
    ),
    "thousands that are named": (
        csv([f'"{i % 9 + 1},{i:03d}"' for i in INDEX], B.astype(int), LABELS, names="a,b,y"),
        {"thousands": ","}, 2, ['thousands ","'],
    ),
}  # fmt: skip


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("name", list(READ))
def test_a_file_is_read_as_meant_and_one_line_says_so(tmp_path: Path, name: str) -> None:
    written, options, width, words = READ[name]
    found = load(tmp_path, written, **options)
    assert len(found.train) + len(found.test) == COUNT
    assert found.train.inputs.shape[1:] == (width,)
    assert found.train.inputs.dtype == np.float32
    assert "\n" not in line(found)
    for word in words:
        assert word in line(found)


REFUSED: dict[str, tuple[Written, dict[str, Any], list[str]]] = {
    "two columns of one name": (
        csv(LABELS, A, C, 1 - LABELS, names="y,a,c,y"), {}, ['"y" is the name of columns 1 and 4'],
    ),
    "names that differ by a space": (
        csv(LABELS, A, C, 1 - LABELS, names="y ,a,c,y"), {}, ['"y" is the name of columns 1 and 4'],
    ),
    "a column without a name that is no index": (
        csv(A, B, C, LABELS, names=",b,c,y"), {}, ["column 1 has no name", "give it one"],
    ),
    "a question mark": (
        csv(A, some(B, "?"), C, LABELS), {},
        ['"b"', '3 of 60 are "?"', 'data.missing = ["?"]', 'data.exclude = ["b"]'],
    ),
    "nan as a text": (
        csv(A, some(B, "nan"), C, LABELS), {}, ['3 of 60 are "nan"', 'data.missing = ["nan"]'],
    ),
    "an infinity": (csv(A, some(B, "inf"), C, LABELS), {}, ['3 of 60 are "inf"']),
    "empty cells": (
        csv(A, some(B, ""), C, LABELS), {},
        ['"b" has missing values (3 of 60, first in record 4)', 'data.missing = [""]'],
    ),
    "a label that is missing": (
        csv(A, B, C, some(LABELS, "")), {},
        ['data.label = "y"', "missing (3 of 60, first in record 4)", "drop those records"],
    ),
    "labels of numbers and a word": (
        csv(A, B, C, some(LABELS, "NA")), {}, ['3 of 60 are "NA"', 'data.target = "classes"'],
    ),
    "whole numbers that could be both": (
        csv(A, B, C, [20 + i % 25 for i in INDEX]), {},
        ["25 different numbers", 'data.target = "classes" or data.target = "values"'],
    ),
    "texts that are all different": (
        csv(A, B, C, [f"id-{i}" for i in INDEX]), {}, ["60 different texts in 60 records"],
    ),
    "texts to regress on": (csv(A, B, C, KINDS), {"target": "values"}, ['"values" needs numbers']),
    "no line of names": (
        csv(A, B, C, LABELS, names=""), {}, ["its first line holds", "data.header = false"],
    ),
    "a first record with texts": (
        csv(A, CITIES, LABELS, names=""), {}, ["its first line holds", "data.header = false"],
    ),
    "bytes that are no UTF-8": (
        csv(A, B, C, LABELS, names="größe,b,c,y").encode("cp1252"), {},
        ["byte 0xf6 in line 1 is no UTF-8", 'data.encoding = "cp1252"'],
    ),
    "UTF-16 without a mark": (
        PLAIN.encode("utf-16-le"), {}, ["zero bytes", 'data.encoding = "utf-16-le"'],
    ),
    "an encoding that does not exist": (PLAIN, {"encoding": "utf-61"}, ['"utf-61": no such']),
    "an encoding that is another": (
        "größe,y\n".encode("cp1252"), {"encoding": "ascii"}, ["is no ASCII; name another"],
    ),
    "a line that is too long": (PLAIN + "1,2,3,0,5\n", {}, ["line 62 has 5 cells and the first 4"]),
    "a line that is too short": (PLAIN + "1,2\n", {}, ["line 62 has 2 cells and the first 4"]),
    "a title above the names": ("Report of May\n" + PLAIN, {}, ["line 2 has 4 cells"]),
    "a decimal comma between commas": (
        csv(*map(comma, (A, B, C)), LABELS), {}, ["line 2 has 7 cells and the first 4"],
    ),
    "two separators that fit": (
        csv(A, B, names="a;y,b;c", separator=";0,0;"), {}, ['"," and ";"', "data.separator"],
    ),
    "thousands or decimals": (
        csv([f"{i % 9 + 1},{i:03d}" for i in INDEX], LABELS, names="a;y", separator=";"), {},
        ['"1,000" is 1000 or 1', 'data.decimal = "," with data.thousands = "none"',
         'data.thousands = ","'],
    ),
    "points that could be thousands": (
        csv([f"{i % 9 + 1}.{i:03d}" for i in INDEX], LABELS, names="a;y", separator=";"), {},
        ['"1.000" is 1 or 1000', 'data.decimal = "." with data.thousands = "none"'],
    ),
    "one mark for both": (PLAIN, {"decimal": ",", "thousands": ","}, ["are the same mark"]),
    "a separator that splits nothing": (
        PLAIN.replace(",", " "), {}, ['"y": no such column; there are a b c y', "data.separator"],
    ),
    "a label that is no column": (PLAIN, {"label": "z"}, ["t.csv", "no such column", "a, b, c, y"]),
    "a column to leave out that is none": (PLAIN, {"exclude": ["d"]}, ["data.exclude", '"d"']),
    "a column to use and to leave out": (
        PLAIN, {"features": ["a", "b"], "exclude": ["b"]}, ["data.exclude both name", '"b"'],
    ),
    "classes of prices": (
        csv(A, B, C, [150000 + 7 * i for i in INDEX]), {"target": "classes"},
        ["each of 60 classes, of 1 records at most", 'data.target = "values"'],
    ),
    "nothing but notes": (
        csv([f"note {i}" for i in INDEX], LABELS, names="a,y"), {},
        ["no numeric column is left", "a: text, 60 values"],
    ),
}  # fmt: skip


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("name", list(REFUSED))
def test_a_file_whose_meaning_is_open_is_refused_with_the_cure(tmp_path: Path, name: str) -> None:
    written, options, words = REFUSED[name]
    with pytest.raises(DataError) as caught:
        load(tmp_path, written, **options)
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith(('data.path = "', "data.encoding", "data.decimal"))
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("names", "shown"),
    [(f"a,{'b' * 5000},c,y", "b…"), ('a,"b\nd",c,y', "a, b d, c, y")],
    ids=["all records in one name", "a line end in a name"],
)
def test_names_of_columns_fit_one_line(tmp_path: Path, names: str, shown: str) -> None:
    with pytest.raises(DataError) as refused:
        load(tmp_path, csv(A, B, C, LABELS, names=names), label="z")
    said = str(refused.value).removeprefix(f'data.path = "{tmp_path}')
    assert shown in said
    assert "\n" not in said
    assert len(said) < 400


@pytest.mark.parametrize(
    "name", ["thousands in quotes", "decimal comma and semicolons", "UTF-16", "tabs"]
)
def test_a_dialect_changes_no_number(tmp_path: Path, name: str) -> None:
    written, options, _, _ = READ[name]
    plain = [[float(x.replace(",", "")) for x in BIG], B, C] if "thousands" in name else [A, B, C]
    expected = load(tmp_path, csv(*plain, LABELS), "plain.csv")
    found = load(tmp_path, written, **options)
    assert np.array_equal(found.train.inputs, expected.train.inputs)
    assert np.array_equal(found.train.targets, expected.train.targets)


def frame() -> pd.DataFrame:
    return pd.DataFrame({"a": A, "b": B, "city": CITIES, "y": LABELS})


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz"])
def test_the_three_formats_say_and_give_the_same(tmp_path: Path, name: str) -> None:
    def write(path: Path) -> None:
        data = frame()
        if path.suffix == ".npz":
            arrays: dict[str, Any] = {str(n): data[n].to_numpy() for n in data if n != "city"}
            np.savez(path, **arrays, city=np.array(CITIES))
        elif path.suffix == ".parquet":
            data.to_parquet(path)
        else:
            data.to_csv(path, index=False)

    found, expected = load(tmp_path, write, name), load(tmp_path, frame().to_csv(index=False))
    assert found.train.inputs.shape == (48, 5)
    assert set(line(found).split(": ", 1)[1]) == set(line(expected).split(": ", 1)[1])
    assert sorted(map(tuple, found.train.inputs)) == sorted(map(tuple, expected.train.inputs))


def parquet(**columns: Any) -> Callable[[Path], None]:
    return lambda path: pd.DataFrame({"a": A, **columns, "y": LABELS}).to_parquet(path)


@pytest.mark.parametrize(
    ("written", "options", "words"),
    [
        (parquet(b=pd.date_range("2024-01-01", periods=COUNT)), {}, "left out: b (dates)"),
        (parquet(b=[[1, 2]] * COUNT), {}, "left out: b (objects)"),
        (parquet(b=pd.Categorical(CITIES)), {}, "b (3 categories)"),
        (parquet(b=pd.array([None, *range(COUNT - 1)], dtype="Int64")), {"missing": []}, "filled"),
        (parquet(b=[str(x) for x in B]), {}, "2 inputs: a, b"),
        (lambda p: frame().set_index("city").to_parquet(p), {}, "city (3 categories)"),
        (lambda p: frame().sample(frac=1, random_state=0).to_parquet(p), {}, "3 inputs: a, b"),
    ],
)
def test_a_parquet_column_of_any_type_is_read_or_named(
    tmp_path: Path, written: Written, options: dict[str, Any], words: str
) -> None:
    assert words in line(load(tmp_path, written, "t.parquet", **options))


def test_gaps_of_a_parquet_column_are_refused_like_those_of_a_csv(tmp_path: Path) -> None:
    gaps = pd.array([None, *range(COUNT - 1)], dtype="Int64")
    with pytest.raises(DataError, match=r'"b" has missing values \(1 of 60, first in record 1\)'):
        load(tmp_path, parquet(b=gaps), "t.parquet")


def test_arrays_of_an_npz_that_are_no_inputs_are_named(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        more = {
            "z": A + 1j,
            "when": np.arange(COUNT).astype("M8[D]"),
            "names": np.array(["a", "z"]),
        }
        np.savez(path, a=A, y=LABELS, **more)

    said = line(load(tmp_path, write, "t.npz"))
    assert "left out: z (complex numbers), when (dates), names (object of shape (2,))" in said


def test_arrays_of_several_columns_say_how_many(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        np.savez(path, a=A, x=np.stack([A, B, C, A], 1), one=B[:, None], y=LABELS)

    assert "3 inputs: a, x (4 columns), one (1 column);" in line(load(tmp_path, write, "t.npz"))
    images = load(
        tmp_path,
        lambda path: np.savez(path, x=np.stack([A] * 12, 1).reshape(COUNT, 1, 3, 4), y=LABELS),
        "images.npz",
    )
    assert "1 input: x (1x3x4 numbers);" in line(images)


def test_arrays_of_another_byte_order_are_the_same_numbers(tmp_path: Path) -> None:
    def write(path: Path) -> None:
        np.savez(path, a=A.astype(">f8"), b=B.astype(">f8"), y=LABELS.astype(">i4"))

    found = load(tmp_path, write, "t.npz")
    expected = load(tmp_path, csv(A, B, LABELS, names="a,b,y"))
    assert np.array_equal(found.train.inputs, expected.train.inputs)


@pytest.mark.parametrize("label", [["0", "1", "1"], ["10", "9", "9"]])
def test_texts_that_are_numbers_are_the_same_classes_in_every_format(
    tmp_path: Path, label: list[str]
) -> None:
    named = [label[i % 3] for i in INDEX]

    def write(path: Path) -> None:
        np.savez(path, a=A, y=np.array(named))

    found = load(tmp_path, write, "t.npz")
    expected = load(tmp_path, csv(A, named, names="a,y"))
    assert np.array_equal(found.train.targets, expected.train.targets)


def test_inputs_are_scaled_before_they_lose_digits(tmp_path: Path) -> None:
    """Seconds since 1970 over one hour, and 1e12 beside 1e-9, as an independent float64 says."""
    seconds = 1_700_000_000 + RNG.integers(0, 3600, COUNT)
    large, small = 1e12 + RNG.normal(size=COUNT), 1e-9 * RNG.normal(size=COUNT)
    text = csv(seconds, [f"{x:.4f}" for x in large], [repr(float(x)) for x in small], LABELS)
    found = load(tmp_path, text)
    whole = np.stack([seconds, [float(f"{x:.4f}") for x in large], small], axis=1)
    rows = load(tmp_path, csv(INDEX, LABELS, names="a,y"), "rows.csv")
    index = np.round(rows.train.inputs[:, 0] * np.std(_public(rows)) + np.mean(_public(rows)))
    public = np.setdiff1d(np.arange(COUNT), index.astype(int))
    wanted = (whole - whole[public].mean(0)) / whole[public].std(0)
    np.testing.assert_allclose(found.train.inputs, wanted[index.astype(int)], rtol=1e-3, atol=1e-5)
    cast = whole.astype(np.float32).astype(np.float64)
    lost = (cast - cast[public].mean(0)) / np.maximum(cast[public].std(0), 1e-30)
    assert np.abs(lost - wanted)[:, :2].max() > 0.1, "the control: float32 first is far off"


def _public(rows: Collection) -> np.ndarray:
    """Return the indices of the public records, of a table whose only input is the index."""
    scaled = np.concatenate([rows.train.inputs[:, 0], rows.test.inputs[:, 0]])
    order = np.argsort(np.argsort(scaled))
    return order[len(rows.train) :]


def test_categories_are_those_of_the_public_records(tmp_path: Path) -> None:
    """A category of one private record changes neither the shape of a model nor any other input."""
    before = load(tmp_path, csv(A, B, CITIES, LABELS, names="a,b,city,y"))
    rows = load(tmp_path, csv(INDEX, LABELS, names="a,y"), "rows.csv")
    private = int(np.setdiff1d(INDEX, _public(rows))[0])
    cities = [city if i != private else "Oslo" for i, city in enumerate(CITIES)]
    after = load(tmp_path, csv(A, B, cities, LABELS, names="a,b,city,y"), "after.csv")
    said = "some records have a category that no public record has, which counts as none: city (1)"
    assert said in line(after)
    assert said not in line(before)
    changed = (after.train.inputs != before.train.inputs).any(axis=1)
    assert changed.sum() == 1
    assert (after.train.inputs[changed, 2:] == 0).all()
    assert np.array_equal(after.test.inputs, before.test.inputs)


def test_missing_numbers_become_the_public_mean(tmp_path: Path) -> None:
    found = load(tmp_path, csv(A, some(B, "?"), C, LABELS), missing=["?"])
    every = np.concatenate([found.train.inputs, found.test.inputs])
    assert (every[:, 1] == 0).sum() == 3


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    import os

    load(tmp_path, PLAIN)
    os.utime(tmp_path / "t.csv", (1, 1))
    assert "2 inputs" in line(load(tmp_path, csv(A, B, LABELS, names="a,b,y")))
