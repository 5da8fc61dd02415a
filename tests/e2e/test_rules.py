"""Robust rules in whole runs: one client that lies, and what each rule lets it do."""

import dataclasses
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from client_answers import answer_by
from torch.utils.data import TensorDataset

from zerosum.client.spec import TrainSpec
from zerosum.client.training.compute import LocalComputation
from zerosum.client.training.initial_model import initial_vector
from zerosum.client.training.local import LocalTrainer
from zerosum.server.config import ConfigError
from zerosum.server.private_sum.coordinator import Coordinator
from zerosum.server.runs.run_folder import METRICS, MODEL, REPORT, RunFolder
from zerosum.server.spec import ServerSpec
from zerosum.server.training import robust_rules
from zerosum.server.training.averaging import held_out
from zerosum.simulations import api, load_experiment
from zerosum.simulations.commands.summary import summary_table

SEEN = [
    "rounds=2",
    "data.clients=11",
    "sampling.kind=everyone",
    "training.epochs=1",
    "privacy.model=none",
    "privacy.clip=none",
    "encoding.range=1000.0",
    "encoding.bits=32",
    "secagg.protocol=none",
    "engine=serial",
    "faults.contribute=0.0",
    "faults.share=0.0",
    "faults.confirm=0.0",
    "faults.unmask=0.0",
    "faults.advertise=0.0",
]
RULES = {
    "median": [],
    "trimmed-mean": ["server.rule_malicious=2"],
    "krum": ["server.rule_malicious=2"],
    "multi-krum": ["server.rule_malicious=2"],
    "bulyan": ["server.rule_malicious=2"],
    "geometric-median": [],
    "fltrust": ["server.rule_examples=100"],
    "norm-bound": ["server.rule_bound=2.0"],
}
KRUM = ["server.rule=krum"]
pytestmark = pytest.mark.usefixtures("one_thread")


def run(folder, *settings):
    return api.run("digits", overrides=[*SEEN, *settings], out=folder, report=False)


def ruled(rule):
    return [f"server.rule={rule}", *RULES[rule]]


@pytest.fixture
def liar(monkeypatch):
    """Have client 3 send the largest vector that its encoding carries, and keep what all sent."""
    sent = {}
    update = LocalComputation.update

    def lying(self, request, client, entropy):
        found = update(self, request, client, entropy)
        if client.index == 3:
            coins = np.random.default_rng(request.question.round).integers(2, size=len(found))
            found = (2000.0 * coins - 1000.0).astype(found.dtype)
        sent[request.question.round, client.index] = found
        return found

    answer_by(monkeypatch, lying)
    return sent


def test_the_mean_by_name_is_the_mean_by_default_bit_for_bit(tmp_path):
    named, silent = run(tmp_path / "named", "server.rule=mean"), run(tmp_path / "silent")
    assert (named.folder / MODEL).read_bytes() == (silent.folder / MODEL).read_bytes()
    assert named.rounds[0]["average_norm"] == silent.rounds[0]["average_norm"] > 0


def test_a_liar_ruins_the_mean(tmp_path, liar):
    result = run(tmp_path / "run")
    assert result.rounds[0]["average_norm"] > 1000
    assert result.metrics["test_accuracy"] < 0.4


@pytest.mark.slow
@pytest.mark.parametrize("rule", list(RULES))
def test_a_rule_learns_beside_a_liar(tmp_path, liar, rule):
    result = run(tmp_path / "run", *ruled(rule))
    assert result.summary["rounds_abandoned"] == 0
    assert all(record["average_norm"] < 3 for record in result.rounds)
    assert result.metrics["test_accuracy"] > 0.6
    assert result.summary["rule"] == rule


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        (ruled("median"), robust_rules.median),
        (ruled("trimmed-mean"), partial(robust_rules.trimmed_mean, malicious=2)),
        (ruled("krum"), partial(robust_rules.krum, malicious=2)),
        (ruled("multi-krum"), partial(robust_rules.multi_krum, malicious=2)),
        (
            [*ruled("multi-krum"), "server.rule_selected=4"],
            partial(robust_rules.multi_krum, malicious=2, selected=4),
        ),
        (ruled("bulyan"), partial(robust_rules.bulyan, malicious=2)),
        (ruled("geometric-median"), robust_rules.geometric_median),
        (ruled("norm-bound"), partial(robust_rules.norm_bound, bound=2.0)),
    ],
)
def test_the_average_is_the_rules_of_what_clients_sent(tmp_path, liar, settings, rule):
    result = run(tmp_path / "run", "rounds=1", *settings)
    sent = np.stack([liar[1, index] for index in range(11)]).astype(np.float64)
    start = initial_vector(api.plan(RunFolder(result.folder).experiment).task, 0)
    moved = np.concatenate([value.ravel() for value in result.model.values()]) - start
    # A step of the encoding is 1000 / 2^31; the model is of float32.
    np.testing.assert_allclose(moved, rule(sent), atol=2e-6)


