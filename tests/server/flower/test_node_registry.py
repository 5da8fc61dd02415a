"""A client that comes back on another node is found; nobody takes another one's place."""

import itertools

import pytest
from flwr.app import Error, Message

from zerosum.client.protocol import flower_messages
from zerosum.server.config import ConfigError
from zerosum.server.flower import node_registry
from zerosum.server.flower.node_registry import NodeRegistry, wait_for_nodes
from zerosum.server.spec import DeploymentSpec
from zerosum.simulations.engine.grid import InProcessGrid

SPEC = DeploymentSpec(min_nodes=3, stage_timeout=0.05)


class Nodes(InProcessGrid):
    """Nodes that say which client they are: an index, nonsense, or nothing."""

    def __init__(self, claims):
        super().__init__(self.say, 1)
        self.claims, self.asked = claims, []

    def get_node_ids(self):
        return list(self.claims)

    def say(self, message, context):
        self.asked.append(message.metadata.dst_node_id)
        claim = self.claims[message.metadata.dst_node_id]
        return Message(flower_messages.pack({"index": claim}), reply_to=message)

    def _is_lost(self, message):
        return self.claims[message.metadata.dst_node_id] is None

    def _context(self, node_id):
        return super()._context(1000)


@pytest.fixture
def met():
    grid = Nodes({11: 2, 12: 0, 13: 1})
    found = wait_for_nodes(grid, SPEC)
    assert found == {0: 12, 1: 13, 2: 11}
    grid.asked.clear()
    return grid, NodeRegistry(grid, SPEC, found)


def test_without_new_nodes_no_hello_is_sent(met):
    grid, attendance = met
    del grid.claims[11]
    attendance.welcome_back()
    assert grid.asked == []
    assert attendance.by_index[2] == 11


def test_a_client_is_found_on_its_new_node(met):
    grid, attendance = met
    del grid.claims[11]
    grid.claims[21] = 2
    attendance.welcome_back()
    assert attendance.by_index == {0: 12, 1: 13, 2: 21}


def test_a_claim_waits_until_the_old_node_is_gone(met, caplog):
    grid, attendance = met
    grid.claims[21] = 2
    attendance.welcome_back()
    assert attendance.by_index[2] == 11
    assert "claims to be client 2" in caplog.text
    del grid.claims[11]
    attendance.welcome_back()
    assert attendance.by_index[2] == 21


@pytest.mark.parametrize("claim", [7, -1, "text"])
def test_a_stranger_is_asked_once_and_left_out(met, claim):
    grid, attendance = met
    grid.claims[21] = claim
    attendance.welcome_back()
    asked = len(grid.asked)
    attendance.welcome_back()
    assert len(grid.asked) == asked
    assert attendance.by_index == {0: 12, 1: 13, 2: 11}


def test_a_client_whose_first_hello_is_lost_is_asked_again(met):
    grid, attendance = met
    del grid.claims[11]
    grid.claims[21] = None
    attendance.welcome_back()
    assert attendance.by_index[2] == 11
    grid.claims[21] = 2
    for _ in range(2):
        attendance.welcome_back()
    assert attendance.by_index[2] == 21


def test_a_node_that_never_answers_costs_fewer_and_fewer_rounds(met, monkeypatch):
    grid, attendance = met
    grid.claims[21] = None
    asked = []

    def unanswered(grid, nodes, spec):
        asked.append(len(nodes))
        return iter(())

    monkeypatch.setattr(node_registry, "_hellos", unanswered)
    for _ in range(64):
        attendance.welcome_back()
    assert 4 <= sum(asked) <= 8


class Coming(Nodes):
    """Nodes that come one after another: one more at each look."""

    def __init__(self, claims, more):
        super().__init__(claims)
        self.more = list(more.items())

    def come(self, seconds):
        if self.more:
            self.claims.update([self.more.pop(0)])


def waited(monkeypatch, grid, *arguments, **changed):
    monkeypatch.setattr(node_registry.time, "sleep", getattr(grid, "come", lambda seconds: None))
    return wait_for_nodes(grid, SPEC.model_copy(update=changed), *arguments)


