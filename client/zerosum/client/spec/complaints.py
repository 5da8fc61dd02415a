"""Put what pydantic finds wrong into one line: key, value, what is allowed."""

from dataclasses import dataclass

from pydantic import ValidationError

_OURS = "value_error"
"""Type of what a validator of this package raised, in words of its own."""

_CLEARER = {"extra_forbidden": "there is no such key", "missing": "it is missing"}
"""Words in place of pydantic's "extra inputs are not permitted" and "field required"."""

_LONGEST_VALUE = 200
"""Characters of a value that a line shows."""


@dataclass(frozen=True)
class Complaint:
    """One thing that is wrong with given values.

    Attributes
    ----------
    path : tuple of str
        Keys from the outermost section to the wrong one; empty where it holds between keys.
    value : object
        What was given there.
    kind : str
        Pydantic's name of the complaint, as "missing" or "extra_forbidden".
    reason : str
        What is allowed.
    """

    path: tuple[str, ...]
    value: object
    kind: str
    reason: str

    @property
    def key(self) -> str:
        """Return the wrong key, dotted."""
        return ".".join(self.path)

    @property
    def of_one_key(self) -> str:
        """Return the reason after its key, without the value: of files, whose values are theirs."""
        return f"{self.key}: {self.reason}" if self.path else self.reason

    def __str__(self) -> str:
        """Return key, value and reason."""
        if not self.path or self.kind == "missing":
            return self.of_one_key
        shown = repr(self.value)
        if len(shown) > _LONGEST_VALUE:
            shown = f"{shown[:_LONGEST_VALUE]}..."
        return f"{self.key} = {shown}: {self.reason}"


def complaints(error: ValidationError) -> list[Complaint]:
    """Return all that pydantic finds wrong, in the order of the keys."""
    return [
        Complaint(
            tuple(map(str, each["loc"])),
            each["input"],
            each["type"],
            _reason(each["msg"], each["type"]),
        )
        for each in error.errors(include_url=False)
    ]


def first_complaint(error: ValidationError) -> Complaint:
    """Return the first thing that pydantic finds wrong."""
    return complaints(error)[0]


def _reason(message: str, kind: str) -> str:
    if kind == _OURS:  # it may begin with a name, whose letters are its own
        return message.removeprefix("Value error, ")
    return _CLEARER.get(kind, message[:1].lower() + message[1:])
