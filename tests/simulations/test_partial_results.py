"""Parts of an ended command are taken up under the same request alone, and whole."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from zerosum.server.config import ConfigError
from zerosum.simulations.partial_results import PartialRows, read_request, write_request


@dataclass(frozen=True)
class Asked:
    seeds: int
    names: tuple[str, ...] = ()


def read(path: Path) -> Asked:
    return read_request(path, Asked, absent="nothing was asked", cure="ask anew")


def test_rows_of_the_same_request_are_taken_up(tmp_path: Path) -> None:
    target = tmp_path / "whole.json"
    first = PartialRows(target, "a")
    first.add({"number": 1})
    first.add({"number": 2})
    assert PartialRows(target, "a").rows == [{"number": 1}, {"number": 2}]
    first.remove()
    assert not list(tmp_path.iterdir())


def test_rows_of_another_request_are_replaced(tmp_path: Path) -> None:
    target = tmp_path / "whole.json"
    PartialRows(target, "a").add({"number": 1})
    assert PartialRows(target, "b").rows == []
    assert PartialRows(target, "a").rows == []


def test_a_row_that_a_crash_tore_is_dropped_and_the_next_begins_a_line(tmp_path: Path) -> None:
    target = tmp_path / "whole.json"
    rows = PartialRows(target, "a")
    rows.add({"number": 1})
    rows.add({"number": 2})
    assert rows.path is not None
    rows.path.write_bytes(rows.path.read_bytes()[:-4])
    again = PartialRows(target, "a")
    assert again.rows == [{"number": 1}]
    again.add({"number": 3})
    assert PartialRows(target, "a").rows == [{"number": 1}, {"number": 3}]


def test_without_a_target_rows_stay_in_memory(tmp_path: Path) -> None:
    rows = PartialRows(None, "a")
    rows.add({"number": 1})
    rows.remove()
    assert rows.rows == [{"number": 1}]


def test_a_request_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_request(tmp_path / "asked.json", Asked(3))
    assert read(tmp_path / "asked.json").seeds == 3


@pytest.mark.parametrize("text", ["", "[]", '{"seeds": 3, "unknown": 1}', "{"])
def test_a_damaged_request_is_named_with_a_cure(tmp_path: Path, text: str) -> None:
    path = tmp_path / "asked.json"
    with pytest.raises(ConfigError, match="nothing was asked"):
        read(path)
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"asked\.json is damaged .*; ask anew"):
        read(path)