def test_all_of_a_roster_are_waited_for(monkeypatch):
    grid = Coming({10: 0, 11: 1, 13: 3}, {12: 2, 14: 4})
    assert waited(monkeypatch, grid, 5) == {0: 10, 1: 11, 2: 12, 3: 13, 4: 14}


def test_a_gap_is_waited_for_without_a_roster_too(monkeypatch):
    grid = Coming({10: 0, 11: 1, 13: 3}, {12: 2})
    assert waited(monkeypatch, grid) == {0: 10, 1: 11, 2: 12, 3: 13}


def test_who_does_not_come_is_named(monkeypatch):
    for expected, missing in ((5, "2 of 5 .*: 2, 4;"), (None, "1 of 4 .*: 2;")):
        with pytest.raises(ConfigError, match=missing):
            waited(monkeypatch, Nodes({10: 0, 11: 1, 13: 3}), expected, start_timeout=0.05)
    with pytest.raises(ConfigError, match="2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …;"):
        waited(monkeypatch, Nodes({10: 0, 11: 1, 13: 10**15}), start_timeout=0.05)


def test_a_second_claim_at_the_start_is_left_out(monkeypatch, caplog):
    grid = Coming({11: 0, 12: 0, 13: 1}, {14: 2})
    assert waited(monkeypatch, grid) == {0: 11, 1: 13, 2: 14}
    assert "node 12 claims to be client 0, on node 11" in caplog.text


def test_a_second_claim_counts_once_the_first_node_is_gone(monkeypatch):
    grid = Coming({11: 0, 12: 0, 13: 1}, {14: 2})
    come = grid.come
    monkeypatch.setattr(grid, "come", lambda seconds: (grid.claims.pop(11, None), come(seconds)))
    assert waited(monkeypatch, grid) == {0: 12, 1: 13, 2: 14}


def test_a_client_beyond_the_roster_is_left_out(monkeypatch, caplog):
    grid = Coming({10: 0, 17: 7, 18: -1, 11: 1}, {12: 2})
    assert waited(monkeypatch, grid, 3) == {0: 10, 1: 11, 2: 12}
    assert "node 17 claims to be client 7, who is none of this run's" in caplog.text


class Refusing(Coming):
    """Nodes that refuse hello with a reason, and change their minds when they are set right."""

    def __init__(self, reasons, more=(), code=2):
        super().__init__(dict.fromkeys(reasons, 0), dict(more))
        self.reasons, self.code = reasons, code

    def say(self, message, context):
        node = message.metadata.dst_node_id
        if node not in self.reasons:
            return super().say(message, context)
        self.asked.append(node)
        return Message(Error(self.code, self.reasons[node]), reply_to=message)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only sleeping moves; returns what it shows."""
    now = [0.0]
    monkeypatch.setattr(node_registry.time, "monotonic", lambda: now[0])

    def passes(grid):
        def sleep(seconds):
            now[0] += seconds
            grid.come(seconds)

        monkeypatch.setattr(node_registry.time, "sleep", sleep)
        return now

    return passes


def raised(text):
    """Return the reason that Flower makes of an app's exception."""
    return f"<class 'X'>:<'\nException X occurred. Message: {text}'>"


OWN = raised(f"no answer to hello: {flower_messages.OWN_LOG}")
RAISED = raised("'fitins.parameters'")


@pytest.mark.parametrize(
    ("reason", "said"),
    [(OWN, "in that node's own log"), (RAISED, "lacks the line .*fitins.parameters")],
)
def test_a_run_that_every_node_refuses_ends_within_seconds_and_says_why(clock, reason, said):
    grid = Refusing({10: reason, 11: OWN, 12: OWN})
    now = clock(grid)
    with pytest.raises(ConfigError, match=rf"all 3 nodes .* \(10, 11, 12\) .*{said}") as ended:
        wait_for_nodes(grid, SPEC)
    assert now[0] <= 20
    assert "\n" not in str(ended.value)
    assert "occurred" not in str(ended.value)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (raised(f"no answer to hello: {flower_messages.BUSY}"), 2),
        ("Node Unavailable", 5),
        ("Message Unavailable", 3),
    ],
    ids=["busy", "away", "not delivered"],
)
def test_what_time_heals_is_waited_for(clock, reason, code):
    grid = Refusing(dict.fromkeys((10, 11, 12), reason), code=code)
    now = clock(grid)
    with pytest.raises(ConfigError, match="start_timeout"):
        wait_for_nodes(grid, SPEC)
    assert now[0] > SPEC.start_timeout


