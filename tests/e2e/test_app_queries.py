"""Other people's Flower apps that answer queries: what comes back is the sum, and nothing else."""

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from narrowed import present
from query_apps import CELLS, POLICY, SECAGG, SUMS, answered, app_of, asked, plain_sums
from strategy_apps import Wire, carried, says
from typer.testing import CliRunner

import zerosum.client.flower.private_mod as mod_module
import zerosum.server.flower.private_queries as queries_module
from zerosum.client import private_mod
from zerosum.client.flower.app_request import marked, stage_type
from zerosum.client.protocol.stored_counters import read_spending
from zerosum.client.queries.errors import QueryError
from zerosum.server import Counts, PrivateQueries, Reals
from zerosum.server.analytics.asks import QueryAbandoned
from zerosum.server.analytics.budget import BudgetExceeded
from zerosum.server.config import ConfigError
from zerosum.server.flower import hello_refusals
from zerosum.server.privacy.ledger_file import LedgerMismatchError
from zerosum.server.runs.run_folder import check_unused
from zerosum.simulations.commands.budget import spending_in
from zerosum.simulations.commands.main import app as commands
from zerosum.simulations.engine.grid import InProcessGrid

CLIENTS = 6
PLAIN: dict[str, Any] = {"privacy": {"model": "none"}, "secagg": SECAGG}
NOISY: dict[str, Any] = {
    "epsilon": 1.0,
    "budget": 2.5,
    "privacy": {"honest_fraction": 0.6},
    "secagg": SECAGG,
}


@pytest.fixture
def grid_of(tmp_path):
    """Return a grid whose clients have a folder and a policy of their own."""

    def grid(app, policy=POLICY):
        path = tmp_path / "policy.toml"
        path.write_text(policy)

        def config(index):
            return {"state-dir": str(tmp_path / "state" / str(index)), "policy": str(path)}

        return InProcessGrid(app, CLIENTS, node_config=config)

    return grid


def results(replies):
    """The one reply's values."""
    (reply,) = replies
    assert not reply.has_error()
    return dict(reply.content["results"])


def check_plain(found, indices=range(CLIENTS)):
    wanted = plain_sums(indices)
    total = found.pop("length_total")
    assert total == pytest.approx(wanted.pop("length_total"), rel=1e-9)
    assert found == wanted


@pytest.mark.parametrize("transport", [lambda app: app, carried], ids=["objects", "bytes"])
def test_without_noise_the_reply_is_the_sum_and_holds_nothing_that_was_not_declared(
    transport, grid_of, tmp_path
):
    wire = Wire(app_of([private_mod]))
    with PrivateQueries(grid_of(transport(wire)), SUMS, out=tmp_path / "run", **PLAIN) as queries:
        check_plain(results(asked(queries)))
    assert not any(says(content, b"secret") for content in wire.replies)
    assert not any(says(content, b"4711.5") for content in wire.replies)


def test_a_plain_app_shows_the_server_what_is_not_declared(grid_of):
    wire = Wire(app_of([]))
    replies = asked(grid_of(wire))
    assert len(replies) == CLIENTS
    assert any(says(content, b"secret") for content in wire.replies)  # what the test above looks at


def test_arrays_are_summed_by_the_function_that_is_asked(grid_of, tmp_path):
    sums: dict[str, dict[str, Counts | Reals]] = {
        "tables": {"table": Counts((2, 3)), "other": Reals((2, 3), most=100.0)}
    }
    queries = PrivateQueries(grid_of(app_of([private_mod])), sums, out=tmp_path / "run", **PLAIN)
    (reply,) = asked(queries, "query.arrays")
    whole = sum(np.arange(6).reshape(2, 3) + index for index in range(CLIENTS))
    table = reply.content["tables"]["table"].numpy()
    assert table.dtype == np.int64
    np.testing.assert_array_equal(table, whole)
    np.testing.assert_allclose(reply.content["tables"]["other"].numpy(), whole * 1.5, rtol=1e-9)


