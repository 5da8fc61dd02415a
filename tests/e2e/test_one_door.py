"""A client admits and prices a request before it computes the answer, wherever it runs."""

import ast
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from client_answers import answer_by
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from narrowed import UNUSED, present
from policies import LEAST_TOML

import zerosum.client
import zerosum.secagg
import zerosum.server
import zerosum.simulations
from zerosum.client.flower import simulated_node
from zerosum.client.flower.client_app import DeployedEnvironment, SimulatedNode, build_app
from zerosum.client.flower.private_mod import AppEnvironment, private_mod
from zerosum.client.protocol import stages
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.client_vector import Work
from zerosum.client.protocol.decision_store import MemoryStore
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.request import ModelRequest, model_payload
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.server.privacy.protections import question_of
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.simulations import api
from zerosum.simulations.engine import cohort
from zerosum.simulations.engine.cohort import CohortApp
from zerosum.simulations.engine.grid import InProcessGrid, nodes
from zerosum.simulations.engine.simulated_clients import SimulatedEnvironment
from zerosum.simulations.engine.work import Contributor, Engine, Serial

CLIENTS = 6
EVERYBODY = tuple(range(CLIENTS))
DIMENSION = 3
EXPERIMENT = api.load_experiment(
    {
        "task": "digits",
        "data": {"clients": CLIENTS},
        "privacy": {"model": "none", "clip": "none"},
        "encoding": {"range": 1.0},
        "sampling": {"kind": "everyone"},
        "secagg": {"server": "semi-honest", "dropout": 0.4},
    }
)
POLICY = 'models = ["none"]\nservers = ["semi-honest"]\n' + LEAST_TOML


def ask(app, number=1, node_config=lambda index: {}, before=None, groups=(EVERYBODY,)):
    """Ask every client for one sum, as a server does."""
    coordinator = Coordinator(
        InProcessGrid(app, CLIENTS, node_config=node_config),
        Nodes(nodes(CLIENTS)),
        EXPERIMENT.secagg,
        run_id=b"run",
        entropy=SeededEntropy(0),
    )
    question = question_of(EXPERIMENT, number, CLIENTS, noise_draw="per_client")
    request = ModelRequest(question, model_payload(np.zeros(DIMENSION, np.float32)))
    return coordinator.private_sum(request, groups, round=number)


def environment(**policy):
    found = SimulatedEnvironment.of(UNUSED, SeededEntropy(0), EXPERIMENT.secagg, CLIENTS)
    found.policy = found.policy.model_copy(update=policy)
    return found


def in_a_simulation(folder):
    engine = Serial(Contributor(UNUSED, SeededEntropy(0)))
    here = environment()
    ask(CohortApp(lambda context: here, engine))


def in_flowers_simulation(folder):
    ask(build_app(SimulatedNode))


def own_files(folder):
    (folder / "policy.toml").write_text(POLICY)
    return lambda index: {
        "state-dir": str(folder / str(index)),
        "policy": str(folder / "policy.toml"),
    }


def in_a_deployment(folder):
    ask(build_app(DeployedEnvironment), node_config=own_files(folder))


def behind_the_mod(folder):
    app = ClientApp(mods=[private_mod])

    @app.train()
    def train(message, context):
        content: dict[str, Any] = {}
        content["arrays"] = ArrayRecord({"w": Array(np.full(DIMENSION, 0.5, np.float32))})
        content["metrics"] = MetricRecord({"num-examples": 1})
        return Message(RecordDict(content), reply_to=message)

    strategy = PrivateStrategy(
        FedAvg(fraction_evaluate=0.0), out=folder / "run", encoding={"range": 1.0},
        privacy={"model": "none", "clip": "none"},
        secagg={"server": "semi-honest", "dropout": 0.4},
    )  # fmt: skip
    grid = InProcessGrid(app, CLIENTS, node_config=own_files(folder))
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(DIMENSION, np.float32))}), 1)


WAYS = [in_a_simulation, in_flowers_simulation, in_a_deployment, behind_the_mod]


class Journal:
    """A journal of each client's steps of a contribution, in order."""

    def __init__(self, patch):
        self.of: dict[int, list[str]] = defaultdict(list)
        self._client: int | None = None
        begin, send = stages.begin_contribution, stages.Contribution.send

        def begun(environment, content, context, compute):
            self._client = context.node_config["partition-id"]
            return begin(environment, content, context, compute)

        def sent(contribution, *settings, **named):
            self._client = contribution.context.node_config["partition-id"]
            try:
                return send(contribution, *settings, **named)
            finally:
                self._client = None

        patch.setattr(stages, "begin_contribution", begun)
        patch.setattr(cohort, "begin_contribution", begun)
        patch.setattr(stages.Contribution, "send", sent)
        self._watch(patch, stages, "check_request", "admit")
        self._watch(patch, stages, "priced", "price")
        for store in (MemoryStore, simulated_node.ContextStore, FileStore):
            self._watch(patch, store, "count_contribution", "count")
            self._watch(patch, store, "append", "persist")
        self._watch(patch, AppEnvironment, "update", "compute")

        def update(computation, request, client, entropy):
            self.of[client.index].append("compute")
            return np.full(DIMENSION, 0.5, np.float32)

        answer_by(patch, update)

    def _watch(self, patch, owner, name, word):
        original = getattr(owner, name)

        def watched(*given, **named):
            if self._client is not None:
                self.of[self._client].append(word)
            return original(*given, **named)

        patch.setattr(owner, name, watched)


