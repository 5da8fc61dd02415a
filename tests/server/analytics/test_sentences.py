"""Answers in plain words."""

import numpy as np
import pytest
from released_queries import question, still_answer

from zerosum.client.queries.predicate import parse
from zerosum.client.queries.query import (
    Bayes,
    Count,
    Histogram,
    Marginals,
    Moments,
    Oracle,
    Quantile,
    Query,
    Words,
)
from zerosum.client.queries.schema import Schema
from zerosum.server.analytics.answers import answer
from zerosum.server.analytics.noise_law import ReleasedNoise
from zerosum.server.analytics.sentences import predicate_words

SCHEMA = Schema.of(
    {
        "sex": ["Female", "Male"],
        "age": {"integer": [0, 99]},
        "pay": {"number": [0.0, 10.0]},
        "word": {"text": 2, "alphabet": "ab"},
    }
)
ROWS = {
    "sex": ["Female"] * 1400 + ["Male"] * 1600,
    "age": [40] * 1500 + list(range(100)) * 15,
    "pay": [2.5] * 3000,
    "word": ["ab"] * 2000 + ["a"] * 1000,
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age >= 65", "age at least 65"),
        ("age < 65", "age below 65"),
        ("age <= 65", "age at most 65"),
        ("age > 65", "age above 65"),
        ("age = 65", "age 65"),
        ('sex != "Male"', "sex other than Male"),
        ('sex in ("Male", "Female")', "sex Male or Female"),
        ('sex in ("Male")', "sex Male"),
        ('age >= 65 and sex = "Male"', "age at least 65 and sex Male"),
        ('age > 9 and (age < 20 or sex = "Male")', "age above 9 and (age below 20 or sex Male)"),
        ("not age > 9", "not (age above 9)"),
    ],
)
def test_predicates_are_said_in_words(text: str, said: str) -> None:
    assert predicate_words(parse(text, SCHEMA)) == said


def test_count_is_said_with_its_interval() -> None:
    asked = question(Count(where=parse("age >= 65", SCHEMA)), SCHEMA)
    made = answer(asked, np.array([4118]), ReleasedNoise("geometric", 10.0, 1.25), 300)
    assert made.sentence() == (
        "Between 4,085 and 4,151 of the 300 clients' records have age at least 65 (95 %)."
    )
    assert made.sentence(0.5).startswith("Between 4,110 and 4,126 of")


def test_one_client_is_singular() -> None:
    asked = question(Count(), SCHEMA)
    made = answer(asked, np.array([9]), ReleasedNoise("geometric", 1 / 64), 1)
    assert made.sentence() == "The 1 client holds 9 records (95 %)."


SAID: list[tuple[Query, str]] = [
    (Count(), "The 300 clients hold 3,000 records (95 %)."),
    (
        Histogram(columns=("sex",)),
        "By sex, the 300 clients' records are Male (1,600), Female (1,400), (other) (0), each "
        "within 0 (95 % each).",
    ),
    (
        Moments(kind="mean", column="pay", weight=64),
        "The mean of pay over the 300 clients' records is 2.5 (95 %).",
    ),
    (
        Quantile(column="age", q=(0.5,)),
        "Over the 300 clients' records the median of age is 40 (95 %); 50 % of records are exactly "
        "40.",
    ),
    (
        Quantile(column="age", q=(0.1, 0.5)),
        "Over the 300 clients' records the 0.1 quantile of age is 19 and the median of age is 40 "
        "(95 % each); 0.5 % of records are exactly 19; 50 % of records are exactly 40.",
    ),
    (
        Bayes(label="sex", features=("age",)),
        "A naive Bayes classifier of sex by age, from the 300 clients' records, about 3,000 in "
        "number.",
    ),
    (
        Marginals(cliques=(("sex", "age"), ("age",))),
        "2 tables of the 300 clients' records, about 3,000 in number: sex x age (300 cells) and "
        "age (100 cells), each within 0 (95 % each).",
    ),
    (
        Words(column="word"),
        "The most frequent values of word over the 300 clients' records are ab (2,000), a (1,000), "
        "each within 0 (95 % each).",
    ),
]


@pytest.mark.parametrize(("query", "said"), SAID, ids=[query.kind for query, _ in SAID])
def test_every_kind_has_a_sentence(query: Query, said: str) -> None:
    assert still_answer(query, SCHEMA, ROWS).sentence() == said


def test_filters_are_said_of_every_kind() -> None:
    query = Moments(kind="mean", column="pay", weight=64, where=parse("age > 50", SCHEMA))
    assert "those of the 300 clients' records that have age above 50" in (
        still_answer(query, SCHEMA, ROWS).sentence()
    )


def test_ends_of_numbers_are_rounded_outward() -> None:
    query = Moments(kind="mean", column="pay", weight=64)
    noisy = np.array([640 * 75, 640 * 25])
    made = answer(question(query, SCHEMA), noisy, ReleasedNoise("geometric", 64.0, 1.25), 300)
    low, high = made.interval(0.95)
    words = made.sentence().split()
    said = [float(words[words.index("between") + 1]), float(words[words.index("and") + 1])]
    assert said[0] <= low < high <= said[1]
    assert said[1] - said[0] < 1.3 * (high - low)


def test_oracles_say_the_widest_interval() -> None:
    query = Oracle(column="sex", oracle="k-rr")
    made = answer(question(query, SCHEMA, scale=1.0), np.array([150, 100, 50]), None, 300)
    low, high = made.interval(0.95)
    widest = int(np.ceil(max((made.values - low).max(), (high - made.values).max())))
    assert f"each within {widest} (95 % each)" in made.sentence()


def test_records_that_a_cap_leaves_out_are_not_said_to_be_all() -> None:
    asked = question(Count(), SCHEMA)
    capped = asked.privacy.model_copy(update={"unit": "client", "cap": 2})
    asked = asked.model_copy(update={"privacy": capped})
    made = answer(asked, np.array([600]), ReleasedNoise("geometric", 1 / 64), 300)
    assert made.sentence() == "The 300 clients hold 600 records (at most 2 of each) (95 %)."
    assert made.to_json(0.95)["cap"] == 2
    report = question(Oracle(column="sex", oracle="k-rr"), SCHEMA, scale=1.0)
    said = answer(report, np.array([150, 100, 50]), None, 300).sentence()
    assert said.startswith("By sex, the 300 clients' records (at most 1 of each) are ")