def test_an_app_of_actions_alone_is_greeted_by_one_of_them(grid_of, tmp_path):
    app = ClientApp(mods=[private_mod])

    @app.query("count")
    def count(message, context):
        return Message(RecordDict({"results": MetricRecord(answered(1))}), reply_to=message)

    settings = PLAIN | {"message_type": "query.count", "out": tmp_path / "run"}
    found = results(asked(PrivateQueries(grid_of(app), SUMS, **settings), "query.count"))
    assert found["length_count"] == CLIENTS * answered(1)["length_count"]


def test_an_app_that_no_greeting_reaches_ends_the_run_with_the_cure(grid_of, monkeypatch):
    app = ClientApp(mods=[private_mod])
    app.query("count")(lambda message, context: message)
    monkeypatch.setattr(hello_refusals, "FIRST_PAUSE_SECONDS", 0.0)
    with pytest.raises(ConfigError, match=r'PrivateQueries\(..., message_type="query.count"\)'):
        PrivateQueries(grid_of(app), SUMS, **PLAIN).get_node_ids()


@pytest.mark.slow
def test_some_of_the_nodes_may_be_asked(grid_of, tmp_path):
    queries = PrivateQueries(grid_of(app_of([private_mod])), SUMS, out=tmp_path / "run", **PLAIN)
    nodes = sorted(queries.get_node_ids())[:4]
    check_plain(results(asked(queries, nodes=nodes)), range(4))
    with pytest.raises(ConfigError, match="a sum of fewer than 2 hides nothing"):
        asked(queries, nodes=nodes[:1])
    with pytest.raises(ConfigError, match=r"asks nodes \[77\]"):
        asked(queries, nodes=[*nodes, 77])


WIDE: dict[str, dict[str, Counts | Reals]] = {
    "results": {"length": Counts(2000), "length_total": Reals(2000, most=9.0, sensitivity=3.0)}
}


def wide(index):
    return {"length": [index] * 2000, "length_total": [0.5 * index] * 2000}


@pytest.mark.parametrize("unit", ["record", "client"])
def test_the_noise_is_what_was_promised(unit, grid_of, tmp_path):
    sums = WIDE
    if unit == "client":  # every client's lists are cut to norms of 2,000 and 3
        sums = {"results": WIDE["results"] | {"length": Counts(2000, sensitivity=2000)}}
    app = app_of([private_mod], wide)
    settings = NOISY | {"privacy": {"honest_fraction": 0.6, "unit": unit, "mechanism": "geometric"}}
    queries = PrivateQueries(grid_of(app), sums, out=tmp_path / "run", **settings)
    found = results(asked(queries))
    # Two values share epsilon = 1 alike: s = 2 sensitivities of each, and 1/.6 of that variance.
    promised = math.sqrt(2) * 2 / math.sqrt(0.6)
    for name, sensitivity in (("length", 1 if unit == "record" else 2000), ("length_total", 3.0)):
        declared = present(queries.last).std[f"results.{name}"]
        assert declared == pytest.approx(promised * sensitivity, rel=0.07)
        deviation = np.std(np.array(found[name], dtype=float))
        # Of 2,000 draws with kurtosis 6 at most: 2.5 % a standard error.
        assert deviation == pytest.approx(declared, rel=0.15)
        assert deviation != pytest.approx(declared * math.sqrt(0.6), rel=0.15)  # shares too few
    assert np.mean(found["length"]) == pytest.approx(
        15 if unit == "record" else 5, abs=6 * declared_error(queries, "length")
    )


def declared_error(queries, name):
    return present(queries.last).std[f"results.{name}"] / math.sqrt(2000)


