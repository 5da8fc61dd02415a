"""Whole runs, small ones: what must be the same is, what must differ does."""

import json
import re

import numpy as np
import pytest

from zerosum.client.task import ClientInfo
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.secagg.randomness import derive_seed
from zerosum.server.runs.run_folder import (
    CLIENT_LOG,
    LEDGER,
    LOCK,
    METRICS,
    MODEL,
    REPORT,
    SERVER_LOG,
    SUMMARY,
    TABLE,
    TEST_SET,
    RunFolder,
)
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.server.spec import FaultSpec
from zerosum.simulations import api
from zerosum.simulations.report.record import SIGHT
from zerosum.simulations.terminal.round_lines import describe

SMALL = [
    "rounds=3",
    "data.clients=30",
    "sampling.cohort=12",
    "privacy.delta=1e-2",
    "training.epochs=1",
    "secagg.dropout=0.4",
    "privacy.honest_fraction=0.5",
]
STAGES_OF_FOUR = ("advertise", "share", "contribute", "unmask")
PER_CLIENT = [*SMALL, "privacy.noise_draw=per_client"]


def run(*arguments, **options):
    return api.run(*arguments, report=False, **options)


def resume(*arguments, **options):
    return api.resume(*arguments, report=False, **options)


pytestmark = pytest.mark.usefixtures("one_thread")


def model_bytes(folder):
    return (folder / MODEL).read_bytes()


def lines_without_costs(folder):
    """Return metrics without what may differ between equal runs: times and bytes."""
    free = {"seconds", "stage_seconds", "bytes_up_per_client", "bytes_down_per_client"}
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in free} for line in lines]


@pytest.fixture(scope="module")
def pairwise(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "pairwise"
    return api.run("digits", overrides=PER_CLIENT, out=folder)


def test_a_run_leaves_everything_it_promises(pairwise):
    names = {path.name for path in pairwise.folder.iterdir()}
    expected = {"config.toml", METRICS, TABLE, LEDGER, SUMMARY, MODEL, TEST_SET, REPORT}
    expected |= {"checkpoint"}
    assert expected <= names <= {*expected, CLIENT_LOG, SERVER_LOG, SIGHT, LOCK}
    summary = json.loads((pairwise.folder / SUMMARY).read_text())
    assert summary.keys() >= {
        "metrics",
        "rounds",
        "rounds_abandoned",
        "epsilon",
        "dropouts",
        "bytes_up_per_client",
        "bytes_down_per_client",
        "seconds",
        "peak_memory_mb",
        "versions",
        "seed",
    }
    for figure in summary["epsilon"].values():
        assert figure.keys() >= {
            "value",
            "delta",
            "adjacency",
            "unit",
            "accountant",
            "participations",
        }
        assert figure["value"] > 0
    assert summary["metrics"]["test_accuracy"] == pytest.approx(
        pairwise.rounds[-1]["test_accuracy"]
    )


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(pairwise, tmp_path):
    again = run("digits", overrides=PER_CLIENT, out=tmp_path / "again")
    other = run("digits", overrides=[*PER_CLIENT, "seed=1"], out=tmp_path / "other")
    assert model_bytes(again.folder) == model_bytes(pairwise.folder)
    assert lines_without_costs(again.folder) == lines_without_costs(pairwise.folder)
    assert (again.folder / LEDGER).read_bytes() == (pairwise.folder / LEDGER).read_bytes()
    assert model_bytes(other.folder) != model_bytes(pairwise.folder)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["ideal", "none"])
def test_masks_leave_no_trace_in_the_model(pairwise, tmp_path, protocol):
    other = run(
        "digits", overrides=[*PER_CLIENT, f"secagg.protocol={protocol}"], out=tmp_path / "x"
    )
    assert model_bytes(other.folder) == model_bytes(pairwise.folder)
    assert [r["survivors"] for r in other.rounds] == [r["survivors"] for r in pairwise.rounds]
    assert [r["dropouts"] for r in other.rounds] == [r["dropouts"] for r in pairwise.rounds]


@pytest.mark.slow
def test_rotation_changes_the_bits_but_not_the_equality_of_protocols(tmp_path):
    settings = [*PER_CLIENT, "encoding.rotate=true", "rounds=2"]
    masked = run("digits", overrides=settings, out=tmp_path / "masked")
    ideal = run("digits", overrides=[*settings, "secagg.protocol=ideal"], out=tmp_path / "ideal")
    assert model_bytes(masked.folder) == model_bytes(ideal.folder)