@pytest.mark.parametrize("way", WAYS)
def test_a_contribution_takes_the_same_steps_in_the_same_order(way, tmp_path, monkeypatch):
    journal = Journal(monkeypatch)
    way(tmp_path)
    steps = ["admit", "price", "compute", "count", "persist"]
    assert dict(journal.of) == dict.fromkeys(EVERYBODY, steps)


@pytest.fixture
def trained(monkeypatch):
    """Return the clients that trained, as they do."""
    found = []

    def update(computation, request, client, entropy):
        found.append(client.index)
        return np.full(DIMENSION, 0.5, np.float32)

    answer_by(monkeypatch, update)
    return found


def strict_for(victim):
    """Return what each client stands in: the victim's policy knows no task."""
    usual, strict = environment(), environment(tasks=[])
    return lambda context: strict if context.node_config["partition-id"] == victim else usual


def test_a_simulated_client_that_declines_trains_nothing(trained, caplog):
    app = CohortApp(strict_for(2), Serial(Contributor(UNUSED, SeededEntropy(0))))
    found = ask(app)
    assert found.survivors == (0, 1, 3, 4, 5)
    assert found.traffic.refused == {"contribute": 1}
    assert trained == [0, 1, 3, 4, 5]
    assert "client 2 declined to contribute: task 'digits' is not among" in caplog.text


def test_an_engine_that_works_ahead_of_the_handler_trains_whoever_declines(trained):
    """The control: the order that this replaced."""
    engine, where = Serial(Contributor(UNUSED, SeededEntropy(0))), strict_for(2)

    class Ahead(CohortApp):
        def handle_many(self, messages, contexts):
            if messages[0].metadata.message_type == "train.contribute":
                here = where(contexts[0])
                session = here.party(contexts[0], b"").session
                dict(engine.vectors(Work(here.request(messages[0].content), session), EVERYBODY))
            return super().handle_many(messages, contexts)

    ask(Ahead(where, engine))
    assert trained[:CLIENTS] == [0, 1, 2, 3, 4, 5]


def test_a_client_that_fails_at_its_engine_is_a_dropout(monkeypatch, caplog):
    def update(computation, request, client, entropy):
        if client.index == 4:
            raise ValueError("no records today")
        return np.full(DIMENSION, 0.5, np.float32)

    answer_by(monkeypatch, update)
    engine, here = Serial(Contributor(UNUSED, SeededEntropy(0))), environment()
    found = ask(CohortApp(lambda context: here, engine))
    assert found.survivors == (0, 1, 2, 3, 5)
    assert found.traffic.refused == {"contribute": 1}
    assert "client 4 declined to contribute: its answer failed" in caplog.text
    counts = engine.take_tally()
    assert (counts.trained, counts.failed, present(counts.first)[0]) == (5, 1, 4)


class Grouping(Serial):
    """An engine that notes which clients it was given at once, and for which session."""

    def __init__(self):
        super().__init__(Contributor(UNUSED, SeededEntropy(0)))
        self.given = []

    def vectors(self, work, clients):
        self.given.append((work.request.question.round, tuple(clients)))
        yield from reversed(list(super().vectors(work, clients)))


def test_an_engine_is_given_the_clients_of_a_session_together(trained):
    engine, here = Grouping(), environment()
    found = ask(CohortApp(lambda context: here, engine), groups=((0, 1, 2), (3, 4, 5)))
    assert engine.given == [(1, (0, 1, 2)), (1, (3, 4, 5))]
    assert found.survivors == EVERYBODY, "vectors come in any order"


class Stub:
    """An engine whose vectors are the clients' indices."""

    def __init__(self):
        self.given = []

    def vectors(self, work, clients):
        self.given.append((work.request.digest, clients))
        for index in clients:
            yield index, None if index == 4 else index


def work(session, request):
    named = SimpleNamespace
    return named(session=named(digest=session), request=named(digest=request))


def client(index):
    return SimpleNamespace(index=index)


def test_an_engine_begins_when_the_first_vector_is_wanted():
    engine = Stub()
    futures = cohort.CohortFutures(cast(Engine, engine))
    first, second, lost = (futures.submit(work(b"s", b"r"), client(i)) for i in (1, 2, 4))
    assert not engine.given
    assert second.result() == 2
    assert (first.result(), second.result()) == (1, 2)
    with pytest.raises(Declined, match="its answer failed"):
        lost.result()
    assert engine.given == [(b"r", (1, 2, 4))]


def test_two_requests_under_one_session_are_two_pieces_of_work():
    """A lying server's: the first one's vectors are no answer to the other."""
    engine = Stub()
    futures = cohort.CohortFutures(cast(Engine, engine))
    for index in range(4):
        futures.submit(work(b"s", bytes([index % 2])), client(index))
    assert [future.result() for future in futures.as_completed()] == [0, 2, 1, 3]
    assert engine.given == [(b"\0", (0, 2)), (b"\1", (1, 3))]


def test_a_client_has_one_vector_a_session_on_its_way():
    futures = cohort.CohortFutures(cast(Engine, Stub()))
    futures.submit(work(b"s", b"r"), client(1))
    with pytest.raises(Declined, match="on its way already"):
        futures.submit(work(b"s", b"r"), client(1))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["client", "secagg", "server", "simulations"])
def test_no_update_waits_in_a_slot(part):
    """Of the mailbox between engine and handler nothing is left."""
    (folder,) = getattr(zerosum, part).__path__
    for path in Path(folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {getattr(node, "attr", None), getattr(node, "name", None)}
            assert not names & {"hold", "computed"}, f"{path}: {names}"
