"""The page on privacy runs as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest

from zerosum.server.config import parse_experiment, read_toml

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


@pytest.mark.slow
def test_the_code_of_the_page_runs_in_order():
    names: dict[str, Any] = {}
    code = blocks("python")
    assert len(code) >= 2
    for block in code:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102
    assert names["ledger"].epsilon(1e-5) > 0


def test_no_figure_is_left_to_be_filled_in():
    assert not re.search(r"@\w+@", PAGE.read_text(encoding="utf-8"))


def test_the_settings_of_the_page_are_an_experiment(tmp_path):
    (settings,) = blocks("toml")
    path = tmp_path / "page.toml"
    path.write_text(settings, encoding="utf-8")
    assert parse_experiment(read_toml(path)).privacy.sums_gradients
