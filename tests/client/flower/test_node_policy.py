"""A node without a policy takes part in nothing, and what is permissive has to be written."""

import logging
import math
import tomllib
from pathlib import Path

import pytest
from asked_queries import query_request
from flwr.app import Context, RecordDict, UserConfig
from policies import LEAST, LEAST_TOML

from zerosum.client.flower.client_app import DeployedEnvironment, answer
from zerosum.client.flower.node_policy import (
    EXAMPLES,
    PolicyError,
    checked_policy,
    read_node_file,
    read_policy,
)
from zerosum.client.flower.simulated_node import OPEN_POLICY
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.stages import advertise
from zerosum.client.queries.query import Count
from zerosum.client.session_limits import Openings
from zerosum.client.spec import ClientPolicy, SecAggSpec
from zerosum.secagg import ServerMode, Session, UnsafeGraph
from zerosum.secagg.graph.failure_bounds import SECURITY
from zerosum.secagg.graph.parameters import graph_parameters

ROOT = Path(__file__).parents[3]


def written(tmp_path, text):
    file = tmp_path / "policy.toml"
    file.write_text(text)
    return str(file)


def test_the_least_that_a_policy_says_is_enough(tmp_path):
    policy = read_policy(written(tmp_path, LEAST_TOML))
    assert (policy.min_cohort, policy.corruption, policy.max_epsilon) == (2, 0.0, math.inf)


@pytest.mark.parametrize("key", LEAST)
def test_each_permissive_choice_has_to_be_written(tmp_path, key):
    lines = [line for line in LEAST_TOML.splitlines() if not line.startswith(key)]
    with pytest.raises(PolicyError) as error:
        read_policy(written(tmp_path, "\n".join(lines)))
    said = str(error.value)
    assert "\n" not in said
    assert EXAMPLES[key] in said
    assert not any(EXAMPLES[other] in said for other in LEAST if other != key)
    with pytest.raises(ValueError, match=key):
        ClientPolicy(**{name: value for name, value in LEAST.items() if name != key})


def test_the_example_in_the_message_is_a_valid_policy(tmp_path):
    text = "\n".join(example.split(" (")[0] for example in EXAMPLES.values())
    assert read_policy(written(tmp_path, text)).min_cohort == 10


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("min_cohort = 1", "min_cohort = 1: .*greater than or equal to 2"),
        ("servers = []", r"servers = \[\]: .*at least 1 item"),
        ("protocols = []", r"protocols = \[\]: .*at least 1 item"),
        ("max_epsilon = nan", "max_epsilon = nan: "),
        ("max_epsilon = 0", "max_epsilon = 0: .*greater than 0"),
        ('max_epsilon = "none"', "max_epsilon = 'none': "),
        ("corruption = 1.0", "corruption = 1.0: .*less than 1"),
        ("colour = 3", "colour = 3: "),
        ("max_openings_per_day = 0", "max_openings_per_day = 0: "),
    ],
)
def test_a_wrong_key_is_named_in_one_line(tmp_path, change, why):
    name = change.split(" ")[0]
    kept = [line for line in LEAST_TOML.splitlines() if not line.startswith(name)]
    with pytest.raises(PolicyError, match=why) as error:
        read_policy(written(tmp_path, "\n".join([*kept, change])))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("path", ["", "/nowhere/policy.toml"])
def test_a_node_without_a_policy_declines_everything(path):
    with pytest.raises(PolicyError):
        read_policy(path)


def test_a_policy_that_any_user_may_change_is_refused(tmp_path):
    path = written(tmp_path, LEAST_TOML)
    Path(path).chmod(0o646)
    with pytest.raises(PolicyError, match=f"chmod o-w {path}"):
        read_policy(path)


@pytest.mark.parametrize("policy", ["absent", "empty"])
def test_a_node_without_a_policy_answers_nothing_and_says_why_in_its_own_log(
    tmp_path, caplog, policy
):
    caplog.set_level(logging.WARNING)
    config: UserConfig = {"partition-id": 0, "state-dir": str(tmp_path / "state")}
    if policy == "empty":
        config["policy"] = written(tmp_path, "")
    here = Context(run_id=1, node_id=1, node_config=config, state=RecordDict(), run_config={})
    content = flower_messages.pack(
        {"session": session(SecAggSpec()).to_bytes(), "protocol": "pairwise"}
    )
    with pytest.raises(Declined, match="no answer to advertise"):
        answer(advertise, DeployedEnvironment, content, here)
    for example in EXAMPLES.values():
        assert example in caplog.text
    assert not list((tmp_path / "state" / "sessions").iterdir())


@pytest.mark.parametrize(
    "file",
    sorted(
        path.relative_to(ROOT).as_posix()
        for folder in ("examples", "tests/deploy")
        for path in (ROOT / folder).rglob("policy.toml")
    ),
)
def test_every_policy_that_ships_says_what_it_must(file):
    content = tomllib.loads((ROOT / file).read_text())
    assert content.keys() >= LEAST.keys()
    assert checked_policy(content, file)


