"""A complaint of pydantic is one line in this package's words."""

from typing import Any

import pytest
from pydantic import ValidationError, field_validator

from zerosum.client.spec.complaints import complaints, first_complaint
from zerosum.client.spec.section import Spec


class Inner(Spec):
    part: float

    @field_validator("part")
    @classmethod
    def _check(cls, value: float) -> float:
        if value > 1:
            raise ValueError("AGE has no more than one part")
        return value


class Outer(Spec):
    inner: Inner
    count: int = 1


def refused(values: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(values)
    return caught.value


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"inner": {"part": 2}}, "inner.part = 2: AGE has no more than one part"),
        ({"inner": {"part": "x"}}, "inner.part = 'x': input should be a valid number"),
        ({"inner": {}}, "inner.part: it is missing"),
        ({"inner": {"part": 1, "prat": "a\nb"}}, "inner.prat = 'a\\nb': there is no such key"),
        (3, "input should be a valid dictionary or instance of Outer"),
        ({"inner": {"part": "y" * 999}}, f"inner.part = '{'y' * 199}...: input should be"),
    ],
)
def test_a_line_names_key_value_and_what_is_allowed(values: Any, line: str) -> None:
    said = str(first_complaint(refused(values)))
    assert said.startswith(line)
    assert len(said.splitlines()) == 1


def test_a_complaint_on_a_file_keeps_its_values_out() -> None:
    error = refused({"inner": {"part": "secret"}, "count": "also"})
    assert [each.of_one_key.partition(":")[0] for each in complaints(error)] == [
        "inner.part",
        "count",
    ]
    assert "secret" not in first_complaint(error).of_one_key
