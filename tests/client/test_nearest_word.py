"""A mistyped word is answered with the nearest known one, and a far-fetched one with nothing."""

import difflib
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


def test_words_of_a_request_are_not_searched_for_longer_than_they_are(monkeypatch) -> None:
    searched: list[tuple[str, list[str], int, float]] = []

    def matches(*given):
        searched.append(given)
        return []

    monkeypatch.setattr(difflib, "get_close_matches", matches)
    assert did_you_mean("a" * 10**6, ["b" * 10**6, *map(str, range(10**5))]) == ""
    [(word, known, *_)] = searched
    assert len(word) <= 100
    assert len(known) < 1000
    assert max(map(len, known)) <= 100


def test_only_one_module_looks_for_near_words() -> None:
    root = Path(__file__).parents[2]
    users = {
        path.name
        for part in ("secagg", "client", "server", "simulations")
        for path in (root / part).rglob("*.py")
        if "import difflib" in path.read_text(encoding="utf-8")
    }
    assert users == {"nearest_word.py"}