@pytest.mark.parametrize("expected", [None, 4])
def test_nodes_that_are_not_there_yet_are_waited_for_whoever_refuses(clock, expected):
    """Two of a roster of four refuse: until the others have come, nobody knows."""
    grid = Refusing({10: OWN, 11: OWN})
    now = clock(grid)
    with pytest.raises(ConfigError, match="start_timeout"):
        wait_for_nodes(grid, SPEC, expected)
    assert now[0] > SPEC.start_timeout


def test_a_node_that_answers_keeps_the_run_waiting_for_those_that_refuse(clock, monkeypatch):
    grid = Refusing({10: OWN, 11: OWN})
    grid.claims[12] = 2
    now = clock(grid)
    healed = {10: 0, 11: 1}

    def come(seconds):
        if now[0] > 100:
            grid.reasons.clear()
            grid.claims.update(healed)

    monkeypatch.setattr(grid, "come", come)
    assert wait_for_nodes(grid, SPEC) == {0: 10, 1: 11, 2: 12}


def test_a_node_that_refused_before_it_answered_keeps_the_run_waiting_too(clock, monkeypatch):
    """The first refuses three times, is set right, and answers; the others refuse after it."""
    grid = Refusing({10: OWN})
    now = clock(grid)

    def come(seconds):
        if grid.asked.count(10) == 3:
            grid.reasons.pop(10, None)
        if grid.asked.count(10) == 4 and 11 not in grid.claims:
            grid.reasons.update({11: OWN, 12: OWN})
            grid.claims.update({11: 1, 12: 2})
        if now[0] > 150:
            grid.reasons.clear()

    monkeypatch.setattr(grid, "come", come)
    assert wait_for_nodes(grid, SPEC) == {0: 10, 1: 11, 2: 12}
    assert min(grid.asked.count(node) for node in (10, 11, 12)) > 3


def test_clients_that_begin_with_one_are_told_at_once_and_not_waited_for(
    clock, caplog, monkeypatch
):
    grid = Coming({11: 1, 12: 2, 13: 3}, {})
    now = clock(grid)
    told = []

    def come(seconds):
        told.append((now[0], "from 0 to 2" in caplog.text))

    monkeypatch.setattr(grid, "come", come)
    with pytest.raises(ConfigError, match=r"partition-id: .* clients 1 to 3, and none is client 0"):
        wait_for_nodes(grid, SPEC)
    assert min(at for at, said in told if said) <= 10
    assert now[0] <= 130


def test_a_first_client_that_is_late_is_waited_for(clock, monkeypatch):
    grid = Coming({11: 1, 12: 2}, {15: 5, 13: 3, 14: 4, 10: 0})
    now = clock(grid)
    wait = [45]  # looks between two that come

    def come(seconds):
        wait[0] -= 1
        if wait[0] % 15 == 0 and grid.more:
            grid.claims.update([grid.more.pop(0)])

    monkeypatch.setattr(grid, "come", come)
    assert wait_for_nodes(grid, SPEC) == {i: 10 + i for i in range(6)}
    assert now[0] > 100


def test_a_roster_numbered_from_one_is_told_too(clock, caplog):
    grid = Coming({11: 1, 12: 2, 13: 3}, {})
    clock(grid)
    with pytest.raises(ConfigError, match=r"partition-id: .* number them from 0 to 2"):
        wait_for_nodes(grid, SPEC, 3)
    assert "node 13 claims to be client 3, who is none of this run's" in caplog.text


