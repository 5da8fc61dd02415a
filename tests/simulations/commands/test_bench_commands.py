"""Each benchmark runs on a tiny case and says what it should: never how long it took."""

import importlib.util
import json
import math
import tomllib

import pytest
from typer.testing import CliRunner

from zerosum.client.flower.node_policy import checked_policy
from zerosum.simulations.bench import BenchError, deployment, measure
from zerosum.simulations.bench import dpsgd as bench_dpsgd
from zerosum.simulations.bench.dpsgd import run as dpsgd
from zerosum.simulations.bench.flower import run as flower
from zerosum.simulations.bench.primitives import run as primitives
from zerosum.simulations.bench.session import Play
from zerosum.simulations.bench.session import run as session
from zerosum.simulations.bench.setting import BenchedSession
from zerosum.simulations.commands import bench as commands
from zerosum.simulations.commands.main import app

KEYS = {
    "n",
    "d",
    "degree",
    "threshold",
    "client_cpu_s",
    "server_unmask_cpu_s",
    "bytes_up_per_client",
    "peak_memory_mb",
    "total_s",
    "machine",
    "sum_correct",
}


@pytest.mark.slow
@pytest.mark.parametrize("server", ["malicious", "semi-honest"])
@pytest.mark.parametrize("degree", ["complete", "9"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_session_gives_the_right_sum_and_every_figure(server, degree, dropout):
    found = session(n=12, d=50, server=server, degree=degree, dropout=dropout, corruption=0.0)
    assert found.keys() >= KEYS
    assert found["sum_correct"] is True
    assert found["survivors"] == (12 if dropout == 0 else 10)
    assert found["degree"] == (11 if degree == "complete" else 9)
    stages = ["advertise", "share", "contribute", "unmask"]
    if server == "malicious":
        stages.insert(3, "confirm")
    assert list(found["stages"]) == stages
    assert [row["clients"] for row in found["stages"].values()][:3] == [12, 12, found["survivors"]]
    json.dumps(found)


@pytest.mark.slow
def test_sharing_changes_no_bytes_and_is_said():
    alone, shared = (session(n=6, d=20, degree="complete", share=share) for share in (False, True))
    assert (alone["sharing"], shared["sharing"]) == (False, True)
    assert alone["bytes_up_per_client"] == shared["bytes_up_per_client"]
    assert shared["sum_correct"]


@pytest.mark.slow
def test_the_server_alone_is_measured_apart():
    found = measure("memory", {"n": 8, "d": 50, "degree": "complete", "dropout": 0.25})
    assert found["survivors"] == 6
    assert found["server_memory_mb"] >= found["server_memory_before_mb"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 2])
def test_unmasking_with_liars_is_set_beside_an_honest_one(count):
    found = measure("liars", {"n": 40, "d": 50, "dropout": 0.1, "liars": count, "repeats": 2})
    assert found["ratio"] == found["liars_unmask_cpu_s"] / found["honest_unmask_cpu_s"] > 0
    assert (found["decodings"], found["colluders"]) == (int(count > 0), 2)
    assert (found["liars_named"], found["sum_correct"], found["failure"]) == (True, True, "")
    assert found["wrong_shares"] == 39 * count


@pytest.mark.slow
def test_sparse_sessions_that_assume_no_dropout_name_their_liars():
    asked = {"n": 100, "d": 5, "dropout": 0.0, "corruption": 0.03, "liars": 3, "repeats": 1}
    found = measure("liars", asked)
    assert found["degree"] < 40
    assert (found["liars_named"], found["sum_correct"], found["failure"]) == (True, True, "")
    # The control: the fewest neighbours that are safe without a dropout have no share to spare.
    control = measure("liars", asked | {"degree": 8, "threshold": 8})
    assert not control["liars_named"]
    assert "does not match its commitment" in control["failure"]


@pytest.mark.slow
def test_more_liars_than_survivors_are_refused():
    with pytest.raises(BenchError, match="--liars 9: there are 7 survivors"):
        measure("liars", {"n": 8, "d": 5, "dropout": 0.2, "liars": 9, "repeats": 1})


@pytest.mark.parametrize("other", [["--server-memory"], ["--primitives"], ["--versus", "flower"]])
def test_an_option_that_would_be_ignored_is_refused(other):
    result = CliRunner().invoke(app, ["bench", "secagg", "--liars", "1", *other])
    assert result.exit_code == 2
    assert "measure different things" in " ".join(result.output.split())


@pytest.mark.slow
def test_the_command_tells_what_liars_cost(tmp_path):
    path = tmp_path / "found.json"
    arguments = ["--n", "30", "--d", "20", "--liars", "1", "--repeats", "1", "--json", str(path)]
    result = CliRunner().invoke(app, ["bench", "secagg", *arguments])
    assert result.exit_code == 0
    assert "named: all liars and nobody else; sum correct" in result.output
    assert json.loads(path.read_text())["liars"] == 1


@pytest.mark.slow
def test_a_session_is_set_beside_what_its_primitives_take():
    found = session(n=8, d=50, degree="complete", dropout=0.25)
    assert 0 < found["primitives"]["client_cpu_s"] < found["client_cpu_s"]
    assert 0 < found["primitives"]["server_unmask_cpu_s"] < found["server_unmask_cpu_s"]


@pytest.mark.slow
def test_a_vector_takes_as_many_bytes_as_its_bits_ask_for():
    ring = session(n=4, d=1000, degree="complete", bits=16)
    assert ring["ring_bits"] == 18
    vector = 1000 * 18 // 8
    assert vector < ring["stages"]["contribute"]["bytes_up_per_client"] < vector + 200


@pytest.mark.slow
def test_each_measurement_has_a_process_of_its_own():
    found = measure("session", {"n": 4, "d": 10, "degree": "complete"})
    assert found["sum_correct"] is True
    assert found["processor"]
    assert found["peak_memory_mb"] < 200


@pytest.mark.slow
def test_a_session_that_cannot_be_is_refused_in_one_line():
    with pytest.raises(BenchError, match=r"threshold = 9 is not in 1 \.\. 3"):
        measure("session", {"n": 4, "d": 10, "degree": "complete", "threshold": 9})


def test_a_measurement_ends_at_its_limit():
    with pytest.raises(BenchError, match="did not end within"):
        measure("session", {"n": 4, "d": 10, "degree": "complete"}, time_limit=0.001)


def test_primitives_give_rates_and_ratios():
    found = primitives(lengths=[1000], peers=3, holders=5, threshold=3, bits=20, repetitions=1)
    (row,) = found["expansion"]
    assert row.keys() >= {"d", "peers", "expansion_gb_s", "aes_gb_s", "ratio", "ratio_median"}
    names = [rate["name"] for rate in found["rates"]]
    assert [name.partition(" ")[0] for name in names] == [
        "Shamir",
        "Shamir",
        "X25519:",
        "Ed25519:",
        "Ed25519:",
        "packing:",
        "unpacking:",
    ]
    assert all(rate["value"] > 0 for rate in found["rates"])


def test_flowers_client_is_measured_as_it_is_where_it_finishes():
    found = flower(degree=4, d=30, threshold=3)
    assert found["extrapolated"] is False
    assert list(found["stages"]) == ["setup", "share", "contribute", "unmask"]
    assert found["client_cpu_s"] == sum(found["stages"].values())


def test_what_flowers_client_does_not_finish_is_extrapolated_and_said():
    found = flower(degree=40, d=30, threshold=27, time_limit=0.0)
    assert found["extrapolated"] is True
    assert found["measured_degree"] == 8
    assert found["client_cpu_s"] > found["measured_client_cpu_s"]


@pytest.mark.slow
def test_the_command_tells_the_server_s_unmasking_on_the_default_graph_too(tmp_path):
    file = tmp_path / "figures.json"
    arguments = ["bench", "secagg", "--n", "8", "--d", "40", "--degree", "5", "--dropout", "0.2"]
    arguments += ["--share", "--default-graph", "--json", str(file)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text())
    assert (found["degree"], found["default_graph"]["degree"]) == (5, 7)
    text = " ".join(result.output.split())
    assert text.count("the server unmasking without a cache") == 2
    assert "a client 0" not in text, "clients that share a cache are not set beside primitives"


def test_a_server_has_no_part_in_its_clients_cache():
    opened, _, roster = BenchedSession(n=4, d=10, degree="complete").open()
    play = Play(opened, 16, 0, True, 1, frozenset())
    assert play._cache is not None
    assert play._server_party(roster)._cache is None


@pytest.mark.slow
def test_the_command_writes_its_figures(tmp_path):
    file = tmp_path / "figures.json"
    arguments = ["bench", "secagg", "--n", "5", "--d", "40", "--degree", "complete"]
    arguments += ["--dropout", "0.2", "--versus", "flower", "--repeats", "1", "--json", str(file)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text())
    assert found.keys() >= KEYS
    assert found["sum_correct"] is True
    assert found["versus"]["flower"]["ratio"] > 0
    assert "sum correct" in result.output
    assert "Flower SecAgg+" in result.output


@pytest.mark.parametrize(
    ("option", "value"), [("--server", "kind"), ("--degree", "many"), ("--dropout", "1.5")]
)
def test_a_wrong_option_is_named(option, value):
    result = CliRunner().invoke(app, ["bench", "secagg", "--n", "5", option, value])
    assert result.exit_code == 2
    assert f"{option} {value}" in result.output


@pytest.mark.parametrize("command", ["secagg", "dpsgd", "noise"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    command, tmp_path, monkeypatch
):
    monkeypatch.setattr(commands, "measure", lambda *_: pytest.fail("it was measured"))
    file = tmp_path / "none" / "figures.json"
    result = CliRunner().invoke(app, ["bench", command, "--json", str(file)])
    assert result.exit_code == 2
    assert "create it first" in result.output


@pytest.mark.slow
def test_a_private_step_is_measured_beside_the_plain_one():
    found = dpsgd(batch=3, seconds=0.0)
    methods = {"plain", "per-example", "per-example-float64"}
    peers = {"opacus-hooks", "opacus-ghost"}
    for model in ("mlp", "cnn"):
        rows = {row["method"]: row for row in found["rows"] if row["model"] == model}
        assert methods <= rows.keys() <= methods | peers
        assert rows["plain"]["ratio_to_plain"] == rows["per-example"]["ratio_to_ours"] == 1
        assert all(row["batch"] == 3 and row["ms"] > 0 for row in rows.values())
    absent = importlib.util.find_spec("opacus") is None
    assert found["missing"].keys() == (peers if absent else set())
    assert all("--peers" in reason for reason in found["missing"].values())


def test_a_peer_that_fails_or_computes_something_else_is_no_row(monkeypatch):
    def failing(*_):
        raise RuntimeError("of another torch")

    monkeypatch.setattr(bench_dpsgd, "_opacus_hooks", failing)
    monkeypatch.setattr(bench_dpsgd, "_opacus_ghost", bench_dpsgd._plain)  # it clips nothing
    with pytest.raises(BenchError, match="opacus-ghost has another sum than ours"):
        dpsgd(batch=3, seconds=0.0, models=("mlp",))
    monkeypatch.setattr(bench_dpsgd, "_opacus_ghost", failing)
    found = dpsgd(batch=3, seconds=0.0, models=("mlp",))
    assert found["missing"]["opacus-hooks"] == "it fails: RuntimeError: of another torch"
    assert {row["method"] for row in found["rows"]} == {
        "plain", "per-example", "per-example-float64",
    }  # fmt: skip


def test_a_folder_of_peers_that_is_none_is_named(tmp_path):
    result = CliRunner().invoke(app, ["bench", "dpsgd", "--peers", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "pip install --target" in result.output


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused(seconds: str) -> None:
    result = CliRunner().invoke(app, ["bench", "dpsgd", "--seconds", seconds])
    assert result.exit_code == 2
    assert "seconds" in result.output


def test_the_policy_of_a_deployment_that_is_measured_says_what_it_must():
    assert checked_policy(tomllib.loads(deployment._POLICY), "it").max_epsilon == math.inf
