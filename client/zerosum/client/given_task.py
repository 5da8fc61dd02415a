"""A task that is given as an object, where a configuration has a name."""

import sys
from collections.abc import Callable
from datetime import date, datetime, time
from types import FunctionType
from typing import Any

_ENDING = " object>"
_LONGEST_NAME_CHARACTERS = 200

_VALUES = (str, bytes, bool, int, float, list, tuple, dict, set, date, datetime, time, type(None))
"""What a configuration file or a slip of a user's holds: none of it is a task."""


class GivenTask(str):
    """The name of a task object that nothing but this process can find, and the object.

    It stands where an experiment has a task's name, and is written as that: ``config.toml`` has
    ``task = "<__main__.MyTask object>"``, which says that the object is needed again.

    Parameters
    ----------
    given : object
        A task, or a class or function that makes one.
    name : str, optional
        Default: as Python would call such an object.
    """

    given: Any

    def __new__(cls, given: object, name: str | None = None) -> "GivenTask":
        """Name the object, and keep it."""
        self = super().__new__(cls, object_name(given) if name is None else name)
        self.given = given
        return self

    def __reduce__(self) -> tuple[type["GivenTask"], tuple[object, str]]:
        """Pickle the object with its name."""
        return GivenTask, (self.given, str(self))

    def __deepcopy__(self, memo: object) -> "GivenTask":
        """Keep the one object: a copy of a task is another task."""
        return self


def named_or_given(value: Any, as_text: Callable[[Any], str]) -> str:
    """Return the name of a task: a text as it is, a class of a module by its place, or an object.

    A class or function that a module defines is as good as its name, which any process finds. An
    object may have been changed since it was made, and so goes by itself.

    Parameters
    ----------
    value : object
        What stands where a task is expected.
    as_text : callable
        Checks what can only be a name.

    Returns
    -------
    str
        A :class:`GivenTask` for an object.
    """
    if isinstance(value, GivenTask):
        return value
    if isinstance(value, _VALUES):
        return as_text(value)
    return place_of(value) or GivenTask(value)


def place_of(given: object) -> str | None:
    """Return the ``"module:object"`` of a class or function; None where no name leads to it.

    A class that was imported before its module was read again still has the name. What wraps
    another, or extends it, and has copied its name does not: it would be taken for the other.

    Parameters
    ----------
    given : object
        Any.

    Returns
    -------
    str or None
        None for what was made in a notebook, a script or a function.
    """
    if not isinstance(given, type | FunctionType):
        return None
    module, name = given.__module__, given.__qualname__
    if module in ("__main__", "__mp_main__", "builtins") or "<" in name:
        return None
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if _is_defined_as(given, found) else None


def _is_defined_as(given: type | FunctionType, found: object) -> bool:
    """Return whether what stands at a place now is what is given, or a later reading of it."""
    if found is given:
        return True
    if not isinstance(found, type | FunctionType) or found.__qualname__ != given.__qualname__:
        return False
    if any(one is found for one in _made_of(given)) or any(one is given for one in _made_of(found)):
        return False
    if isinstance(given, type) or isinstance(found, type):
        return isinstance(given, type) and isinstance(found, type)
    # A wrapper has the name of what it wraps, and its own code.
    codes = given.__code__, found.__code__
    return len({(code.co_filename, code.co_name) for code in codes}) == 1


def _made_of(given: type | FunctionType) -> list[object]:
    """Return what a class or function extends or wraps, in all steps."""
    made = list[object](given.__mro__[1:]) if isinstance(given, type) else []
    inner: object = given
    while (inner := getattr(inner, "__wrapped__", None)) is not None and inner not in made:
        made.append(inner)
    return made


def object_name(given: object) -> str:
    """Return what an object without a name is called: ``"<__main__.MyTask object>"``."""
    kind = given if isinstance(given, type | FunctionType) else type(given)
    name = f"{kind.__module__}.{kind.__qualname__}"
    plain = "".join(c if c.isprintable() else "?" for c in name)
    return f"<{plain[:_LONGEST_NAME_CHARACTERS]}{_ENDING}"


def is_object_name(name: str) -> bool:
    """Return whether a task's name says that it was given as an object."""
    return name.startswith("<") and name.endswith(_ENDING)