@pytest.mark.slow
def test_noise_drawn_once_is_another_draw_of_the_same_size(tmp_path):
    settings = [*SMALL, "secagg.protocol=ideal", "rounds=1"]
    once = run("digits", overrides=settings, out=tmp_path / "once")
    each = run(
        "digits", overrides=[*settings, "privacy.noise_draw=per_client"], out=tmp_path / "each"
    )
    assert once.summary["noise_draw"] == "summed"
    assert model_bytes(once.folder) != model_bytes(each.folder)
    assert once.rounds[0]["noise_norm"] == each.rounds[0]["noise_norm"]
    assert once.rounds[0]["average_norm"] == pytest.approx(each.rounds[0]["average_norm"], rel=0.2)
    assert once.summary["epsilon"]["release"]["value"] == pytest.approx(
        each.summary["epsilon"]["release"]["value"], rel=1e-6
    )


def test_every_round_costs_epsilon_and_none_is_given_back(pairwise):
    for observer in ("sum", "local", "release"):
        values = [r["epsilon"][observer] for r in pairwise.rounds]
        assert values == sorted(values)
        assert values[0] > 0


@pytest.mark.slow
def test_local_noise_is_reported_as_local(tmp_path):
    result = run("digits", overrides=[*SMALL, "privacy.model=local"], out=tmp_path / "local")
    epsilon = result.summary["epsilon"]
    assert epsilon["local"]["value"] == epsilon["release"]["value"] == epsilon["sum"]["value"]
    assert epsilon["local"]["adjacency"] == "replace"


@pytest.mark.slow
def test_without_top_up_the_release_figure_is_refused_with_the_reason(tmp_path):
    settings = [*SMALL, "privacy.top_up=false", "model.name=mlp", "model.hidden=[2000]", "rounds=1"]
    result = run("digits", overrides=settings, out=tmp_path / "bare")
    assert result.summary["dimension"] > 149_000
    release = result.summary["epsilon"]["release"]
    assert release["value"] is None
    assert "top_up" in release["reason"]
    assert result.summary["epsilon"]["sum"]["value"] is not None


def test_without_privacy_there_is_no_epsilon_and_the_reason_says_so(tmp_path):
    result = run("digits", overrides=[*SMALL, "privacy.model=none"], out=tmp_path / "open")
    for figure in result.summary["epsilon"].values():
        assert figure["value"] is None
        assert "none" in figure["reason"]


@pytest.mark.slow
def test_a_target_epsilon_is_met_from_below(tmp_path):
    settings = [*SMALL, "privacy.epsilon=4.0", "faults.contribute=0", "rounds=2"]
    result = run("digits", overrides=settings, out=tmp_path / "target")
    spent = result.summary["epsilon"]["release"]["value"]
    assert 4.0 * 0.99 <= spent <= 4.0


SEMI_HONEST = ["secagg.server=semi-honest", "secagg.threshold=3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "chance"), [(["sampling.cohort=20"], 0.08), (SEMI_HONEST, 0.15)]
)
def test_clients_vanish_at_every_stage_and_the_sum_is_over_the_survivors(tmp_path, server, chance):
    stages = FaultSpec.model_fields if "sampling.cohort=20" in server else STAGES_OF_FOUR
    faults = [f"faults.{stage}={chance}" for stage in stages]
    settings = [*SMALL, *faults, "rounds=6", "privacy.honest_fraction=0.3", *server]
    open_sum = [*settings, "privacy.model=none", "encoding.bits=28"]
    masked = run("digits", overrides=open_sum, out=tmp_path / "masked")
    shown = run("digits", overrides=[*open_sum, "secagg.protocol=none"], out=tmp_path / "shown")
    assert list(masked.summary["dropouts"]) == list(stages)
    assert all(count > 0 for count in masked.summary["dropouts"].values())
    completed = [r for r in masked.rounds if r["status"] == "completed"]
    assert len(completed) >= 3
    for record in completed:
        lost = record["dropouts"]
        before_sum = lost["advertise"] + lost["share"] + lost["contribute"]
        assert record["survivors"] == record["cohort"] - before_sum
    assert model_bytes(masked.folder) == model_bytes(shown.folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "server", ["malicious", pytest.param("semi-honest", marks=pytest.mark.slow)]
)
def test_groups_give_the_same_model_under_every_protocol(tmp_path, server):
    settings = [*PER_CLIENT, "secagg.groups=3", "sampling.cohort=24", f"secagg.server={server}"]
    settings += ["faults.contribute=0.1", "rounds=4"]
    masked = run("digits", overrides=settings, out=tmp_path / "masked")
    ideal = run("digits", overrides=[*settings, "secagg.protocol=ideal"], out=tmp_path / "ideal")
    assert model_bytes(masked.folder) == model_bytes(ideal.folder)
    assert masked.summary["rounds_abandoned"] == 0
    assert masked.summary["groups"] == 3
    single = run("digits", overrides=[*settings, "secagg.groups=1"], out=tmp_path / "single")
    assert masked.rounds[0]["noise_norm"] == pytest.approx(
        3**0.5 * single.rounds[0]["noise_norm"], rel=1e-3
    )
    epsilons = [r.summary["epsilon"]["release"]["value"] for r in (masked, single)]
    assert epsilons[0] < epsilons[1]


