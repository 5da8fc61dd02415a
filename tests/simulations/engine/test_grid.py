"""The in-process Grid delivers what Flower's does: real apps, contexts, errors, silence."""

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from zerosum.server.spec import FaultSpec
from zerosum.simulations.engine.faults import FaultPlan
from zerosum.simulations.engine.grid import InProcessGrid, nodes


@pytest.fixture
def app():
    app = ClientApp()

    @app.query("advertise")
    def count(message, context):
        """Count the calls of one client in its own state."""
        before = context.state.config_records.get("calls")
        calls = 1 if before is None else int(before["calls"]) + 1
        context.state["calls"] = ConfigRecord({"calls": calls})
        record = ConfigRecord({"calls": calls, "index": context.node_config["partition-id"]})
        return Message(RecordDict({"answer": record}), reply_to=message)

    @app.query("fail")
    def fail(message, context):
        raise RuntimeError("broken on purpose")

    return app


def ask(grid, population, action="advertise", group="1"):
    messages = [
        Message(RecordDict(), node, f"query.{action}", group_id=group)
        for node in nodes(population).values()
    ]
    return {r.metadata.src_node_id: r for r in grid.send_and_receive(messages)}


def test_every_client_answers_from_its_own_context(app):
    replies = ask(InProcessGrid(app, 3), 3)
    answers = {node: r.content["answer"]["index"] for node, r in replies.items()}
    assert answers == {node: index for index, node in nodes(3).items()}


def test_state_lasts_from_message_to_message_for_each_client(app):
    grid = InProcessGrid(app, 2)
    ask(grid, 2)
    ask(grid, 1)
    replies = ask(grid, 2)
    assert [replies[n].content["answer"]["calls"] for n in nodes(2).values()] == [3, 2]


def test_an_app_that_raises_is_an_error_reply_not_a_crash(app):
    (reply,) = ask(InProcessGrid(app, 1), 1, action="fail").values()
    assert not reply.has_content()
    assert "broken on purpose" in (reply.error.reason or "")


def test_a_vanished_client_is_silent_and_its_app_not_run(app):
    grid = InProcessGrid(app, 40, faults=FaultPlan(FaultSpec(advertise=0.5), seed=0))
    first = ask(grid, 40)
    assert 5 < len(first) < 35
    again = ask(grid, 40, group="1")
    assert all(r.content["answer"]["calls"] == 2 for r in again.values())
    assert set(again) == set(first)


def test_replies_can_be_pushed_and_pulled_and_are_given_once(app):
    grid = InProcessGrid(app, 2)
    messages = [Message(RecordDict(), n, "query.advertise") for n in nodes(2).values()]
    keys = list(grid.push_messages(messages))
    assert len({*keys}) == 2
    assert len(list(grid.pull_messages(keys))) == 2
    assert list(grid.pull_messages(keys)) == []


def test_a_cohort_can_be_handled_at_once(app):
    seen = []

    def handle_many(messages, contexts):
        seen.append(len(messages))
        return [app(m, c) for m, c in zip(messages, contexts, strict=True)]

    app.handle_many = handle_many
    assert len(ask(InProcessGrid(app, 5), 5)) == 5
    assert seen == [5]


def test_node_ids_are_listed(app):
    assert list(InProcessGrid(app, 4).get_node_ids()) == list(nodes(4).values())
