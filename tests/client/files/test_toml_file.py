"""What is wrong with a TOML file is said in one line, whichever part reads it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zerosum.client.files.toml_file import TomlError, read_toml
from zerosum.client.flower.node_policy import PolicyError, read_node_file
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import Schema
from zerosum.server import config
from zerosum.server.analytics.query_plan import read_document

TEXT = 'name = "größe"\n'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_utf8_is_read_with_a_byte_order_mark_and_without(
    encoding: str, line_end: str, tmp_path: Path
) -> None:
    file = tmp_path / "a b.toml"
    file.write_bytes(TEXT.replace("\n", line_end).encode(encoding))
    assert read_toml(file) == {"name": "größe"}


WRONG = {
    "UTF-16": (TEXT.encode("utf-16"), "it is UTF-16; save it as UTF-8"),
    "UTF-16 big": (b"\xfe\xff" + TEXT.encode("utf-16-be"), "it is UTF-16; save it as UTF-8"),
    "UTF-16 unmarked": (b"a = 1\n".decode().encode("utf-16-le"), "it is UTF-16"),
    "Latin-1": (("\n" + TEXT).encode("latin-1"), "byte 0xf6 in line 2 is no UTF-8; save it"),
    "no TOML": (b"a = = 1", "is not valid TOML: Invalid value"),
    "nested": (b"a = " + b"[" * 100_000, "nested too deeply"),
    "a number too long": (b"a = " + b"9" * 5000, "is not valid TOML"),
}  # fmt: skip

READERS: dict[str, tuple[Callable[[Path], Any], type[Exception]]] = {
    "experiment": (config.read_toml, config.ConfigError),
    "plan of queries": (read_document, QueryError),
    "schema": (Schema.read, QueryError),
    "policy": (lambda path: read_node_file(str(path)), PolicyError),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("reader", READERS)
def test_each_reader_names_file_and_cause_in_one_line(
    reader: str, kind: str, tmp_path: Path
) -> None:
    read, error = READERS[reader]
    data, message = WRONG[kind]
    file = tmp_path / "wrong.toml"
    file.write_bytes(data)
    with pytest.raises(error) as caught:
        read(file)
    assert str(file) in str(caught.value)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("absent.toml", "absent.toml does not exist: check the path"),
        (".", "cannot be read: Is a directory; give a TOML file"),
        ("file/x.toml", "cannot be read: Not a directory"),
        ("loop.toml", "cannot be read: Too many levels of symbolic links"),
        ("a" * 300, "cannot be read: File name too long"),
        ("nul\0.toml", "is no path: embedded null byte"),
    ],
)
def test_a_path_that_leads_nowhere_is_named_with_the_cause(
    path: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    with pytest.raises(TomlError) as caught:
        read_toml(tmp_path / path)
    assert message in str(caught.value)
