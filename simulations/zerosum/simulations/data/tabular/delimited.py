"""A CSV as texts: its encoding, its separator, its line of names."""

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pandas as pd

from zerosum.client.spec import DataSpec
from zerosum.simulations.data.data_files import DataError, listed, reading
from zerosum.simulations.data.tabular.numerals import is_number

SEPARATORS = ",;\t|"
"""Candidates when the separator is guessed."""

_SAMPLE_LINES = 1000
"""Lines that a separator has to split alike."""

# UTF-32's mark begins with UTF-16's, so it is looked for first.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_WORDS = {"\t": "tab", " ": "space"}

_STATED = re.compile(r'"?sep=(.)"?\n')


@dataclass(frozen=True)
class Delimited:
    """A CSV as it was split.

    Parameters
    ----------
    frame : pandas.DataFrame
        Texts, shape (records, columns), its columns numbered from 0.
    names : list of str
        Of the columns, as they are written.
    separator : str
        Between cells.
    said : tuple of str
        How the file was read, where that is not comma-separated UTF-8 under a line of names.
    """

    frame: pd.DataFrame
    names: list[str]
    separator: str
    said: tuple[str, ...]


def read_delimited(path: Path, spec: DataSpec) -> Delimited:
    """Split a CSV into texts.

    Parameters
    ----------
    path : Path
    spec : DataSpec
        ``encoding``, ``separator`` and ``header``; what is absent is guessed.

    Returns
    -------
    Delimited
        The texts of each column, and how they were read.

    Raises
    ------
    DataError
        If a byte, a line or the line of names does not fit, or what it means is open.
    """
    key = f'data.path = "{path}"'
    text, encoding = _decoded(path.read_bytes(), spec.encoding, key)
    stated = _STATED.match(text)  # a first line that spreadsheets write for each other
    if stated is not None:
        text = text[stated.end() :]
    separator = spec.separator or (_separator(text, key) if stated is None else stated[1])
    width = _width(text, separator, key)
    with reading(path, "a .csv file"):
        frame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            header=None,
            names=range(width),
            dtype=str,
            keep_default_na=False,
            skipinitialspace=True,
        )
    first = [str(cell).strip() for cell in frame.iloc[0]] if len(frame) else []
    header = _has_names(first, key) if spec.header is None else spec.header
    names = first if header else [str(number + 1) for number in range(width)]
    notes = [] if encoding in ("utf-8", "utf-8-sig") else [encoding.upper()]
    if separator != ",":
        notes.append(f'separator "{_WORDS.get(separator, separator)}"')
    if not header:
        notes.append("no line of names")
    return Delimited(frame.iloc[int(header) :], names, separator, tuple(notes))


def _decoded(content: bytes, encoding: str | None, key: str) -> tuple[str, str]:
    """Decode a file by the given encoding, else by its byte-order mark, else as UTF-8."""
    marked = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")
    chosen = encoding or marked
    try:
        text = content.decode(chosen)
    except LookupError:
        raise DataError(
            f'data.encoding = "{chosen}": no such encoding; allowed: Python\'s, as "cp1252" '
            'or "utf-16"'
        ) from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        cure = "name another" if encoding else 'name its encoding, as data.encoding = "cp1252"'
        raise DataError(
            f"{key} cannot be read: byte 0x{content[error.start]:02x} in line {line} is no "
            f"{chosen.upper()}; {cure}, or save it as UTF-8"
        ) from None
    if "\0" in text:
        raise DataError(
            f"{key} cannot be read: it holds zero bytes; name its encoding, as data.encoding = "
            '"utf-16-le", or save it as UTF-8'
        )
    # Lines of old systems end in a carriage return alone.
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return lines, chosen


def _rows(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the last line, cells) of each record that is no blank line."""
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
    for row in reader:
        if row:
            yield reader.line_num, row


def _separator(text: str, key: str) -> str:
    """Return the one separator that splits the first lines alike, into two cells or more.

    csv.Sniffer counts characters, quoted ones and decimal commas with them, and takes "1,5;2,5" for
    a file of commas. Whole lines decide here: of the marks in the line of names, the one that gives
    each line as many cells.
    """
    widths: dict[str, list[int]] = {}
    for mark in SEPARATORS:
        try:
            widths[mark] = [len(row) for _, row in islice(_rows(text, mark), _SAMPLE_LINES)]
        except csv.Error as error:
            raise DataError(f"{key} cannot be read: {error}; give a .csv file") from None
    split = {mark: counts for mark, counts in widths.items() if counts and counts[0] > 1}
    alike = [mark for mark, counts in split.items() if len(set(counts)) == 1]
    if len(alike) > 1:
        marks = " and ".join(f'"{_WORDS.get(mark, mark)}"' for mark in alike)
        raise DataError(
            f"{key}: {marks} split its lines alike; say which, as data.separator = "
            f'"{alike[0]}"'.replace("\t", "\\t")
        )
    if alike:
        return alike[0]
    # Of none: the one that fits most lines, so that the line that does not fit is named.
    return max(split, key=lambda mark: split[mark].count(split[mark][0]), default=",")


def _width(text: str, separator: str, key: str) -> int:
    """Return the number of cells, the same in each line: no cell is invented, none is lost."""
    width = 0
    try:
        for line, row in _rows(text, separator):
            width = width or len(row)
            if len(row) != width:
                raise DataError(
                    f"{key}: line {line} has {len(row)} cells and the first {width}, split at "
                    f'"{_WORDS.get(separator, separator)}"; mend it, or write data.separator'
                )
    except csv.Error as error:
        raise DataError(f"{key} cannot be read: {error}; give a .csv file") from None
    if not width:
        raise DataError(f"{key} cannot be read: it is empty; give a .csv file")
    return width


def _has_names(first: list[str], key: str) -> bool:
    """Tell whether the first line holds names; a number among them is a record's, or a name.

    Names of arrays that pandas writes count up from 0: three such numbers in a row are names.
    """
    numbers = [cell for cell in first if is_number(cell)]
    start = int(numbers[0]) if numbers and numbers[0] in ("0", "1") else 0
    counted = [str(start + place) for place in range(len(numbers))]
    if not numbers or (len(numbers) > 2 and numbers == counted):
        return True
    raise DataError(
        f"{key}: its first line holds {listed(numbers[:3])}: names, or a record? Write "
        "data.header = false where it is a record (columns are then called 1, 2, ...), or "
        "data.header = true"
    )