@pytest.mark.slow
def test_a_failed_group_is_told_in_the_record_and_the_report(tmp_path):
    settings = [*PER_CLIENT, "secagg.groups=3", "sampling.cohort=24", "faults.contribute=0.35"]
    result = api.run("digits", overrides=[*settings, "rounds=6"], out=tmp_path / "run")
    failed = [r["failed_groups"] for r in result.rounds if r.get("failed_groups")]
    assert result.summary["groups_failed"] == sum(map(len, failed)) > 0
    page = (result.folder / REPORT).read_text()
    assert "Each cohort was 3 groups" in page
    assert "shared agreed keys" in page


@pytest.mark.slow
def test_too_few_survivors_abandon_the_round_and_leave_the_model_alone(tmp_path):
    settings = [*SMALL, "privacy.honest_fraction=0.6", "faults.contribute=0.8", "rounds=2"]
    with pytest.raises(NothingLearntError) as ended:
        run("digits", overrides=settings, out=tmp_path / "lost")
    result = ended.value.result
    assert "all 2 rounds were abandoned" in str(ended.value)
    assert "passed contribute" in str(ended.value)
    assert all(r["untrained"] for r in result.rounds)
    assert result.summary["untrained"]
    assert all(r["epsilon_charged"]["local"] > 0 for r in result.rounds)
    assert "charged epsilon" in describe(result.rounds[0], 2)
    assert "of the untrained model" in describe(result.rounds[0], 2)
    assert result.summary["rounds_abandoned"] == 2
    assert {r["status"] for r in result.rounds} == {"abandoned"}
    assert "needed" in result.rounds[0]["reason"]
    experiment = result_experiment(result)
    found = np.concatenate([value.ravel() for value in result.model.values()])
    start = initial_vector(api.plan(experiment).task, experiment.seed)
    np.testing.assert_array_equal(found, start)
    assert result.summary["epsilon"]["release"]["value"] == 0
    assert result.summary["epsilon"]["local"]["value"] > 0


@pytest.mark.slow
def test_a_run_goes_on_after_an_abandoned_round(tmp_path):
    settings = [*SMALL, "faults.contribute=0.35", "privacy.honest_fraction=0.6", "rounds=8"]
    result = run("digits", overrides=settings, out=tmp_path / "mixed")
    statuses = [r["status"] for r in result.rounds]
    assert "completed" in statuses[statuses.index("abandoned") :]
    assert result.summary["rounds_abandoned"] == statuses.count("abandoned")


@pytest.mark.slow
def test_an_empty_cohort_is_an_abandoned_round(tmp_path):
    settings = [*SMALL, "sampling.cohort=1", "rounds=4", "secagg.dropout=0.0"]
    try:
        result = run("digits", overrides=settings, out=tmp_path / "empty")
    except NothingLearntError as ended:
        result = ended.result
    assert result.summary["rounds_abandoned"] >= 3


@pytest.mark.slow
def test_a_longer_run_continues_a_shorter_one(pairwise, tmp_path):
    short = run("digits", overrides=[*PER_CLIENT, "rounds=1"], out=tmp_path / "short")
    longer = resume(short.folder, overrides=["rounds=3"])
    assert model_bytes(longer.folder) == model_bytes(pairwise.folder)
    assert lines_without_costs(longer.folder) == lines_without_costs(pairwise.folder)
    assert (longer.folder / LEDGER).read_bytes() == (pairwise.folder / LEDGER).read_bytes()


@pytest.mark.slow
def test_more_rounds_than_a_target_was_planned_for_are_told_with_both_figures(tmp_path, caplog):
    target = [*SMALL, "privacy.epsilon=5", "rounds=2"]
    short = run("digits", overrides=target, out=tmp_path / "short")
    resume(short.folder)
    assert "planned" not in caplog.text
    longer = resume(short.folder, overrides=["rounds=4"])
    warned = [record.getMessage() for record in caplog.records if "planned" in record.message]
    spent = longer.summary["epsilon"]["release"]["value"]
    found = re.fullmatch(
        r"rounds = 4: this run was planned for epsilon_release = (\S+) with 2 rounds; "
        r"with 4 it goes to (\S+)",
        *warned,
    )
    assert found
    assert float(found[1]) == pytest.approx(5.0, rel=0.005)
    assert 5.0 < spent <= float(found[2]) < 1.1 * spent