BAD: list[tuple[str, Any, str]] = [
    ("another length", {"length": [1, 2]}, "the same length at every client"),
    ("a number for a list", {"length": 3}, "the same length at every client"),
    ("a list for a number", {"length_count": [3]}, "a number is declared"),
    ("a real for a count", {"length_count": 3.5}, "counts are declared"),
    ("not a number", {"length_total": math.nan}, "is not finite"),
    ("infinite", {"length_total": math.inf}, "is not finite"),
    ("missing", {"length_total": None}, "has no results.length_total"),
]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param(w, s, id=n, marks=[pytest.mark.slow] * (i > 0))
        for i, (n, w, s) in enumerate(BAD)
    ],
)
@pytest.mark.parametrize("noise", [False, True], ids=["masks alone", "noise"])
def test_a_reply_that_does_not_fit_is_a_dropout_or_noise_alone(
    noise, wrong, said, grid_of, tmp_path, caplog
):
    def reply(index):
        values = answered(index) | (wrong if index == 2 else {})
        return {key: value for key, value in values.items() if value is not None}

    settings = NOISY if noise else PLAIN
    queries = PrivateQueries(
        grid_of(app_of([private_mod], reply)), SUMS, out=tmp_path / "run", **settings
    )
    found = results(asked(queries))
    assert said in caplog.text
    others = [index for index in range(CLIENTS) if index != 2]
    assert present(queries.last).clients == (CLIENTS if noise else len(others))
    if not noise:
        check_plain(found, others)
    else:  # within seven deviations, of the sum without that client
        wanted = plain_sums(others)
        for name, std in present(queries.last).std.items():
            key = name.removeprefix("results.")
            assert np.max(np.abs(np.subtract(found[key], wanted[key]))) < 9 * std


def test_what_is_beyond_its_declared_size_is_cut_to_it_and_the_node_is_told(
    grid_of, tmp_path, caplog
):
    huge = {"length": [10**15] + [-5] * (CELLS - 1), "length_total": -1e30, "length_count": 7}
    sums: dict[str, dict[str, Counts | Reals]] = {
        "results": {
            "length": Counts(CELLS, most=50),
            "length_total": Reals(most=100.0),
            "length_count": Counts(most=50),
        }
    }
    app = app_of([private_mod], lambda index: huge if index == 0 else answered(index))
    queries = PrivateQueries(grid_of(app), sums, out=tmp_path / "run", **PLAIN)
    found = results(asked(queries))
    cut = [answered(index) for index in range(1, CLIENTS)]
    assert found["length"][0] == 50 + sum(each["length"][0] for each in cut)
    assert found["length"][1:] == [sum(e["length"][i] for e in cut) for i in range(1, CELLS)]
    wanted = -100 + sum(min(100.0, each["length_total"]) for each in cut)
    assert found["length_total"] == pytest.approx(wanted, rel=1e-9)
    told = [record.getMessage() for record in caplog.records if "were cut" in record.getMessage()]
    assert told[0] == (
        "results.length: 9 of 9 numbers were cut to what is declared, 0 to 50; they are from -5 to "
        "1e+15"
    )
    assert not any("length_count" in line for line in told)  # 7 and the like are within


def changing(app, victim, change):
    """Return an app of which one client is sent other records than its fellows."""

    def lied(message, context):
        asks = message.has_content() and stage_type(message.content) == "train.contribute"
        if asks and context.node_config["partition-id"] == victim:
            change(message)
        return app(message, context)

    return lied


def other_records(message):
    message.content.update(marked(RecordDict({"more": ConfigRecord({"only": "you"})})))


def test_a_node_that_is_asked_something_else_is_not_in_the_sum(grid_of, tmp_path, caplog):
    app = changing(app_of([private_mod]), 3, other_records)
    queries = PrivateQueries(grid_of(app), SUMS, out=tmp_path / "run", **PLAIN)
    check_plain(results(asked(queries)), [0, 1, 2, 4, 5])
    assert "the records sent are not those that the request speaks of" in caplog.text


@pytest.mark.slow
def test_nodes_with_another_run_config_are_not_in_the_sum(grid_of, tmp_path, caplog):
    grid = grid_of(app_of([private_mod]))
    queries = PrivateQueries(grid, SUMS, out=tmp_path / "run", run_config={"bins": 3}, **PLAIN)
    with pytest.raises(QueryAbandoned, match="no answer to query"):
        asked(queries)
    assert "the run config that came here is not the one" in caplog.text