@pytest.mark.slow
def test_a_rule_averages_per_client_where_noise_fixes_the_means_divisor(tmp_path):
    """Under DP a sum is divided by the expected cohort, however many came; a rule's is not."""
    settings = ["rounds=1", "privacy.model=local", "privacy.clip=1.0", "privacy.delta=0.02"]
    settings += ["privacy.noise_multiplier=0.001", "encoding.range=1.0", "data.clients=40"]
    settings += ["sampling.kind=poisson", "sampling.cohort=20", "privacy.honest_fraction=0.1"]
    settings += ["secagg.dropout=0.4"]
    mean = run(tmp_path / "mean", *settings)
    bounded = run(tmp_path / "bounded", *settings, "server.rule=norm-bound", "server.rule_bound=9")
    cohort = mean.rounds[0]["survivors"]
    assert cohort != 20
    assert bounded.rounds[0]["average_norm"] * cohort == pytest.approx(
        mean.rounds[0]["average_norm"] * 20, rel=1e-9
    )
    assert "noise_norm" in mean.rounds[0]
    assert "noise_norm" not in bounded.rounds[0]
    assert bounded.summary["epsilon"] == mean.summary["epsilon"]
    assert mean.summary["epsilon"]["release"]["value"] > 0


@pytest.mark.slow
def test_a_round_of_too_few_contributions_is_abandoned_with_the_reason(tmp_path):
    settings = [*KRUM, "server.rule_malicious=4", "faults.contribute=0.1", "rounds=4"]
    result = run(tmp_path / "run", *settings, "secagg.dropout=0.4")
    lost = [r for r in result.rounds if r["status"] == "abandoned"]
    assert lost
    said = 'contributions, 11 needed by server.rule = "krum" (rule_malicious = 4)'
    assert all(record["reason"].endswith(said) for record in lost)
    for record in result.rounds:
        came = record["cohort"] - sum(record["dropouts"].values())
        assert (record["status"] == "completed") == (came >= 11)


@pytest.mark.parametrize(
    ("settings", "needed", "most"),
    [
        ([*KRUM, "server.rule_malicious=5"], 13, 11),
        (["server.rule=bulyan", "server.rule_malicious=3"], 15, 11),
        (["server.rule=trimmed-mean", "server.rule_malicious=6"], 13, 11),
        (
            ["server.rule=multi-krum", "server.rule_malicious=2", "server.rule_selected=10"],
            12,
            11,
        ),
        (
            [*KRUM, "server.rule_malicious=3", "sampling.kind=fixed", "sampling.cohort=8"],
            9,
            8,
        ),
        (
            [*KRUM, "server.rule_malicious=5", "sampling.kind=poisson", "sampling.cohort=8"],
            13,
            11,
        ),
    ],
)
def test_a_rule_that_no_cohort_can_serve_is_refused_before_the_run(
    tmp_path, settings, needed, most
):
    with pytest.raises(ConfigError, match=f"needs {needed} contributions.* {most} at most"):
        run(tmp_path / "run", *settings)
    assert not (tmp_path / "run").exists()