@pytest.mark.slow
def test_more_rounds_without_privacy_cost_nothing_that_is_warned_of(tmp_path, caplog):
    plain = [*SMALL, "privacy.model=none", "rounds=1"]
    short = run("digits", overrides=plain, out=tmp_path / "short")
    resume(short.folder, overrides=["rounds=2"])
    assert "planned" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["server.optimizer=Adam", "server.lr=0.05"],
        pytest.param(["server.options={momentum=0.9}"], marks=pytest.mark.slow),
        pytest.param(["sampling.kind=once", "sampling.cohort=10"], marks=pytest.mark.slow),
        pytest.param(["sampling.kind=fixed"], marks=pytest.mark.slow),
    ],
)
def test_optimizer_and_sampler_state_survive_a_resume(tmp_path, settings):
    whole = run("digits", overrides=[*SMALL, *settings, "rounds=3"], out=tmp_path / "whole")
    part = run("digits", overrides=[*SMALL, *settings, "rounds=2"], out=tmp_path / "part")
    resumed = resume(part.folder, overrides=["rounds=3"])
    assert model_bytes(resumed.folder) == model_bytes(whole.folder)


@pytest.mark.slow
def test_a_federated_evaluation_is_one_more_private_sum(tmp_path):
    evaluation = [
        "evaluation.federated_every=1",
        "evaluation.federated_noise_multiplier=1.0",
        "rounds=2",
    ]
    with_it = run("digits", overrides=[*SMALL, *evaluation], out=tmp_path / "with")
    without = run("digits", overrides=[*SMALL, "rounds=2"], out=tmp_path / "without")
    assert model_bytes(with_it.folder) == model_bytes(without.folder)
    for observer in ("sum", "local", "release"):
        assert (
            with_it.summary["epsilon"][observer]["value"]
            > without.summary["epsilon"][observer]["value"]
        )


@pytest.mark.slow
def test_a_federated_evaluation_without_noise_is_exact(tmp_path):
    settings = [
        "privacy.model=none",
        "sampling.kind=everyone",
        *(f"faults.{stage}=0" for stage in ("advertise", "share", "contribute", "unmask")),
        "evaluation.federated_every=1",
        "rounds=1",
    ]
    result = run("digits", overrides=[*SMALL, *settings], out=tmp_path / "exact")
    record = result.rounds[0]
    planned = api.plan(result_experiment(result))
    trainer = LocalTrainer(planned.task, planned.experiment.training)
    vector = np.concatenate([value.ravel() for value in result.model.values()])
    sums = [
        trainer.evaluate(vector, planned.task.data(ClientInfo(index=i, count=30)))
        for i in range(30)
    ]
    count = sum(s["count"] for s in sums)
    assert record["federated_accuracy"] == pytest.approx(
        sum(s["accuracy"] for s in sums) / count, abs=1e-4
    )
    assert record["federated_loss"] == pytest.approx(sum(s["loss"] for s in sums) / count, abs=1e-4)


@pytest.mark.parametrize("weighting", [pytest.param("uniform", marks=pytest.mark.slow), "examples"])
def test_masked_fedavg_is_a_ten_line_loop_within_the_encoding_step(tmp_path, weighting):
    settings = [
        *SMALL,
        "privacy.model=none",
        "privacy.clip=none",
        "encoding.range=4.0",
        "encoding.bits=28",
        "sampling.kind=everyone",
        "data.partition=dirichlet",
        "data.clients=8",
        "rounds=2",
        *(f"faults.{stage}=0" for stage in ("advertise", "share", "contribute", "unmask")),
    ]
    result = run(
        "digits", overrides=[*settings, f"training.weighting={weighting}"], out=tmp_path / "a"
    )
    planned = api.plan(result_experiment(result))
    experiment, task = planned.experiment, planned.task
    trainer = LocalTrainer(task, experiment.training, seed=experiment.seed)
    model = initial_vector(task, experiment.seed).astype(np.float64)
    for number in (1, 2):
        total, weights = np.zeros_like(model), 0.0
        for index in range(8):
            data = task.data(ClientInfo(index=index, count=8, seed=experiment.seed))
            seed = derive_seed(experiment.seed, "local training", number, index)
            weight = len(data[1]) if weighting == "examples" else 1
            total += weight * trainer.train(model.astype(np.float32), data, seed)
            weights += weight
        model += total / weights
    step = 4.0 / (2**27 - 1)
    # Weights are carried as n / max_examples, so that their steps are that much coarser.
    tolerance = 2 * 2 * step * (10_000 / 20 if weighting == "examples" else 1) + 1e-6
    found = np.concatenate([value.ravel() for value in result.model.values()])
    np.testing.assert_allclose(found, model, atol=tolerance, rtol=0)


def result_experiment(result):
    return RunFolder.open(result.folder).experiment