def test_a_plain_query_is_declined_and_the_nodes_log_says_what_is_missing(grid_of, caplog):
    replies = asked(grid_of(app_of([private_mod])))
    assert len(replies) == CLIENTS
    assert all(reply.has_error() for reply in replies)
    assert all("is PrivateQueries around the" in present(r.error.reason) for r in replies)
    assert "is PrivateQueries around the ServerApp's grid?" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["results", "result"])
def test_an_answer_of_noise_alone_is_told(name, grid_of, tmp_path, caplog):
    """A name that no reply has: every node sends noise alone, and it is paid for."""
    grid, sums = grid_of(app_of([private_mod])), {name: {"length_count": Counts()}}
    queries = PrivateQueries(grid, sums, out=tmp_path / "run", **NOISY)
    asked(queries)
    said = "no more than their noise: does the reply hold what is declared" in caplog.text
    assert said == (name == "result")


POLICIES = [
    (POLICY.split("[app_queries]")[0], "has no section [app_queries]"),
    (POLICY.replace('"record", "client"', '"client"'), "unit 'record' is not in"),
    (POLICY + "max_cells = 10\n", "11 numbers are above policy.app_queries.max_cells = 10"),
    (POLICY.replace("query = inf", "query = 0.9"), "this query has epsilon 1 for one record, and"),
    (POLICY + 'adjacency = ["replace"]\n', "adjacency 'zero_out' is not in"),
    (POLICY.replace('["none", "distributed"]', '["none"]'), "privacy model 'distributed' is not"),
    (POLICY.replace("max_epsilon = inf", "max_epsilon = 0.4"), "above the policy's max_epsilon"),
]


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        pytest.param(p, s, id=s[:30], marks=[pytest.mark.slow] * (i > 1))
        for i, (p, s) in enumerate(POLICIES)
    ],
)
def test_a_node_answers_what_its_own_policy_allows(policy, said, grid_of, tmp_path, caplog):
    grid = grid_of(app_of([private_mod]), policy)
    queries = PrivateQueries(grid, SUMS, out=tmp_path / "run", **NOISY)
    with pytest.raises(QueryAbandoned, match="the nodes' reasons are in"):
        asked(queries)
    assert said in caplog.text


def test_without_noise_nothing_bounds_the_epsilon_of_a_query(grid_of, tmp_path, caplog):
    grid = grid_of(app_of([private_mod]), POLICY.replace("query = inf", "query = 100.0"))
    queries = PrivateQueries(grid, SUMS, out=tmp_path / "run", **PLAIN)
    with pytest.raises(QueryAbandoned):
        asked(queries)
    assert "this query has epsilon inf for one record" in caplog.text


def rounds(number):
    """A content of its own for each round, as of apps that say which it is."""
    return RecordDict({"config": ConfigRecord({"round": number})})


def test_queries_end_with_the_budget_before_anything_is_sent(grid_of, tmp_path, caplog):
    caplog.set_level(logging.INFO, "flwr")
    wire = Wire(app_of([private_mod]))
    out = tmp_path / "run"
    queries = PrivateQueries(grid_of(wire), SUMS, out=out, **NOISY)
    asked(queries, content=rounds(1))
    asked(queries, content=rounds(2))
    assert "epsilon 2 of 2.5 is spent, 0.5 is left (one record, against" in caplog.text
    sent, ledger = len(wire.sent), (out / "queries.jsonl").read_bytes()
    with pytest.raises(
        BudgetExceeded, match=r"costs 1\.00; 0\.50 of 2\.50 is left; at epsilon = 0"
    ):
        asked(queries, content=rounds(3))
    assert len(wire.sent) == sent
    assert (out / "queries.jsonl").read_bytes() == ledger
    assert "costs 1.00" in json.loads((out / "refused.jsonl").read_text())["why"]
    spent: Any = spending_in(out)
    assert spent.spent.epsilon == pytest.approx(2.0)
    assert [(cost.name, cost.sums) for cost in spent.queries] == [("query", 1), ("query-2", 1)]
    drawn = CliRunner().invoke(commands, ["report", str(out)])
    assert drawn.exit_code == 2
    assert "holds an app's queries, of which there is no page" in " ".join(drawn.output.split())
    answers = json.loads((out / "answers.json").read_text())["answers"]
    assert [each["clients"] for each in answers] == [CLIENTS, CLIENTS]
    assert answers[0]["std"] == present(queries.last).std


