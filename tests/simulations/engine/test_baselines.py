"""Baselines: clients alone and all records together, against runs of one client."""

import json

import pytest
import torch
from torch.utils.data import TensorDataset

from zerosum.client.task import ClientInfo
from zerosum.client.training.initial_model import build_model
from zerosum.server.config import ConfigError
from zerosum.server.flower.server_app import _check_deployable
from zerosum.server.runs.run_folder import MODEL, SUMMARY
from zerosum.simulations import api, load_experiment
from zerosum.simulations.engine import baselines
from zerosum.simulations.engine.baselines import BASELINES, MOST_ALONE

pytestmark = pytest.mark.usefixtures("one_thread")
CLIENTS = 3


class Shifted:
    """Clients whose records lie apart; `only` keeps one of them, or all as one."""

    def __init__(self, clients=CLIENTS, only=None, wrap=tuple):
        self.clients, self.only, self.wrap = clients, only, wrap
        self.failing: set[int] = set()
        self.empty: set[int] = set()

    def model(self):
        return torch.nn.Linear(4, 3)

    def num_clients(self):
        return self.clients if self.only is None else 2  # alike: their mean is one

    def data(self, client: ClientInfo):
        if self.only == "all":
            parts = [self.records(index) for index in range(self.clients)]
            return tuple(torch.cat(part) for part in zip(*parts, strict=True))
        index = client.index if self.only is None else self.only
        if index in self.failing:
            raise OSError("no disk")
        inputs, targets = self.records(index)
        rows = 0 if index in self.empty else len(targets)
        return self.wrap((inputs[:rows], targets[:rows]))

    def records(self, seed):
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.randn(12 + seed % 5, 4, generator=generator)
        return inputs, (inputs[:, :3].argmax(1) + seed % 2) % 3

    def test_data(self):
        return self.records(96)

    def loss(self, outputs, targets):
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")


BASE = {
    "task": "digits",
    "rounds": 4,
    "engine": "serial",
    "baselines": True,
    "sampling": {"kind": "everyone"},
    "privacy": {"model": "none", "clip": 4.0},
    "encoding": {"range": 4.0},
    "secagg": {"protocol": "ideal", "server": "semi-honest"},
    "training": {"epochs": 2, "lr": 0.3, "batch_size": "all"},
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    def run(task, *settings, name="run", **values):
        monkeypatch.setattr(api, "resolve_task", lambda *arguments: task)
        experiment = load_experiment({**BASE, **values}, settings)
        return api.run(experiment, out=tmp_path / name, report=False)

    return run


def lines(result):
    return [json.loads(line) for line in (result.folder / BASELINES).read_text().splitlines()]


SERVERS = {
    "averaging": [],
    "Adam and schedules": [
        *("server.optimizer=Adam", "server.lr=0.05", "server.schedule=cosine"),
        *("training.schedule=linear", "training.momentum=0.5"),
    ],
    "Adam at the clients": ["training.optimizer=Adam", "training.lr=0.05"],
}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, id=name, marks=[pytest.mark.slow] * (name != "Adam and schedules"))
        for name, settings in SERVERS.items()
    ],
)
def test_a_baseline_is_the_run_of_its_client_alone(run, settings) -> None:
    pooled, *alone = lines(run(Shifted(), *settings))
    for line, only in zip([pooled, *alone], ["all", 0, 1, 2], strict=True):
        single = run(Shifted(only=only), *settings, "baselines=false", name=f"only-{only}")
        expected = single.metrics["test_loss"]
        # A run's sums are rounded to a grid, which a baseline is not.
        assert line["metrics"]["test_loss"] == pytest.approx(expected, rel=1e-3)
        assert line["metrics"]["test_accuracy"] == single.metrics["test_accuracy"]
    losses = [line["metrics"]["test_loss"] for line in (pooled, *alone)]
    assert min(abs(a - b) for a in losses for b in losses if a is not b) > 3e-3  # no two are alike


@pytest.mark.slow
def test_noise_clip_and_masks_are_none_of_theirs(run) -> None:
    plain = run(Shifted(), name="plain")
    private = run(
        Shifted(), name="private",
        privacy={"delta": 0.01, "clip": 0.1, "noise_multiplier": 2.0, "honest_fraction": 0.5},
        encoding={}, secagg={"dropout": 0.1, "server": "semi-honest"},
    )  # fmt: skip
    assert private.metrics != plain.metrics
    figures = [[line["metrics"] for line in lines(each)] for each in (plain, private)]
    assert figures[0] == figures[1]


