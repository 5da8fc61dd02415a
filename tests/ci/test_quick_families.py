"""Of a family of parameters each n-th member is quick."""

from pathlib import Path
from typing import Any

import pytest

CONFTEST = str(Path(__file__).parents[1] / "conftest.py")


class Member:
    """A test as pytest collects it, as far as the hook asks."""

    def __init__(self, nodeid: str, *marks: Any) -> None:
        self.nodeid, self.marks = nodeid, [mark.mark for mark in marks]

    def get_closest_marker(self, name: str) -> Any:
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark.mark)


def quick(request: pytest.FixtureRequest, members: list[Member]) -> list[str]:
    """Return the members that the hook of the tests leaves quick."""
    plugins = request.config.pluginmanager.get_plugins()
    (hooks,) = (each for each in plugins if getattr(each, "__file__", None) == CONFTEST)
    hooks.pytest_collection_modifyitems(members)
    return [member.nodeid for member in members if member.get_closest_marker("slow") is None]


def test_each_third_member_of_each_family_is_quick(request: pytest.FixtureRequest) -> None:
    mark = pytest.mark.quick_one_in(3)
    family = [Member(f"a.py::test_a[{value}]", mark) for value in range(7)]
    other = [Member(f"a.py::test_b[{value}]", mark) for value in range(2)]
    found = quick(request, [family[0], other[0], *family[1:], other[1]])
    assert found == ["a.py::test_a[0]", "a.py::test_b[0]", "a.py::test_a[3]", "a.py::test_a[6]"]


def test_what_is_slow_anyway_takes_nobodys_turn(request: pytest.FixtureRequest) -> None:
    mark = pytest.mark.quick_one_in(2)
    slow = Member("a.py::test_a[0]", mark, pytest.mark.slow)
    others = [Member(f"a.py::test_a[{value}]", mark) for value in (1, 2)]
    assert quick(request, [slow, *others, Member("a.py::test_c")]) == [
        "a.py::test_a[1]",
        "a.py::test_c",
    ]