@pytest.mark.slow
def test_the_same_query_again_has_the_stored_answer_unless_it_is_fresh(grid_of, tmp_path):
    wire = Wire(app_of([private_mod]))
    grid, out = grid_of(wire), tmp_path / "run"
    with PrivateQueries(grid, SUMS, out=out, **NOISY) as queries:
        first = results(asked(queries))
        sent = len(wire.sent)
        assert results(asked(queries)) == first
        assert len(wire.sent) == sent
    with PrivateQueries(grid, SUMS, out=out, fresh=True, **NOISY) as queries:  # gone on with
        assert results(asked(queries)) != first
        assert present(queries.spending).spent.epsilon == pytest.approx(2.0)
        with pytest.raises(BudgetExceeded):
            asked(queries)


def test_a_strategy_may_train_after_the_queries_of_its_run(grid_of, tmp_path, monkeypatch):
    """By default either has a folder of its own: a run folder that holds something is refused."""
    monkeypatch.chdir(tmp_path)
    grid = grid_of(app_of([private_mod]))
    with PrivateQueries(grid, SUMS, **PLAIN) as queries:
        asked(queries)
    assert len(list(tmp_path.glob("runs/*/answers.json"))) == 1
    check_unused(Path(f"runs/{grid.run.run_id}"))


@pytest.mark.slow
@pytest.mark.parametrize("simulated", [True, False])
def test_a_simulation_says_that_nobody_is_protected(
    simulated, grid_of, tmp_path, caplog, monkeypatch
):
    """The control: the same queries of a deployment do not say so."""
    monkeypatch.setattr(mod_module, "is_simulated", lambda context: simulated)
    monkeypatch.setattr(queries_module, "is_simulation", lambda grid: simulated)
    (tmp_path / "pyproject.toml").write_text('[tool.flwr.app]\npublisher = "somebody"\n')
    with PrivateQueries(
        grid_of(app_of([private_mod])), SUMS, out=tmp_path / "run", **PLAIN
    ) as queries:
        asked(queries)
    assert caplog.text.count("nobody is protected") == int(simulated)
    assert caplog.text.count("lies in the Flower app") == 1  # of either kind


@pytest.mark.slow
def test_without_noise_the_nodes_are_asked_again(grid_of, tmp_path):
    wire = Wire(app_of([private_mod]))
    queries = PrivateQueries(grid_of(wire), SUMS, out=tmp_path / "run", **PLAIN)
    asked(queries)
    sent = len(wire.sent)
    check_plain(results(asked(queries)))
    assert len(wire.sent) > sent
    assert queries.spending is None


@pytest.mark.slow
def test_a_folder_goes_on_with_its_own_budget_alone(grid_of, tmp_path):
    grid, out = grid_of(app_of([private_mod])), tmp_path / "run"
    with PrivateQueries(grid, SUMS, out=out, **NOISY) as queries:
        asked(queries)
        other = PrivateQueries(grid, SUMS, out=out, **NOISY)
        with pytest.raises(QueryError, match="another process asks here"):
            asked(other)
    richer = PrivateQueries(grid, SUMS, out=out, **NOISY | {"budget": 25.0})
    with pytest.raises(LedgerMismatchError, match=r"opened with epsilon = 2\.5"):
        asked(richer)
    richer.close()
    (out / "queries.jsonl").unlink()
    with pytest.raises(LedgerMismatchError, match="no line says that it was paid"):
        asked(PrivateQueries(grid, SUMS, out=out, **NOISY))