@pytest.mark.slow
def test_sums_of_gradients_are_descent_on_the_whole_lot(run) -> None:
    records = sum(len(Shifted().records(index)[1]) for index in range(CLIENTS))
    private = {"delta": 0.001, "clip": 1.0, "noise_multiplier": 1.0, "unit": "example"}
    private |= {"examples": records, "lot": records, "honest_fraction": 0.5}
    result = run(
        Shifted(), "server.lr=0.4", "server.options={ momentum = 0.5 }", privacy=private,
        secagg={"dropout": 0.1, "protocol": "ideal", "server": "semi-honest"},
    )  # fmt: skip
    pooled, first, *_ = lines(result)
    for line, only in ((pooled, "all"), (first, 0)):
        task = Shifted(only=only)
        inputs, targets = task.data(ClientInfo(index=0, count=1))
        model = build_model(task, 0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.4, momentum=0.5)
        for _ in range(4):
            optimizer.zero_grad()
            task.loss(model(inputs), targets).mean().backward()
            optimizer.step()
        tested, labels = task.test_data()
        expected = task.loss(model(tested), labels).mean().item()
        assert line["metrics"]["test_loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize(
    ("settings", "pooled", "alone"),
    [
        ([], 4, 4),
        (["sampling.kind=fixed", "sampling.cohort=2"], 3, 4),  # 4 * 2 / 3, rounded
        (["sampling.kind=fixed", "sampling.cohort=2", "rounds=1"], 1, 1),
        (["sampling.kind=fixed", "sampling.cohort=2", "training.steps=3"], 4, 4),
    ],
)
def test_all_records_are_passed_over_as_often_as_by_the_run(run, settings, pooled, alone) -> None:
    found = run(Shifted(), *settings).summary.baselines
    assert (found["pooled"]["rounds"], found["alone"]["rounds"]) == (pooled, alone)


@pytest.mark.slow
def test_the_runs_own_files_keep_their_bits(run) -> None:
    with_them = run(Shifted(), name="with")
    without = run(Shifted(), "baselines=false", name="without")
    assert (with_them.folder / MODEL).read_bytes() == (without.folder / MODEL).read_bytes()
    assert with_them.metrics == without.metrics
    assert without.summary.baselines == {}
    assert "baselines" not in json.loads((without.folder / SUMMARY).read_text())


@pytest.mark.slow
def test_workers_change_nothing(run) -> None:
    batches = "training.batch_size=5"
    alone = run(Shifted(), batches, name="alone")
    many = run(Shifted(), batches, "engine=processes", "workers=2", name="many")
    assert (alone.folder / BASELINES).read_bytes() == (many.folder / BASELINES).read_bytes()


@pytest.mark.slow
def test_data_sets_are_pooled_as_tensors_are(run) -> None:
    class Own(TensorDataset):
        """Not read as tensors, for a subclass may give other items."""

    tensors = run(Shifted(), name="tensors")
    items = run(Shifted(wrap=lambda pair: Own(*pair)), name="items")
    assert lines(tensors)[0]["metrics"] == lines(items)[0]["metrics"]


def test_a_resumed_run_trains_none_twice_and_ends_with_the_same_bytes(run, monkeypatch) -> None:
    result = run(Shifted())
    whole = (result.folder / BASELINES).read_bytes()
    summary = json.loads((result.folder / SUMMARY).read_text())["baselines"]
    kept = whole.splitlines(keepends=True)
    (result.folder / BASELINES).write_bytes(b"".join(kept[:2]))  # it was killed after two
    trained: list[int | None] = []
    figures = baselines._figures

    def counted(setting, client):
        trained.append(client)
        return figures(setting, client)

    monkeypatch.setattr(baselines, "_figures", counted)
    again = api.resume(result.folder, report=False)
    assert trained == [1, 2]
    assert (result.folder / BASELINES).read_bytes() == whole
    assert again.summary.baselines == summary
    api.resume(result.folder, report=False)
    assert trained == [1, 2]