class Slow(Coming):
    """Nodes that come at a time and answer each hello so much later; None: never."""

    def __init__(self, nodes, now):
        super().__init__({}, {})
        self.nodes, self.now = nodes, now
        self.due: dict[str, float] = {}
        self.times: dict[int, list[float]] = {}

    def come(self, seconds):
        for node, (index, at, _) in self.nodes.items():
            if at <= self.now[0]:
                self.claims.setdefault(node, index)

    def push_messages(self, messages):
        messages = list(messages)
        keys = super().push_messages(messages)
        for key, message in zip(keys, messages, strict=True):
            node = message.metadata.dst_node_id
            self.times.setdefault(node, []).append(self.now[0])
            takes = self.nodes[node][2]
            self.due[key] = float("inf") if takes is None else self.now[0] + takes
        return keys

    def pull_messages(self, message_ids):
        return super().pull_messages([k for k in message_ids if self.due[k] <= self.now[0]])


def slowly(clock, nodes, expected=None, **changed):
    """Wait for such nodes, by Flower's own times; return who is met, when, and the grid."""
    grid = Slow(nodes, None)
    grid.now = clock(grid)
    grid.come(0.0)
    spec = DeploymentSpec(min_nodes=3).model_copy(update=changed)
    try:
        found = wait_for_nodes(grid, spec, expected)
    except ConfigError:
        found = None
    return found, grid.now[0], grid


def test_a_silent_node_is_asked_again_after_longer_and_longer(clock):
    nodes = {10: (0, 0, 1), 11: (1, 0, 1), 12: (2, 0, None)}
    found, now, grid = slowly(clock, nodes, 3)
    assert found is None
    assert now > 600
    times = grid.times[12]
    pauses = [later - before for before, later in itertools.pairwise(times)]
    assert 2 <= len(pauses) <= 3
    assert all(b >= 1.9 * a for a, b in itertools.pairwise(pauses))
    assert len(grid.times[10]) == len(grid.times[11]) == 1


@pytest.mark.parametrize("takes", [10, 75, 200, 400])
def test_a_late_answer_to_an_earlier_hello_counts_at_once(clock, takes):
    nodes = {10: (0, 0, 1), 11: (1, 0, 1), 12: (2, 0, takes)}
    found, now, _ = slowly(clock, nodes, 3)
    assert found == {0: 10, 1: 11, 2: 12}
    assert takes <= now <= takes + 3


@pytest.mark.parametrize("comes", [5, 61, 130, 500])
def test_a_late_node_is_met_soon_though_another_is_silent(clock, comes):
    nodes = {9: (7, 0, None), 10: (0, 0, 1), 11: (1, 0, 1), 12: (2, comes, 1)}
    found, now, _ = slowly(clock, nodes, 3)
    assert found == {0: 10, 1: 11, 2: 12}
    assert comes <= now <= comes + 4


@pytest.mark.parametrize(("silent", "until"), [({}, 46), ({16: (6, 0, None)}, 60)])
def test_without_a_roster_those_that_are_asked_have_their_time_to_answer(clock, silent, until):
    nodes = {10 + i: (i, 0, 1 + 9 * i) for i in range(6)}
    found, now, _ = slowly(clock, nodes | silent)
    assert found == {i: 10 + i for i in range(6)}
    assert until <= now <= until + 3


def test_a_silent_node_that_was_away_is_asked_at_once(clock, monkeypatch):
    nodes = {10: (0, 0, 1), 11: (1, 0, 1), 12: (2, 0, None)}
    grid = Slow(nodes, None)
    now = grid.now = clock(grid)
    grid.come(0.0)
    come = grid.come

    def restarts(seconds):
        come(seconds)
        if 30 <= now[0] < 40:
            grid.claims.pop(12, None)
            nodes[12] = (2, 0, 1)

    monkeypatch.setattr(grid, "come", restarts)
    assert wait_for_nodes(grid, DeploymentSpec(min_nodes=3), 3) == {0: 10, 1: 11, 2: 12}
    assert 40 <= now[0] <= 44
