"""Nodes of their own that answer queries from a file, by their own policy, budget and record."""

import csv
import os
import signal

import numpy as np
import pytest
from asked_queries import COUNT, HISTOGRAM, LOCAL, OLD, SCHEMA, query_request, rows_of
from flwr.app import Message, RecordDict

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.privacy.spending import run_name
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.protocol.query_answer import columns_read
from zerosum.client.queries.predicate import parse
from zerosum.client.queries.query import Count, Histogram, Oracle
from zerosum.client.queries.table import Table
from zerosum.client.spec import SecAggSpec
from zerosum.server.private_sum.coordinator import Coordinator, Nodes, RoundAbandoned
from zerosum.simulations.attacks.protocol.asked_nodes import provisioned
from zerosum.simulations.engine.grid import FIRST_NODE, InProcessGrid, nodes

NODES = 3
EVERYBODY = [tuple(range(NODES))]
POLICY = """
[policy]
min_cohort = 2
corruption = 0.0
max_epsilon = {epsilon}
budget_rule = "{rule}"

[policy.queries]
columns = ["age", "sex", "income", "word"]
units = {units}
max_epsilon_per_query = {most}

[table]
path = "patients{index}.csv"
rename = {{income = "wage"}}
"""


class Federation:
    """Three nodes with a CSV file, a policy and a state directory each."""

    def __init__(self, folder, epsilon=0.3, most=1.0, rule="sum", units='["record"]', write=None):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.roster, given = provisioned(folder, NODES)
        for index in range(NODES):
            (write or write_table)(folder / f"patients{index}.csv", rows_of(index))
            self.policy(index, epsilon=epsilon, most=most, rule=rule, units=units)
        self._config = lambda index: {
            **given(index),
            "policy": str(folder / f"node{index}.toml"),
            "partition-id": index,
            "num-partitions": NODES,
        }

    def policy(self, index, epsilon=0.3, most=1.0, rule="sum", units='["record"]'):
        text = POLICY.format(epsilon=epsilon, most=most, rule=rule, units=units, index=index)
        (self.folder / f"node{index}.toml").write_text(text)

    def store(self, index=0):
        return FileStore(self.folder / f"state-{index}")

    def grid(self, environment=DeployedEnvironment):
        app = build_app(environment)
        return InProcessGrid(app, NODES, node_config=self._config)

    def ask(self, request, round=1, run=b"run", environment=DeployedEnvironment):
        """Ask everybody, over nodes that have just been started: no state but the disk's."""
        coordinator = Coordinator(
            self.grid(environment),
            Nodes(nodes(NODES), self.roster),
            SecAggSpec(dropout=0.3),
            run_id=run,
            entropy=SeededEntropy(0),
        )
        return coordinator.private_sum(request, EVERYBODY, round=round)


def write_table(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sex", "age", "wage", "word"])
        writer.writerows(zip(rows["sex"], rows["age"], rows["income"], rows["word"], strict=True))


class Seeded(DeployedEnvironment):
    """A node whose noise and secret are a simulation's: for comparison alone."""

    entropy = SeededEntropy(0)

    def row_secret(self, client):
        return bytes(32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "privacy"),
    [
        (COUNT, {}),
        (Count(), {}),
        (Histogram(columns=("sex",), where=OLD), {"unit": "client", "cap": 10}),
        (Oracle(column="sex", oracle="oue"), LOCAL),
    ],
)
def test_nodes_with_files_answer_as_tables_in_memory_do(tmp_path, query, privacy):
    federation = Federation(
        tmp_path / "nodes", epsilon="inf", units='["record", "client"]', most="inf", rule="renyi"
    )
    request = query_request(query, population=NODES, **privacy)
    found = federation.ask(request, environment=Seeded).total

    class InMemory(Seeded):
        def table(self, question, client):
            return Table.of(rows_of(client.index), columns_read(question))

    other = Federation(
        tmp_path / "others", epsilon="inf", units='["record", "client"]', most="inf", rule="renyi"
    )
    assert np.array_equal(found, other.ask(request, environment=InMemory).total)


def answered(federation, request, rounds, run=b"run"):
    """Ask again and again, in the rounds given; say how often a sum was opened."""
    opened = 0
    for number in rounds:
        try:
            federation.ask(request, number, run)
        except RoundAbandoned:
            continue
        opened += 1
    return opened


@pytest.mark.slow
def test_a_node_stops_before_its_budget_is_spent_whoever_asks(tmp_path, caplog):
    federation = Federation(tmp_path / "nodes")
    request = query_request(COUNT, population=NODES)  # epsilon 0.1, of 0.3
    assert answered(federation, request, range(1, 3)) == 2
    # Another analyst, with another run: what was spent is spent.
    assert answered(federation, request, range(1, 4), b"a second analyst") == 1
    spent = federation.store().spending
    assert spent.record.pure == pytest.approx(0.3)
    assert spent.by_run == {run_name(b"run"): 2, run_name(b"a second analyst"): 1}
    assert (spent.rule, spent.order) == ("sum", None)
    assert "epsilon would be 0.4 for one record, above the policy's max_epsilon = 0.3" in (
        caplog.text
    )
    for index in range(NODES):
        federation.policy(index, epsilon=0.25)  # a lowered policy admits nothing that passes it
    assert answered(federation, query_request(COUNT, population=NODES, scale=1e4), [9]) == 0
    for index in range(NODES):
        federation.policy(index, epsilon=0.4)
    assert answered(federation, request, range(10, 13)) == 1