@pytest.mark.slow
def test_more_rounds_are_other_baselines(run) -> None:
    result = run(Shifted())
    before = lines(result)
    again = api.resume(result.folder, overrides=["rounds=6"], report=False)
    after = lines(again)
    assert len(after) == len(before)
    assert [line["rounds"] for line in after] == [6] * 4
    assert before[0]["metrics"] != after[0]["metrics"]


@pytest.mark.slow
def test_they_can_be_asked_for_afterwards(run) -> None:
    result = run(Shifted(), "baselines=false", name="later")
    later = api.resume(result.folder, overrides=["baselines=true"], report=False)
    assert later.summary.baselines == run(Shifted(), name="at-once").summary.baselines


@pytest.mark.slow
def test_of_many_clients_a_sample_follows_from_the_seed(run) -> None:
    many = {"training": {"steps": 1, "batch_size": "all"}, "rounds": 1}
    drawn = [
        [line["client"] for line in lines(run(Shifted(40), f"seed={seed}", name=name, **many))[1:]]
        for seed, name in ((0, "a"), (0, "b"), (1, "c"))
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == MOST_ALONE
    assert drawn[0] == sorted(drawn[0])


@pytest.mark.slow
def test_clients_that_fail_or_have_nothing_are_counted_apart(run) -> None:
    task = Shifted()
    task.failing, task.empty = {0}, {1}
    result = run(task, "secagg.dropout=0.6")
    found = result.summary.baselines
    assert (found["alone"]["clients"], found["alone"]["failed"]) == (1, 2)
    assert found["alone"]["first_failure"] == "client 0: OSError: no disk"
    assert found["pooled"]["records"] == len(Shifted().records(2)[1])


@pytest.mark.slow
def test_a_diverged_baseline_is_no_figure(run) -> None:
    with pytest.raises(api.NothingLearntError) as ended:
        run(Shifted(), "training.lr=1e6", "training.epochs=50", "training.weight_decay=1.0")
    found = ended.value.result.summary.baselines
    assert found["alone"]["metrics"] == {}
    assert "diverged" in found["pooled"]["error"]


@pytest.mark.slow
def test_a_figure_without_a_value_costs_no_other(run) -> None:
    class Undefined(Shifted):
        def test_metrics(self, outputs, targets):
            return {"precision": float("nan"), "largest": float(outputs.max())}

    found = run(Undefined(), rounds=1).summary.baselines
    named = {"test_loss", "test_accuracy", "test_largest"}
    assert set(found["alone"]["metrics"]) == set(found["pooled"]["metrics"]) == named


def test_without_test_data_they_are_refused(run, tmp_path, monkeypatch) -> None:
    task = Shifted()
    monkeypatch.setattr(task, "test_data", lambda: None)
    with pytest.raises(ConfigError, match="baselines = true needs public test data"):
        run(task)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("simulated", [True, False])
def test_a_server_refuses_them(simulated) -> None:
    with pytest.raises(ConfigError, match="a server has none; write baselines=false"):
        _check_deployable(load_experiment(BASE, []), simulated)


COMPONENTS = [
    *("task=digits", "rounds=2", "data.clients=3", "model.name=mlp", "model.hidden=[8]"),
    *("model.components=10", "model.inputs=64", "privacy.unit=example", "privacy.examples=1438"),
    *("privacy.lot=400", "privacy.delta=1e-4", "privacy.noise_multiplier=2.0"),
    *("privacy.components_noise=3.0", "privacy.honest_fraction=0.6", "encoding.range=20.0"),
    *("sampling.kind=everyone", "secagg.dropout=0.3", "secagg.protocol=ideal", "server.lr=1.0"),
    *("faults.advertise=0.0", "faults.share=0.0", "faults.contribute=0.0", "engine=serial"),
]


@pytest.mark.slow
def test_public_components_are_those_of_the_run_also_on_a_resume(tmp_path) -> None:
    result = api.run("digits", overrides=[*COMPONENTS, "baselines=true"], out=tmp_path / "run",
                     report=False)  # fmt: skip
    figures = result.summary.baselines
    assert figures["pooled"]["records"] == 1438
    assert figures["pooled"]["metrics"]["test_loss"] < result.metrics["test_loss"]
    before = (result.folder / BASELINES).read_bytes()
    (result.folder / BASELINES).write_bytes(before.splitlines(keepends=True)[0])
    api.resume(result.folder, report=False)
    assert (result.folder / BASELINES).read_bytes() == before