@pytest.mark.slow
def test_a_folder_has_a_budget_or_sums_without_noise_and_not_both(grid_of, tmp_path):
    grid = grid_of(app_of([private_mod]))
    noisy, plain = tmp_path / "noisy", tmp_path / "plain"
    with PrivateQueries(grid, SUMS, out=noisy, **NOISY) as queries:
        asked(queries)
    with PrivateQueries(grid, SUMS, out=plain, **PLAIN) as queries:
        asked(queries)
    with pytest.raises(QueryError, match="has a budget, and sums without noise have none"):
        asked(PrivateQueries(grid, SUMS, out=noisy, **PLAIN))
    with pytest.raises(LedgerMismatchError, match="are without noise, or"):
        asked(PrivateQueries(grid, SUMS, out=plain, **NOISY))
    with PrivateQueries(grid, SUMS, out=noisy, **NOISY) as queries:
        asked(queries)
        assert present(queries.last).stored  # the budget's folder is as it was
    check = PrivateQueries(grid, SUMS, out=plain, **PLAIN)
    check_plain(results(asked(check)))


def test_nothing_is_asked_after_a_folder_was_let_go(grid_of, tmp_path):
    queries = PrivateQueries(grid_of(app_of([private_mod])), SUMS, out=tmp_path, **NOISY)
    nodes = list(queries.get_node_ids())
    queries.close()
    with pytest.raises(QueryError, match="is closed"):
        asked(queries, nodes=nodes)
    never = PrivateQueries(grid_of(app_of([private_mod])), SUMS, out=tmp_path, **NOISY)
    never.close()
    with pytest.raises(QueryError, match="is closed"):
        never.get_node_ids()


@pytest.mark.parametrize("shape", [2.5, [2, 3], "3"])
def test_a_shape_that_is_none_is_refused_in_a_line(shape, grid_of):
    with pytest.raises(ConfigError, match="leave it out for a number"):
        PrivateQueries(grid_of(app_of([private_mod])), {"r": {"x": Counts(shape)}}, **PLAIN)


@pytest.mark.slow
def test_two_analysts_have_two_budgets_and_a_node_counts_both(grid_of, tmp_path, caplog):
    policy = POLICY.replace("max_epsilon = inf", 'max_epsilon = 1.5\nbudget_rule = "sum"')
    grid = grid_of(app_of([private_mod]), policy)
    one = PrivateQueries(grid, SUMS, out=tmp_path / "one", **NOISY)
    asked(one)
    # Its noise is pure: the node's count is the analyst's, but for the sampler's last bits.
    count = read_spending(tmp_path / "state" / "0")
    assert count.record.pure == pytest.approx(1.0, rel=1e-6)
    cheap = NOISY | {"epsilon": 0.25}
    two = PrivateQueries(grid, SUMS, out=tmp_path / "two", **cheap)
    asked(two)
    assert present(two.spending).spent.epsilon == pytest.approx(0.25)
    with pytest.raises(QueryAbandoned):
        asked(PrivateQueries(grid, SUMS, out=tmp_path / "three", **NOISY))
    assert "above the policy's max_epsilon = 1.5" in caplog.text