def killing(method, after):
    """Return a store's method that is the last thing its process does."""
    own = getattr(FileStore, method)

    def killed(self, *args, **kwargs):
        if after:
            own(self, *args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    return killed


KILLS = [
    ("raise_high_water", False, 0),
    ("raise_high_water", True, 0),
    ("append", False, 0),
    ("append", True, 0),
    ("open_budget", True, 0),
    ("count_contribution", False, 0),
    ("count_contribution", True, 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "after", "charged"), KILLS)
def test_a_node_killed_anywhere_never_answers_beyond_its_budget(tmp_path, method, after, charged):
    """Between the record on the disk and the answer, a contribution is paid for and never sent."""
    federation = Federation(tmp_path / "nodes")
    request = query_request(COUNT, population=NODES)
    child = os.fork()
    if not child:
        setattr(FileStore, method, killing(method, after))
        federation.ask(request)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert federation.store().contributions == charged
    again = answered(federation, request, [1])
    assert again == (not after and method == "raise_high_water"), "a session that had begun is over"
    more = answered(federation, request, range(2, 6))
    assert again + more + charged == 3, "the budget, with what the killed one paid"
    assert federation.store().spending.record.pure <= 0.3 * (1 + 1e-9)


def test_a_replayed_message_is_answered_once(tmp_path):
    federation = Federation(tmp_path / "nodes")
    request = query_request(COUNT, population=NODES)
    sent = []
    grid = federation.grid()
    plain = grid.send_and_receive

    def twice(messages, **kwargs):
        messages = list(messages)
        sent.extend(messages)
        return plain(messages, **kwargs)

    grid.send_and_receive = twice
    coordinator = Coordinator(
        grid, Nodes(nodes(NODES), federation.roster), SecAggSpec(dropout=0.3),
        run_id=b"run", entropy=SeededEntropy(0),
    )  # fmt: skip
    coordinator.private_sum(request, EVERYBODY, round=1)
    before = federation.store().spending
    for message in sent:
        list(plain([message]))
    assert federation.store().spending == before


@pytest.mark.slow
def test_both_costs_of_a_clients_query_are_in_the_record(tmp_path):
    """For one record it costs what it costs its client under replacement."""
    federation = Federation(tmp_path / "nodes", epsilon=5.0, units='["record", "client"]')
    request = query_request(HISTOGRAM, population=NODES, unit="client", cap=2, scale=10.0)
    federation.ask(request)
    spent = federation.store().spending
    assert spent.client.pure == pytest.approx(2 / 10)
    assert spent.record.pure == pytest.approx(4 / 10)
    federation.ask(query_request(COUNT, population=NODES), 2)
    spent = federation.store().spending
    assert (spent.client.pure_charged, spent.record.pure_charged) == (1, 2)
    assert spent.record.pure == pytest.approx(0.5)
    assert (spent.client.charged, spent.record.charged, spent.contributions) == (1, 2, 2)
    # A policy that has the client for its unit now has no bound for what was sent of records.
    for index in range(NODES):
        federation.policy(index, epsilon=100.0, units='["client"]')
    with pytest.raises(RoundAbandoned):
        federation.ask(request, 3)


@pytest.mark.slow
def test_a_rule_is_not_changed_once_it_was_used(tmp_path, caplog):
    federation = Federation(tmp_path / "nodes")
    federation.ask(query_request(COUNT, population=NODES))
    for index in range(NODES):
        federation.policy(index, epsilon=8.0, rule="renyi")
    with pytest.raises(RoundAbandoned):
        federation.ask(query_request(COUNT, population=NODES), 2)
    assert "policy.budget_rule = 'renyi', and this node's budget was opened by 'sum'" in caplog.text


def test_pure_sums_decline_noise_that_has_no_pure_epsilon(tmp_path, caplog):
    federation = Federation(tmp_path / "nodes", epsilon=5.0)
    with pytest.raises(RoundAbandoned):
        federation.ask(query_request(COUNT, population=NODES, law="skellam", scale=30.0))
    assert "no pure epsilon bounds this contribution for one record" in caplog.text


def refusal(tmp_path, caplog, rows, request):
    """What a node with these rows logs of a request, and what its analyst sees."""
    federation = Federation(tmp_path, most=0.2, write=lambda path, _: write_table(path, rows))
    caplog.clear()
    with pytest.raises(RoundAbandoned) as caught:
        federation.ask(request)
    return caplog.text.replace(str(tmp_path), ""), str(caught.value)


WAGES = parse("income > 5", SCHEMA)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"query": Count(where=WAGES), "max_records": 2**30}, "max_records"),
        ({"query": COUNT, "scale": 1.0}, "max_epsilon_per_query is 0.2"),
        (
            {"query": COUNT, "scale": 5.0, "adjacency": "zero_out", "unit": "client", "cap": 1},
            "units",
        ),
    ],
)
def test_a_refusal_never_depends_on_values(tmp_path, caplog, changes, why):
    """Two tables that share not one value are refused in the same words."""
    request = query_request(population=NODES, **changes)
    rich = {"age": [70] * 5, "sex": ["Male"] * 5, "income": [9e4] * 5, "word": ["ab"] * 5}
    empty: dict[str, list] = {"age": [], "sex": [], "income": [], "word": []}
    odd = {"age": ["?"], "sex": [""], "income": ["NaN"], "word": ["zz"]}
    said = [
        refusal(tmp_path / str(i), caplog, rows, request)
        for i, rows in enumerate((rich, empty, odd))
    ]
    assert said[0] == said[1] == said[2]
    assert why in said[0][0]


