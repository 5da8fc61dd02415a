"""A plan asked of nodes with files of their own: a simulation's answers, whatever dies."""

import contextlib
import json
import os
import signal

import pytest
from clinics import NODE, NODES, PLAN, assert_same_answers, simulated, write_clinics
from flwr.app import Context, RecordDict, UserConfig

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.queries.errors import QueryError
from zerosum.server.analytics.asks import QueryAbandoned
from zerosum.server.analytics.budget import BudgetExceeded
from zerosum.server.config import ConfigError
from zerosum.server.flower.query_app import serve
from zerosum.simulations.attacks.protocol.asked_nodes import provisioned
from zerosum.simulations.engine.grid import InProcessGrid
from zerosum.simulations.queries.federation import Federation


class Seeded(DeployedEnvironment):
    """A deployed node but for its noise."""

    entropy = SeededEntropy(0)


class Clinics:
    """Three nodes with a file each, and ServerApps that come and go."""

    def __init__(self, folder, *, epsilon="inf", plan=None, environment=DeployedEnvironment):
        self.folder, self.out = folder, folder / "run"
        folder.mkdir(exist_ok=True)
        self.roster, self._keys = provisioned(folder, NODES)
        write_clinics(folder, NODE.format(epsilon=epsilon))
        self.plan = folder / "plan.toml"
        self.plan.write_text(PLAN.read_text() if plan is None else plan)
        self.environment, self.runs = environment, 0

    def node(self, index, text):
        (self.folder / f"clinic{index}" / "zerosum-node.toml").write_text(text)

    def config(self, index):
        return {
            **self._keys(index),
            "policy": str(self.folder / f"clinic{index}" / "zerosum-node.toml"),
            "partition-id": index,
            "num-partitions": NODES,
        }

    def store(self, index=0):
        return FileStore(self.folder / f"state-{index}")

    def serve(self, *, entropy=None, overrides="", around=lambda app: app, **run_config):
        """Start a ServerApp over nodes that have just been started."""
        self.runs += 1
        app = around(build_app(self.environment))
        grid = InProcessGrid(app, NODES, node_config=self.config, run_id=self.runs)
        keys = self._keys(0)
        given = f"deployment.roster={keys['roster']} deployment.authority={keys['authority']}"
        config: UserConfig = {
            "plan": str(self.plan),
            "overrides": f"{given} deployment.start_timeout=1 {overrides}",
        }
        config.update(run_config or {"out": str(self.out)})
        context = Context(
            run_id=self.runs, node_id=1, node_config={}, state=RecordDict(), run_config=config
        )
        return serve(grid, context, entropy)


