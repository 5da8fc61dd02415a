"""The script that counts executed code still finds both of its stretches."""

from pathlib import Path

import pytest

import executed_code


@pytest.mark.slow
def test_each_stretch_executes_functions_of_all_parts(tmp_path: Path) -> None:
    stretches = executed_code.measured(tmp_path, "digits")
    assert list(stretches) == ["one pairwise round", "from TOML to round 1"]
    for codes in stretches.values():
        parts = {executed_code.part_of(code.co_filename) for code in codes}
        assert parts == set(executed_code.PART_FOLDERS)
    names = {code.co_qualname for code in stretches["one pairwise round"]}
    assert {"ClientParty.contribute", "ServerParty._remove_masks"} <= names
    assert "ClientParty.contribute" not in {
        code.co_qualname for code in stretches["from TOML to round 1"]
    }


def test_a_function_within_a_function_is_counted_once() -> None:
    def outer() -> int:
        def inner() -> int:
            return 1

        return inner()

    inner = next(c for c in outer.__code__.co_consts if hasattr(c, "co_code"))
    both = list(executed_code.lines_of({outer.__code__, inner}))
    assert len(both) == len(list(executed_code.lines_of({outer.__code__}))) == 5