def test_no_row_is_read_before_a_query_is_admitted_and_priced(tmp_path):
    read = []

    class Watched(DeployedEnvironment):
        def table(self, question, client):
            read.append(question.query)
            return super().table(question, client)

    federation = Federation(tmp_path / "nodes", most=0.2)
    for number, refused in enumerate(
        (
            query_request(Count(), population=NODES, scale=4.0),
            query_request(Count(), population=NODES, unit="client", cap=1),
            query_request(Count(), population=NODES, law="skellam", scale=50.0),
        )
    ):
        with pytest.raises(RoundAbandoned):
            federation.ask(refused, number, environment=Watched)
    assert read == []
    federation.ask(query_request(Count(), population=NODES), 9, environment=Watched)
    assert len(read) == NODES


@pytest.mark.slow
def test_a_table_that_breaks_later_still_sends_its_share(tmp_path, caplog):
    federation = Federation(tmp_path / "nodes", epsilon=1.0)
    request = query_request(Count(), population=NODES, scale=1 / 128)
    for index in range(NODES):
        federation.policy(index, epsilon="inf", most="inf", rule="renyi")
    whole = federation.ask(request).total
    assert whole.tolist() == [20 + 21 + 22]
    (federation.folder / "patients1.csv").unlink()
    assert federation.ask(request, 2).total.tolist() == [20 + 22]
    assert "client 1: its answer to round 1 failed: no row of its table counts" in caplog.text
    (federation.folder / "patients1.csv").write_text(
        "sex,age,wage,word\nMale,70\n\0,x,y\nMale,a,b,c\n"
    )
    rows = federation.ask(request, 3)
    assert rows.survivors == (0, 1, 2)
    old = query_request(COUNT, population=NODES, scale=1 / 128)
    assert federation.ask(old, 4).survivors == (0, 1, 2)


def test_nobody_asks_a_node_that_lacks_a_policy_of_queries_or_a_table(tmp_path, caplog):
    federation = Federation(tmp_path / "nodes")
    path = federation.folder / "node0.toml"
    text = path.read_text()
    for changed, why in (
        (text[: text.index("[policy.queries]")] + text[text.index("[table]") :], "no section"),
        (text[: text.index("[table]")], "no \\[table\\]"),
    ):
        path.write_text(changed)
        caplog.clear()
        with pytest.raises(RoundAbandoned):
            federation.ask(query_request(COUNT, population=NODES), 1, why.encode())
        assert why.replace("\\", "") in caplog.text


def test_a_node_does_not_start_without_its_file_or_a_column_of_its_policy(tmp_path, caplog):
    federation = Federation(tmp_path / "nodes")

    def hello():
        caplog.clear()
        grid = federation.grid()
        asked = [Message(RecordDict(), dst_node_id=FIRST_NODE, message_type="query.hello")]
        return [reply.has_content() for reply in grid.send_and_receive(asked)]

    assert hello() == [True]
    table = federation.folder / "patients0.csv"
    written = table.read_text()
    table.write_text(written.replace("wage", "salary", 1))
    assert hello() == [False]
    assert 'has no column "wage"' in caplog.text
    table.unlink()
    assert hello() == [False]
    assert "policy.queries.columns" in caplog.text
    table.write_text(written)
    assert hello() == [True]


@pytest.mark.slow
def test_the_secret_of_rows_is_made_once_and_is_the_nodes_own(tmp_path):
    federation = Federation(
        tmp_path / "nodes", epsilon="inf", most="inf", units='["client"]', rule="renyi"
    )
    capped = query_request(HISTOGRAM, population=NODES, unit="client", cap=2, scale=1 / 128)
    first = federation.ask(capped).total
    secrets = [(federation.folder / f"state-{i}" / "rows.key") for i in range(NODES)]
    assert [oct(path.stat().st_mode & 0o777) for path in secrets] == ["0o600"] * NODES
    assert len({path.read_bytes() for path in secrets}) == NODES
    before = [path.read_bytes() for path in secrets]
    assert np.array_equal(federation.ask(capped, 2).total, first), "the same rows every time"
    assert [path.read_bytes() for path in secrets] == before
    secrets[0].write_bytes(b"short")
    with pytest.raises(RoundAbandoned):
        federation.ask(capped, 3)