@pytest.mark.slow
def test_deployed_nodes_give_the_simulations_answers(tmp_path):
    clinics = Clinics(tmp_path / "nodes", environment=Seeded)
    found = [answer.to_json() for answer in clinics.serve(entropy=SeededEntropy(0))]
    wanted = simulated(tmp_path)
    assert len(found) == 6
    assert_same_answers(found, wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one["epsilon"].keys() == other["epsilon"].keys()
        assert "seed" in str(other["epsilon"])
        assert "seed" not in str(one["epsilon"]), "nobody has to keep a seed secret"
    clinics.environment = DeployedEnvironment
    clinics.out = tmp_path / "fresh noise"
    fresh = [each.to_json()["noisy"] for each in clinics.serve()]
    assert all(one != each["noisy"] for one, each in zip(fresh, found, strict=True))


COUNTS = """
[budget]
epsilon = 1.0
delta = 1e-6
rule = "sum"

[schema]
age = { integer = [0, 110] }
sex = ["F", "M"]
""" + "".join(
    f"""
[[queries]]
kind = "count"
where = "age >= {age}"
epsilon = 0.1
"""
    for age in (30, 50, 70)
)
"""Three questions of a tenth each."""

LIMIT = 0.5


def pure_budget(epsilon):
    return NODE.format(epsilon=f'{epsilon}\nbudget_rule = "sum"')


@pytest.fixture
def counting(tmp_path):
    """Nodes that allow five tenths to one record, whoever asks."""
    clinics = Clinics(tmp_path / "nodes", plan=COUNTS)
    for index in range(NODES):
        clinics.node(index, pure_budget(LIMIT))
    return clinics


def spent(clinics):
    """Return what one record of each node has spent, which is never above its budget."""
    found = [clinics.store(index).spending.record.pure for index in range(NODES)]
    assert max(found) <= LIMIT * (1 + 1e-9)
    return [round(10 * each) for each in found]


def charged(out):
    lines = [json.loads(line) for line in (out / "queries.jsonl").read_text().splitlines()[1:]]
    return [(line["type"], *line["key"][:2]) for line in lines if line["type"] != "survived"]


def killed_after(number):
    """Die, by SIGKILL, when a contribution of this number is on the disk and not yet sent."""
    own, count = FileStore.count_contribution, [0]

    def last(self, *args, **kwargs):
        own(self, *args, **kwargs)
        count[0] += 1
        if count[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    FileStore.count_contribution = last  # type: ignore[method-assign]


@pytest.mark.slow
def test_no_client_spends_more_than_its_budget_through_kills_resumes_and_analysts(counting, caplog):
    child = os.fork()
    if not child:
        killed_after(5)  # the second node's share of the second answer
        counting.serve()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert spent(counting) == [2, 2, 1]
    assert charged(counting.out)[-1] == ("contributions", 2, 0), "charged ahead, never opened"
    answers = counting.serve(resume=str(counting.out))
    assert len(answers) == 3
    assert ("contributions", 2, 1) in charged(counting.out), "another attempt, with other noise"
    assert spent(counting) == [4, 4, 3]
    # The same plan again is free: its answers are kept, and no node hears of it.
    again = counting.serve(out=str(counting.out))
    assert [each.to_json() for each in again] == [each.to_json() for each in answers]
    assert spent(counting) == [4, 4, 3]
    # A second analyst has a run, a ledger and a budget of their own, and the same nodes.
    with pytest.raises(QueryAbandoned):
        counting.serve(out=str(counting.folder / "second"))
    assert spent(counting)[:2] == [5, 5]
    assert (
        "epsilon would be 0.6 for one record, above the policy's max_epsilon = 0.5" in caplog.text
    )
    assert "1 of 3 queries are answered" in caplog.text
    for index in range(NODES):
        counting.node(index, pure_budget(0.3))
    with pytest.raises(QueryAbandoned):
        counting.serve(out=str(counting.folder / "third"))
    assert spent(counting)[:2] == [5, 5]


@pytest.mark.slow
def test_a_message_that_comes_twice_is_paid_for_once(counting):
    def twice(app):
        def answer(message, context):
            reply = app(message, context)
            with contextlib.suppress(Exception):  # refused, or the same answer
                app(message, context)
            return reply

        return answer

    assert len(counting.serve(around=twice)) == 3
    assert spent(counting) == [3, 3, 3]


class Killed(BaseException):
    """The ServerApp's process is gone: no code of it runs any more."""


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["contribute", "unmask"])
def test_a_killed_server_app_is_gone_on_with_and_pays_again(counting, stage, caplog):
    def dying(app):
        def answer(message, context):
            if (message.metadata.message_type.split(".")[1], message.metadata.group_id) == (
                stage,
                "2",
            ):
                raise Killed
            return app(message, context)

        return answer

    with pytest.raises(Killed):
        counting.serve(around=dying)
    assert "1 of 3 queries are answered" in caplog.text
    assert f'resume="{counting.out}"' in caplog.text
    answers = counting.serve(resume=str(counting.out))
    assert len(answers) == 3
    opened = [line for line in charged(counting.out) if line[0] == "sum"]
    assert len(opened) == 3 + (stage == "unmask"), "a sum that may have been opened is paid for"
    assert spent(counting) == [3 + (stage == "unmask")] * NODES


def test_a_node_without_a_policy_of_queries_declines_and_names_the_key(counting, caplog):
    text = pure_budget(LIMIT)
    counting.node(1, text[: text.index("[policy.queries]")] + text[text.index("[table]") :])
    with pytest.raises(QueryAbandoned) as caught:
        counting.serve()
    assert "client 1 declined to contribute: no query is answered" in caplog.text
    assert "this node's policy has no section [queries]" in caplog.text
    assert "policy" not in str(caught.value), "the reason is in the node's own log alone"
    assert counting.store(1).contributions == 0


@pytest.mark.slow
def test_a_node_whose_file_breaks_still_sends_its_share_and_says_so_at_home(counting, caplog):
    def breaking(app):
        def answer(message, context):
            if message.metadata.message_type == "query.advertise":
                (counting.folder / "clinic1" / "patients.csv").unlink(missing_ok=True)
            return app(message, context)

        return answer

    answers = counting.serve(around=breaking)
    assert [each.clients for each in answers] == [NODES] * 3
    assert "client 1: its answer to round 1 failed: no row of its table counts" in caplog.text
    assert spent(counting) == [3, 3, 3], "what it sends is noise, and costs what records cost"


@pytest.mark.slow
def test_a_node_that_lacks_its_file_or_a_column_never_says_hello(counting, caplog):
    (counting.folder / "clinic2" / "patients.csv").unlink()
    with pytest.raises(ConfigError, match="1 of 3 clients have not said hello: 2"):
        counting.serve()
    assert "table and policy.queries.columns" in caplog.text
    assert not counting.out.exists(), "nothing was asked, nothing is kept"


@pytest.mark.parametrize(
    ("overrides", "error", "words"),
    [
        ("clients=4", ConfigError, "clients = 4, but there are 3 nodes"),
        ("protocol=ideal", ConfigError, 'takes part in "pairwise" alone'),
        ("by=clinic", ConfigError, "by = 'clinic': it is for simulations alone"),
        ("budget.epsilon=0.2", BudgetExceeded, "0.2"),
        ("deployment.left_out=out.jsonl", ConfigError, "left_out"),
        ("deployment.rooster=r", QueryError, "roster"),
        ("corruption=0.9", QueryError, "corruption = 0.9"),
    ],
)
def test_a_plan_that_these_nodes_cannot_answer_is_refused_before_anything(
    counting, overrides, error, words
):
    with pytest.raises(error, match=words):
        counting.serve(overrides=overrides)
    assert not counting.out.exists()
    assert spent(counting) == [0, 0, 0]


@pytest.mark.slow
def test_a_folder_goes_on_as_it_was_begun_and_where_it_was(counting, tmp_path):
    counting.serve()
    with pytest.raises(ConfigError, match=r"budget of .* stays as it was begun"):
        counting.serve(resume=str(counting.out), overrides="budget.epsilon=0.5")
    with pytest.raises(QueryError, match="asked of deployed nodes"):
        Federation.resume(counting.out)
    simulated(tmp_path)
    with pytest.raises(ConfigError, match="it is a simulation's"):
        counting.serve(resume=str(tmp_path / "simulated"))
    with pytest.raises(QueryError, match="holds no queries"):
        counting.serve(resume=str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(("pipeline", "messages"), [("true", 5 + 3 + 3), ("false", 5 + 5 + 5)])
def test_the_next_questions_keys_ride_along_with_a_sum(counting, pipeline, messages):
    sent = []

    def counted(app):
        def answer(message, context):
            sent.append(message.metadata.message_type)
            return app(message, context)

        return answer

    answers = counting.serve(around=counted, overrides=f"deployment.pipeline={pipeline}")
    assert len(answers) == 3
    assert len(sent) == NODES * (1 + messages), "and a hello each"
    assert spent(counting) == [3, 3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["advertise", "contribute"])
def test_a_sum_that_was_given_up_is_asked_for_under_a_new_number(counting, stage):
    """A node begins a session once; the keys that rode along with the first attempt are dropped."""
    counting.plan.write_text(COUNTS.replace("epsilon = 0.1", "epsilon = 0.1\nattempts = 2", 1))
    failed: list[str] = []

    def failing(app):
        def answer(message, context):
            kind = message.metadata.message_type.split(".")[1]
            if kind == stage and not failed:
                failed.append(kind)
                raise ValueError("out of memory, once")
            return app(message, context)

        return answer

    assert len(counting.serve(around=failing)) == 3
    opened = [line[1:] for line in charged(counting.out) if line[0] == "sum"]
    assert opened == [(3, 0), (4, 0), (5, 0)], "2 was prepared for the next question, and is stale"
    given_up = [line[1:] for line in charged(counting.out) if line[0] == "abandoned"]
    assert given_up == ([(1, 0)] if stage == "contribute" else []), "nobody was asked for a vector"
    assert max(spent(counting)) == 3 + (stage == "contribute")
