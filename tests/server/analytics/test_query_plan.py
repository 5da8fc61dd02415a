"""A plan that is written is read back to the same, column by column and in order."""

import tomllib

import pytest

from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import Schema
from zerosum.server.analytics.asks import Ask, QueryTerms, default_name
from zerosum.server.analytics.budget import Budget
from zerosum.server.analytics.costs import cost
from zerosum.server.analytics.drafts import Draft
from zerosum.server.analytics.query_plan import parse_plan, plan_toml

SCHEMA = {
    "zeta": {"number": [0.0, 1e5], "bins": 20},
    "word-of": {"text": 10, "alphabet": "'a-z-"},
    'größe "x"': {"integer": [-5, 90]},
    "sex": ["F", "M", "it's", 'a "b" \\ c'],
    "alpha": {"integer": [0, 9], "bins": 3},
}
DOCUMENT = {
    "clients": 7,
    "rename": {"sex": "SEX"},
    "budget": {"epsilon": 1.0, "rule": "plan"},
    "schema": SCHEMA,
    "queries": [
        {"kind": "count", "where": "sex = 'it''s' and alpha >= 3", "epsilon": 0.25},
        {"kind": "quantile", "column": "zeta", "q": [0.1, 0.5], "epsilon": 0.5, "name": "q"},
        {
            "kind": "marginals",
            "cliques": [["sex"], ["sex", "alpha"]],
            "epsilon": 0.1,
            "attempts": 2,
        },
    ],
}
TERMS = QueryTerms(Schema.of(SCHEMA), Budget(1.0, 1e-6), 300)


def test_plan_is_read_back_as_it_was_written():
    read = parse_plan(DOCUMENT, "plan")
    text = plan_toml(read)
    again = parse_plan(tomllib.loads(text), "folder")
    assert again == read
    assert list(again.domains.columns) == list(SCHEMA)
    assert plan_toml(again) == text


def test_order_of_columns_is_no_part_of_a_question():
    other = QueryTerms(Schema.of(dict(reversed(SCHEMA.items()))), TERMS.budget, 300)
    draft = Draft("histogram", 0.5, {"columns": ["sex", "alpha"]})
    keys = {cost(draft.ask(terms.schema), terms).key for terms in (TERMS, other)}
    assert len(keys) == 1
    turned = Draft("histogram", 0.5, {"columns": ["alpha", "sex"]})  # the control
    assert cost(turned.ask(TERMS.schema), TERMS).key not in keys


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({}, "kind = None"),
        ({"kind": "count"}, "epsilon is missing"),
        ({"kind": "count", "epsilon": "1"}, "epsilon = '1'"),
        ({"kind": "count", "epsilon": True}, "epsilon = True"),
        ({"kind": "count", "epsilon": float("inf")}, "epsilon = inf"),
        ({"kind": "count", "epsilon": 1, "column": "sex"}, "unknown key column"),
        ({"kind": "mean", "epsilon": 1, "column": "zeta", "weight": 64}, "unknown key weight"),
        ({"kind": "count", "epsilon": 1, "fresh": "yes"}, "fresh = 'yes'"),
        ({"kind": "count", "epsilon": 1, "attempts": 101}, "attempts = 101"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_query_that_is_none_is_refused_with_its_key(written, message):
    with pytest.raises(QueryError, match=r"^query 3: ") as told:
        Draft.read(written, at="query 3: ")
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        (Draft("mean", 1.0), "mean: column: it is missing"),
        (Draft("quantile", 1.0, {"column": "zeta", "q": []}), "quantile: q"),
        (Draft("histogram", 1.0, {"columns": ["nothing"]}), "nothing"),
        (Draft("count", 1.0, where="sex < 'F'"), "order"),
        (Draft("count", 1.0, name="../x"), "name"),
    ],
    ids=lambda value: value.kind if isinstance(value, Draft) else "",
)
def test_query_that_does_not_fit_the_schema_is_refused(draft, message):
    with pytest.raises(QueryError, match=message):
        draft.ask(TERMS.schema)


def test_names_are_made_of_what_is_asked():
    draft = Draft("histogram", 0.5, {"columns": ['größe "x"', "sex"]})
    query = draft.ask(TERMS.schema).query
    assert default_name(query) == "histogram-gr_e_x_-sex"
    assert Ask(query, 1.0, "mine").label == "mine"


@pytest.mark.parametrize("f", [0.8, 1.0])
@pytest.mark.parametrize("clients", [2, 300])
def test_fellow_client_faces_what_was_calibrated(f, clients):
    """Of n Skellam shares it knows one: the others alone meet the epsilon, whatever f."""
    terms = QueryTerms(TERMS.schema, Budget(9.0, 1e-4, rule="renyi"), clients, honest_fraction=f)
    costed = cost(Draft("count", 1.0, mechanism="skellam").ask(terms.schema), terms)
    (variance,) = costed.event("sum").parameters
    faced = (clients - 1) / (clients * f) * costed.privacy.scale**2
    assert variance <= min(faced, costed.privacy.scale**2) * (1 + 1e-9)
    (released,) = costed.event("release").parameters
    assert released == pytest.approx(costed.privacy.scale**2 / f)


LOCAL_TERMS = QueryTerms(
    TERMS.schema, Budget(1e9, 1e-6, unit="client", adjacency="replace"), 5, cap=1,
    allow_large_delta=True,
)  # fmt: skip


@pytest.mark.parametrize("epsilon", [1e-300, 1e-3, 20.5, 65.0, 1e300])
def test_report_of_an_epsilon_that_no_client_draws_is_refused_in_one_line(epsilon):
    draft = Draft("oracle", epsilon, {"column": "sex", "oracle": "oue"})
    with pytest.raises(QueryError, match=r"a report has one from 0\.0078125 to 20"):
        cost(draft.ask(TERMS.schema), LOCAL_TERMS)


@pytest.mark.parametrize(("epsilon", "clients"), [(1e300, 5), (1e4, 10**6)])
def test_moments_of_a_weight_that_no_request_carries_are_refused(epsilon, clients):
    terms = QueryTerms(TERMS.schema, Budget(1e301, 1e-6), clients, allow_large_delta=True)
    with pytest.raises(QueryError, match="weight above"):
        cost(Draft("mean", epsilon, {"column": "alpha"}).ask(TERMS.schema), terms)


@pytest.mark.parametrize(
    "changed",
    [
        {"attempts": 0},
        {"attempts": 2.5},
        {"where": 5},
        {"name": None},
        {"fresh": 1},
        {"mechanism": 3},
        {"epsilon": "1"},
    ],
    ids=lambda value: next(iter(value)),
)
def test_query_of_code_is_refused_as_one_of_a_file_is(changed):
    # Once noted, it would keep its folder from being read again.
    with pytest.raises(QueryError, match=next(iter(changed))):
        Draft(**{"kind": "count", "epsilon": 1.0} | changed)