def test_fltrust_trains_its_own_update_as_a_client_would_on_records_left_out_of_tests(
    tmp_path, monkeypatch
):
    seen = []

    def fltrust(vectors, own):
        seen.append(own)
        return own.astype(np.float64)

    monkeypatch.setattr(robust_rules, "fltrust", fltrust)
    result = run(tmp_path / "run", "rounds=1", *ruled("fltrust"))
    experiment = RunFolder(result.folder).experiment
    task = api.plan(experiment).task
    held: Any = held_out(task.test_data(), experiment.server, experiment.seed)
    rest, root = held
    trainer = LocalTrainer(task, TrainSpec(**experiment.training.model_dump()))
    start = initial_vector(task, 0)
    sums = trainer.evaluate(start + seen[0], rest)
    assert result.metrics["test_accuracy"] == pytest.approx(sums["accuracy"] / sums["count"])
    assert sums["count"] == len(cast(Any, task.test_data())[1]) - 100
    before = trainer.evaluate(start, root)["loss"]
    assert trainer.evaluate(start + seen[0], root)["loss"] < 0.9 * before


@pytest.mark.slow
def test_a_resumed_fltrust_run_ends_where_it_would_have(tmp_path):
    whole = run(tmp_path / "whole", *ruled("fltrust"))
    run(tmp_path / "half", *ruled("fltrust"), "rounds=1")
    api.resume(tmp_path / "half", overrides=["rounds=2"], report=False)
    assert (tmp_path / "half" / MODEL).read_bytes() == (whole.folder / MODEL).read_bytes()


@pytest.mark.parametrize("pair", [True, False])
def test_root_records_and_tested_ones_are_all_records_once(pair):
    inputs, targets = torch.arange(40.0)[:, None], torch.arange(40)
    data = (inputs, targets) if pair else ListData(list(zip(inputs, targets, strict=True)))
    spec = ServerSpec(rule="fltrust", rule_examples=15)
    parts: Any = held_out(data, spec, 0)
    found = [[int(y) for y in (p[1] if pair else [t for _, t in p])] for p in parts]
    assert [len(part) for part in found] == [25, 15]
    assert sorted(found[0] + found[1]) == list(range(40))
    assert found[1] != list(range(25, 40))
    other: Any = held_out(data, spec, 1)[1]
    assert [int(y) for y in (other[1] if pair else [t for _, t in other])] != found[1]


class ListData(torch.utils.data.Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


@pytest.mark.parametrize("data", [None, TensorDataset(torch.zeros(15, 1), torch.zeros(15))])
def test_more_root_records_than_there_are_to_spare_are_refused(data):
    with pytest.raises(ConfigError, match=r"server\.rule_examples = 15.* some must be left"):
        held_out(data, ServerSpec(rule="fltrust", rule_examples=15), 0)


def test_too_many_root_records_are_refused_before_a_folder_is_made(tmp_path):
    with pytest.raises(ConfigError, match="lower it"):
        run(tmp_path / "run", "server.rule=fltrust", "server.rule_examples=100000")
    assert not (tmp_path / "run").exists()


def test_a_rule_without_contributions_stops_the_run(tmp_path, monkeypatch):
    """A sum is never taken for contributions, whatever went wrong before."""
    ask = Coordinator.private_sum

    def blind(self, *arguments, **options):
        return dataclasses.replace(ask(self, *arguments, **options), contributions=None)

    monkeypatch.setattr(Coordinator, "private_sum", blind)
    with pytest.raises(ValueError, match="only a sum is known"):
        run(tmp_path / "run", *ruled("median"))
    assert (tmp_path / "run" / METRICS).read_text() == ""


@pytest.mark.slow
def test_table_and_report_name_a_rule_and_no_mean(tmp_path):
    settings = [*SEEN, "rounds=1"]
    plain = api.run("digits", overrides=settings, out=tmp_path / "plain")
    krum = api.run("digits", overrides=[*settings, *ruled("krum")], out=tmp_path / "krum")
    for result, told in ((krum, True), (plain, False)):
        page = (result.folder / REPORT).read_text()
        assert ("(rule_malicious = 2): the average of a round is no mean" in page) is told
        cells = [str(cell) for column in summary_table(result.summary).columns
                 for cell in column.cells]  # fmt: skip
        assert ("by the rule krum, not a mean" in cells) is told
    assert load_experiment(krum.folder / "config.toml").server.rule_malicious == 2
