"""A mistyped word is answered with the nearest known one, and a far-fetched one with nothing."""

from pathlib import Path

import pytest

from zerosum.client.nearest_word import did_you_mean, nearest

KNOWN = ("privacy.clip", "privacy.epsilon", "rounds")


@pytest.mark.parametrize(
    ("word", "likeness", "expected"),
    [("privacy.clp", 0.6, "privacy.clip"), ("clip", 0.6, None), ("clip", 0.4, "privacy.clip")],
)
def test_nearest_word_is_found_down_to_the_likeness(
    word: str, likeness: float, expected: str | None
) -> None:
    assert nearest(word, KNOWN, likeness=likeness) == expected


def test_hint_ends_a_message_or_is_empty() -> None:
    assert did_you_mean("round", iter(KNOWN)) == '; did you mean "rounds"?'
    assert did_you_mean("zzz", KNOWN) == ""
    assert did_you_mean("round", ()) == ""


def test_only_one_module_looks_for_near_words() -> None:
    root = Path(__file__).parents[2]
    users = {
        path.name
        for part in ("secagg", "client", "server", "simulations")
        for path in (root / part).rglob("*.py")
        if "import difflib" in path.read_text(encoding="utf-8")
    }
    assert users == {"nearest_word.py"}
