"""Rounds of words: the threshold from the exact tail, and which prefixes go on."""

import numpy as np
import pytest
from released_queries import STILL, exact, question

from zerosum.client.queries import words
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.query import Count, Words
from zerosum.client.queries.schema import Schema, TextColumn
from zerosum.client.queries.table import Table
from zerosum.server.analytics.answers import answer
from zerosum.server.analytics.noise_law import ReleasedNoise
from zerosum.server.analytics.prefixes import (
    INVENTED,
    is_last,
    payload_of,
    survivors,
    threshold,
    without_padding,
)

SCHEMA = Schema.of({"word": {"text": 5, "alphabet": "abc"}})
SAID = ["a"] * 9 + ["abc"] * 7 + ["cabab"] * 5 + ["bb"] * 5 + ["cabbc"]


@pytest.mark.parametrize("cells", [1, 27, 145_000])
@pytest.mark.parametrize(
    "noise", [ReleasedNoise("geometric", 5.0, 1.25), ReleasedNoise("skellam", 9.0), STILL], ids=str
)
def test_threshold_is_the_least_that_keeps_the_bound(noise: ReleasedNoise, cells: int) -> None:
    least = threshold(noise, cells, 5)
    assert cells * noise.upper_tail(least) <= INVENTED / 5
    assert least == 1 or cells * noise.upper_tail(least - 1) > INVENTED / 5


def test_threshold_of_the_first_round_is_the_one_worked_out() -> None:
    """729 + 27 candidates of 26 letters and ', five rounds at epsilon 1: scale 5, f = .8."""
    column = TextColumn(length=10, alphabet="'abcdefghijklmnopqrstuvwxyz")
    cells = words.candidate_count(column, ("",))
    assert threshold(ReleasedNoise("geometric", 5.0, 1.25), cells, 5) == pytest.approx(58, abs=3)


def ask_all(query: Words, noise: ReleasedNoise = STILL) -> list[tuple[str, ...]]:
    table = Table.of({"word": SAID}, SCHEMA)
    kept: list[tuple[str, ...]] = []
    payload = b""
    for _ in range(query.rounds(SCHEMA)):
        noisy = exact(query, table, payload)
        kept.append(survivors(question(query, SCHEMA), noisy, noise, payload))
        payload = payload_of(kept[-1])
    return kept


def test_rounds_without_noise_find_the_words() -> None:
    kept = ask_all(Words(column="word"))
    assert kept[0] == ("a\0", "ab", "bb", "ca")
    assert kept[1] == ("a\0\0\0", "abc\0", "bb\0\0", "caba", "cabb")
    assert [without_padding(word) for word in kept[2]] == ["a", "abc", "bb", "cabab", "cabbc"]


def test_most_frequent_prefixes_survive_and_ties_go_to_the_first() -> None:
    assert ask_all(Words(column="word", max_prefixes=2))[0] == ("a\0", "ab")
    query = Words(column="word", max_prefixes=3)
    table = Table.of({"word": ["bb", "aa", "cc", "ab", "bb"]}, SCHEMA)
    assert survivors(question(query, SCHEMA), exact(query, table), STILL) == ("aa", "ab", "bb")


def test_answer_has_the_top_words_by_count() -> None:
    query = Words(column="word", top=3)
    kept = ask_all(query)
    payload = payload_of(kept[1])
    assert is_last(question(query, SCHEMA), payload)
    noisy = exact(query, Table.of({"word": SAID}, SCHEMA), payload)
    made = answer(question(query, SCHEMA), noisy, STILL, 300, payload)
    assert made.tables[0][0].labels == ("a", "abc", "bb")
    assert made.values.tolist() == [9, 7, 5]
    assert made.records is None


def test_nothing_above_the_threshold_ends_the_search() -> None:
    query = Words(column="word")
    loud = ReleasedNoise("geometric", 50.0)
    noisy = exact(query, Table.of({"word": SAID}, SCHEMA))
    asked = question(query, SCHEMA, scale=50.0)
    assert survivors(asked, noisy, loud) == ()
    made = answer(asked, noisy, loud, 300)
    assert made.values.size == 0
    assert made.rows() == []
    assert "No value of word reaches" in made.sentence()


def test_an_answer_before_the_last_round_is_refused() -> None:
    query = Words(column="word")
    noisy = exact(query, Table.of({"word": SAID}, SCHEMA))
    assert not is_last(question(query, SCHEMA), b"")
    with pytest.raises(QueryError, match="no round has continued"):
        answer(question(query, SCHEMA), noisy, STILL, 300)


def test_other_sums_and_queries_are_refused() -> None:
    query = Words(column="word")
    with pytest.raises(QueryError, match="12 candidates"):
        survivors(question(query, SCHEMA), np.zeros(11, dtype=np.int64), STILL)
    with pytest.raises(QueryError, match="not of count"):
        survivors(question(Count(), SCHEMA), np.zeros(1, dtype=np.int64), STILL)


@pytest.mark.statistical
def test_invented_prefixes_are_as_rare_as_promised() -> None:
    """Nobody says anything; the control's threshold, of a round alone, invents more often."""
    query = Words(column="word")
    noise = ReleasedNoise("geometric", 4.0, 1.25)
    asked = question(query, SCHEMA, scale=4.0)
    rng = np.random.default_rng(5)
    keep = np.exp(-1 / 4)
    draws = rng.negative_binomial(1.25, 1 - keep, (2, 20_000, 12))
    noisy = draws[0] - draws[1]
    invented = np.mean([bool(survivors(asked, each, noise)) for each in noisy])
    assert invented <= INVENTED / 3 * 1.25
    careless = np.mean(noisy.max(axis=1) >= threshold(noise, 1, 1))
    assert careless > INVENTED