def test_a_query_that_was_given_up_after_its_noise_was_drawn_stays_charged(grid_of, tmp_path):
    app = app_of([private_mod])

    def losing(message, context):
        if message.has_content() and stage_type(message.content) == "query.unmask":
            raise RuntimeError("gone")
        return app(message, context)

    queries = PrivateQueries(grid_of(losing), SUMS, out=tmp_path / "run", **NOISY)
    with pytest.raises(QueryAbandoned):
        asked(queries)
    spending = present(queries.spending)
    assert spending.spent.epsilon == pytest.approx(1.0)
    assert [cost.abandoned for cost in spending.queries] == [1]


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (None, NOISY, "records and no sums: let the app count them over a grid"),
    ({}, NOISY, r"A loop that trains is no query: .*PrivateStrategy\(FedAvg\(\), clip=1\.0, noise"),
    ({"results": {}}, NOISY, "results: no value of it is declared"),
    ({"results": {"length": 9}}, NOISY, r"results.length = 9 is neither Counts\(...\) nor Reals"),
    ({"results": {"a": Counts(3), "b": Counts((3,))}}, PLAIN, "a record has arrays"),
    ({"results": {"a": Reals(most=1.0)}}, NOISY, "a: sensitivity is missing: write what one rec"),
    (SUMS, NOISY | {"privacy": {"unit": "client"}}, "sensitivity is missing: write what one node"),
    ({"results": {"a": Counts(sensitivity=1.5)}}, NOISY, "counts change by whole numbers"),  # type: ignore[arg-type]
    ({"results": {"a": Counts(2.5)}}, PLAIN, r"results.a: shape = 2\.5: leave it out"),  # type: ignore[arg-type]
    ({"results": {"a": Counts([2, 3])}}, PLAIN, "write 10 for a list"),  # type: ignore[arg-type]
    ({"results": {"a": Reals(most="1e4")}}, PLAIN, "most = '1e4' is no number"),  # type: ignore[arg-type]
    ({"results": {"a": Counts(0)}}, PLAIN, "results.a: shape"),
    ({"results": {"a": Reals(most=1e30, sensitivity=1.0)}}, NOISY, "is too large beside its"),
    (SUMS, {"secagg": SECAGG}, "epsilon and budget missing: write epsilon, what one query may"),
    (SUMS, NOISY | {"budget": None}, "budget missing"),
    (SUMS, PLAIN | {"epsilon": 1.0}, "has no epsilon and no budget"),
    (SUMS, NOISY | {"epsilon": -1.0}, "epsilon=-1.0"),
    (SUMS, NOISY | {"privacy": {"unti": "record"}}, r'"unti": .* did you mean privacy=\{"unit": '),
    (SUMS, PLAIN | {"message_type": "train"}, "a message of type train: PrivateQueries answers"),
    (SUMS, NOISY | {"secagg": {"protocol": "ideal"}}, 'a deployed client takes part in "pairwise"'),
]


@pytest.mark.parametrize(("sums", "settings", "said"), REFUSED, ids=[s[:35] for *_, s in REFUSED])
def test_a_wrong_setting_is_one_line_that_names_it(sums, settings, said, grid_of):
    with pytest.raises(ConfigError, match=said) as refused:
        PrivateQueries(grid_of(app_of([private_mod])), sums, **settings)
    assert "\n" not in str(refused.value)


def test_delta_is_below_one_over_the_nodes(grid_of, tmp_path):
    grid = grid_of(app_of([private_mod]))
    queries = PrivateQueries(grid, SUMS, out=tmp_path / "run", delta=0.2, **NOISY)
    with pytest.raises(ConfigError, match=r"delta = 0\.2 is not below 1/nodes"):
        queries.get_node_ids()


def test_messages_that_are_no_query_of_all_nodes_alike_are_refused(grid_of, tmp_path):
    grid: Grid = grid_of(app_of([private_mod]))
    queries = PrivateQueries(grid, SUMS, out=tmp_path / "run", **PLAIN)
    nodes = sorted(queries.get_node_ids())
    with pytest.raises(
        ConfigError, match=r'"train" .*: a strategy trains in its place, as Private'
    ):
        asked(queries, "train")
    different = [Message(rounds(node), node, "query") for node in nodes]
    with pytest.raises(ConfigError, match="different messages"):
        queries.send_and_receive(different)
    with pytest.raises(ConfigError, match=r"messages are sent by grid\.send_and_receive"):
        queries.push_messages(different)
    assert list(queries.send_and_receive([])) == []


def test_records_of_differing_lengths_end_in_a_line_that_says_what_to_send(
    grid_of, tmp_path, caplog
):
    """Times of events are not summed, whatever is declared: a survival app counts over a grid."""
    times = {"length": [1.0, 2.0], "length_count": 2, "length_total": 3.0}
    app = app_of([private_mod], lambda index: times | {"length": [1.0] * (2 + index)})
    sums: dict[str, dict[str, Counts | Reals]] = {"results": {"length": Reals(3, most=100.0)}}
    with pytest.raises(QueryAbandoned, match="does not hold what is declared"):
        asked(PrivateQueries(grid_of(app), sums, out=tmp_path / "run", **PLAIN))
    assert "count them over a grid that is fixed beforehand" in caplog.text