# --- openings --------------------------------------------------------------------------------


def session(secagg, n=1000, corruption=0.05):
    graph = graph_parameters(n, 0.05, corruption, "malicious", security=secagg.security)
    return Session(
        run_id=b"run", round=1, attempt=0, roster_version=0, roster_digest=bytes(32),
        cohort=tuple(range(n)), threshold=graph.threshold, degree=graph.degree,
        min_survivors=n - graph.dropped, ring_bits=20, vector_length=5, mode=ServerMode.MALICIOUS,
    )  # fmt: skip


def accepts(session, **policy):
    ClientPolicy(**{**LEAST, "corruption": 0.05, **policy}).for_sessions().admit(session)


def test_two_to_the_minus_forty_is_divided_by_the_larger_number_of_openings():
    for run, day in [(300, 7), (7, 300), (300, 300)]:
        policy = ClientPolicy(**LEAST, max_openings_per_run=run, max_openings_per_day=day)
        assert policy.security == SECURITY / 300
        assert policy.openings == Openings(run, day, 2_592_000.0)
    assert SecAggSpec().security == ClientPolicy(**LEAST).security == SECURITY / 2000
    assert OPEN_POLICY.security == SECURITY


def test_a_graph_for_as_many_openings_as_the_policy_allows_is_accepted_and_one_for_fewer_is_not():
    many, one = session(SecAggSpec()), session(SecAggSpec(openings=1))
    assert many.degree > one.degree
    accepts(many)
    accepts(many, max_openings_per_run=1)  # the larger number counts, and it is the default
    accepts(one, max_openings_per_run=1, max_openings_per_day=1)
    with pytest.raises(UnsafeGraph):
        accepts(one)
    with pytest.raises(UnsafeGraph):
        accepts(many, max_openings_per_day=10**9)


QUERIES = """
[{prefix}queries]
columns = ["age"]
max_epsilon_per_query = 0.5

[table]
path = "t.csv"
rename = {{age = "years"}}
"""


def node_file(tmp_path, text):
    (tmp_path / "node.toml").write_text(text)
    return read_node_file(str(tmp_path / "node.toml"))


@pytest.mark.parametrize("head", ["", "[policy]\n"])
def test_a_policy_stands_alone_or_in_a_section_beside_a_table(tmp_path, head):
    prefix = "policy." if head else ""
    node = node_file(tmp_path, head + LEAST_TOML + QUERIES.format(prefix=prefix))
    assert node.policy.min_cohort == 2
    assert node.policy.budget_unit == "record"
    with pytest.raises(PolicyError, match=r"policy.queries.columns: .*t\.csv"):
        node.check_table()
    (tmp_path / "t.csv").write_text("years\n7\n")
    node.check_table()
    (tmp_path / "t.csv").write_text("year\n7\n")
    with pytest.raises(PolicyError, match='no column "years"; did you mean "year"'):
        node.check_table()


WRONG_FILES = {
    "a key beside the policy": ("[policy]\n" + LEAST_TOML, "[other]\nx = 1", "other stands beside"),
    "a column that is none": (LEAST_TOML, "[queries]\ncolumns = 3", "queries.columns"),
    "no columns": (LEAST_TOML, "[queries]\nmax_epsilon_per_query = 1.0", "queries.columns"),
    "a path that is none": (LEAST_TOML, "[table]\npath = 3", "table.path = 3"),
    "an unknown key of the table": (LEAST_TOML, "[table]\npath = 'a'\nkey = 1", "table.key"),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_node_file_that_says_what_nobody_reads_is_refused(tmp_path, name):
    head, more, why = WRONG_FILES[name]
    with pytest.raises(PolicyError, match=why):
        node_file(tmp_path, f"{head}\n{more}\n")


def test_queries_without_a_table_are_refused_at_the_start(tmp_path):
    text = LEAST_TOML + QUERIES.format(prefix="").partition("[table]")[0]
    with pytest.raises(PolicyError, match=r"allows queries and names no table: write \[table\]"):
        node_file(tmp_path, text).check_table()
    node_file(tmp_path, LEAST_TOML).check_table()


def test_rows_are_counted_by_a_column_whose_name_stands_once(tmp_path):
    """Of two of one name neither is read; rows are there whatever their columns are called."""
    (tmp_path / "table.csv").write_text("id,id,age\n1,1,30\n2,2,40\n")
    queries = '[policy.queries]\ncolumns = ["age"]\nmax_epsilon_per_query = 1.0\n'
    text = f'[policy]\n{LEAST_TOML}\n{queries}[table]\npath = "table.csv"\n'
    node = read_node_file(written(tmp_path, text))
    node.check_table()
    assert len(node.read_table(query_request(Count()).question)) == 2
