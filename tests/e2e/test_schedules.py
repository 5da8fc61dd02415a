"""Whole runs with other optimizers and schedules: as by hand, and resumed exactly."""

import io
import re
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.optim import lr_scheduler

from zerosum.client.spec import TrainSpec
from zerosum.client.task import ClientInfo, TaskError
from zerosum.client.training.local import LocalTrainer
from zerosum.client.training.threads import one_thread
from zerosum.client.training.torch_seed import seeded
from zerosum.secagg.randomness import derive_seed, numpy_generator
from zerosum.server.config import ConfigError, parse_experiment
from zerosum.server.planning.plan import Outlook, outlook
from zerosum.server.planning.preflight import prepare
from zerosum.server.runs.run_folder import METRICS, MODEL, RunFolder
from zerosum.server.training.averaging import Averaging
from zerosum.simulations import api
from zerosum.simulations.commands.plan import plan_table
from zerosum.simulations.commands.summary import summary_table
from zerosum.simulations.report.page import render
from zerosum.simulations.report.record import read_run

CLIENTS, ROUNDS, SIZE = 4, 5, 6

CONFIG: dict[str, Any] = {
    "task": "uneven",
    "rounds": ROUNDS,
    "engine": "serial",
    "data": {"clients": CLIENTS},
    "training": {
        "epochs": 2,
        "batch_size": SIZE,
        "lr": 0.05,
        "optimizer": "Adam",
        "options": {"betas": [0.8, 0.99]},
        "schedule": "cosine",
        "warmup_rounds": 2,
    },
    "privacy": {"model": "none", "clip": "none"},
    "encoding": {"range": 16.0, "bits": 32},
    "sampling": {"kind": "everyone"},
    "server": {"options": {"momentum": 0.5}, "schedule": "linear", "final": 0.25},
}


class Uneven:
    """Three classes in six dimensions; each client has more records than the one before."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))

    def data(self, client: ClientInfo) -> tuple[Tensor, Tensor]:
        return drawn(client.index, SIZE * (1 + 2 * client.index))

    def test_data(self) -> tuple[Tensor, Tensor]:
        return drawn(99, 60)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def drawn(seed: int, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, 3, (count,), generator=generator)
    inputs = torch.randn(count, 6, generator=generator)
    inputs[torch.arange(count), targets] += 2.0
    return inputs, targets


@pytest.fixture(autouse=True)
def _uneven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "resolve_task", lambda *args: Uneven())


def order(number: int, index: int, count: int) -> list[np.ndarray]:
    """Return the batches of a client's two epochs in a round."""
    seed = int.from_bytes(derive_seed(0, "local training", number, index), "little")
    generator = numpy_generator(seed, "batch order")
    passes = [generator.permutation(count) if count > SIZE else np.arange(count) for _ in range(2)]
    return [one[start : start + SIZE] for one in passes for start in range(0, count, SIZE)]


@one_thread()
def by_hand(*, normalised: int | None = None) -> np.ndarray:
    """Train as torch's users do, with torch's optimizers and schedulers on both sides."""
    task = Uneven()
    with seeded(derive_seed(0, "model initialisation")):
        model = task.model()
    flat = nn.Parameter(nn.utils.parameters_to_vector(model.parameters()).detach())
    server = torch.optim.SGD([flat], lr=1.0, momentum=0.5)
    falling = lr_scheduler.LinearLR(server, 1.0, 0.25, ROUNDS)
    rates = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.05)
    warm = lr_scheduler.LinearLR(rates, 0.5, 1.0, 1)
    cosine = lr_scheduler.CosineAnnealingLR(rates, ROUNDS - 2)
    schedule = lr_scheduler.SequentialLR(rates, [warm, cosine], [2])
    for number in range(1, ROUNDS + 1):
        total = torch.zeros_like(flat)
        for index in range(CLIENTS):
            nn.utils.vector_to_parameters(flat.detach().clone(), model.parameters())
            inputs, targets = task.data(ClientInfo(index, CLIENTS))
            lr = float(rates.param_groups[0]["lr"])
            optimizer: torch.optim.Optimizer
            optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.8, 0.99))
            if normalised is not None:
                optimizer = torch.optim.SGD(model.parameters(), lr=lr)
            batches = order(number, index, len(targets))
            for rows in batches:
                optimizer.zero_grad()
                torch.autograd.backward(task.loss(model(inputs[rows]), targets[rows]).mean())
                optimizer.step()
            change = nn.utils.parameters_to_vector(model.parameters()).detach() - flat.detach()
            total += change * (1.0 if normalised is None else normalised / len(batches))
        flat.grad = -total / CLIENTS
        server.step()
        rates.step()
        falling.step()
        schedule.step()
    return flat.detach().numpy()


def vector(result: Any) -> np.ndarray:
    return np.concatenate([value.ravel() for value in result.model.values()])


@pytest.mark.slow
def test_a_run_is_torchs_optimizers_and_schedulers_by_hand(tmp_path):
    result = api.run(CONFIG, out=tmp_path / "run", report=False)
    np.testing.assert_allclose(vector(result), by_hand(), rtol=0, atol=2e-5)
    rates = [(one["lr"], one["server_lr"]) for one in result.rounds]
    assert rates[0] == (0.025, 1.0)
    assert rates[2][0] == 0.05
    assert rates[4] == pytest.approx((0.05 * 0.25, 1 - 0.75 * 0.8), rel=1e-12)
    assert result.summary["engine"]["optimizer"] == "Adam"
    assert result.summary["engine"]["trainer"] == "general"
    constant = ["training.schedule=constant", "server.schedule=constant", "server.final=0"]
    other = api.run(CONFIG, overrides=constant, out=tmp_path / "other", report=False)
    away = np.abs(vector(other) - by_hand()).max()
    assert away > 1e-3, "the control: without schedules"


@pytest.mark.slow
def test_updates_are_normalised_before_they_are_averaged(tmp_path):
    own = {k: v for k, v in CONFIG["training"].items() if k not in ("optimizer", "options")}
    steps = {"normalise": "steps", "reference_steps": 6}
    config = CONFIG | {"training": own | steps}
    result = api.run(config, out=tmp_path / "run", report=False)
    np.testing.assert_allclose(vector(result), by_hand(normalised=6), rtol=0, atol=2e-5)
    other = api.run(CONFIG | {"training": own}, out=tmp_path / "other", report=False)
    assert np.abs(vector(other) - vector(result)).max() > 1e-3, "the control: none"


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [[], ["training.optimizer=SGD", "training.options={}"]])
def test_an_interrupted_schedule_goes_on_to_the_same_bits(tmp_path, overrides):
    whole = api.run(CONFIG, overrides=overrides, out=tmp_path / "whole", report=False)

    def stop(record):
        if record.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        api.run(CONFIG, overrides=overrides, out=tmp_path / "cut", on_round=stop, report=False)
    resumed = api.resume(tmp_path / "cut", report=False)
    assert len(resumed.rounds) == ROUNDS
    assert (whole.folder / MODEL).read_bytes() == (resumed.folder / MODEL).read_bytes()
    assert [one["lr"] for one in whole.rounds] == [one["lr"] for one in resumed.rounds]
    assert '"server_lr":' in (resumed.folder / METRICS).read_text()


@pytest.mark.slow
def test_rounds_grow_where_no_rate_follows_them(tmp_path):
    api.run(CONFIG, out=tmp_path / "fixed", report=False)
    with pytest.raises(ConfigError, match=r'rates follow .* \(training.schedule = "cosine"\)'):
        api.resume(tmp_path / "fixed", overrides=["rounds=6"], report=False)
    free = ["training.schedule=step", "training.decay_rounds=[1, 4]", "server.schedule=constant"]
    free += ["server.final=0", "training.decay=0.5"]
    api.run(CONFIG, overrides=free, out=tmp_path / "free", report=False)
    grown = api.resume(tmp_path / "free", overrides=["rounds=7"], report=False)
    whole = api.run(CONFIG, overrides=[*free, "rounds=7"], out=tmp_path / "whole", report=False)
    assert (grown.folder / MODEL).read_bytes() == (whole.folder / MODEL).read_bytes()
    server = ["training.schedule=constant"]
    api.run(CONFIG, overrides=server, out=tmp_path / "server", report=False)
    with pytest.raises(ConfigError, match=r'rates follow .* \(server.schedule = "linear"\)'):
        api.resume(tmp_path / "server", overrides=["rounds=6"], report=False)


@pytest.mark.slow
def test_rounds_that_are_rewritten_in_a_scheduled_folder_are_noticed(tmp_path):
    folder = api.run(CONFIG, out=tmp_path / "run", report=False).folder
    config = folder / "config.toml"
    config.write_text(re.sub(r"(?m)^rounds = 5$", "rounds = 9", config.read_text()))
    with pytest.raises(ConfigError, match=r"the checkpoint is of another configuration"):
        api.resume(folder, report=False)


LINES = {
    "no such optimizer": (["training.optimizer=Adams"], "training.optimizer = 'Adams'"),
    "no such option": (["training.options={beta=1}"], r"training.options = \{'beta': 1\}, train"),
    "bits": (["training.precision=bf16"], r'bf16" is not for training.optimizer = "Adam"'),
    "examples": (
        ["privacy.unit=example", "privacy.examples=40", "privacy.lot=20", "privacy.model=local",
         "privacy.clip=1.0", "training.steps=2"],
        r'training.optimizer = "Adam" is for privacy.unit = "client"',
    ),
    "warm-up": (["rounds=2"], "training.warmup_rounds = 2 must be below rounds = 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_what_cannot_be_had_is_refused_before_anything_is_written(tmp_path, name):
    overrides, message = LINES[name]
    with pytest.raises((ConfigError, TaskError), match=message) as caught:
        api.run(CONFIG, overrides=overrides, out=tmp_path / "run", report=False)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_servers_own_update_has_the_rate_and_the_scale_of_the_clients():
    steps = {"normalise": "steps", "reference_steps": 6}
    own = {k: v for k, v in CONFIG["training"].items() if k not in ("optimizer", "options")}
    rule = {"rule": "fltrust", "rule_examples": 20}
    root = {"secagg": {"protocol": "none"}, "server": rule, "training": own | steps}
    experiment = parse_experiment(CONFIG | root)
    task, records = Uneven(), drawn(5, 20)
    averaging = Averaging(
        experiment, 4.0, LocalTrainer(task, experiment.training.at(1, 5)), records
    )
    start = LocalTrainer(task, TrainSpec()).initial_vector()
    for number in (1, 3, 5, 3):
        spec = TrainSpec(epochs=2, batch_size=SIZE, lr=experiment.training.lr_at(number, ROUNDS))
        seed = derive_seed(0, "server's own update", number)
        alone = LocalTrainer(task, spec).train(start, records, seed)
        found = averaging._own_update(start, number)
        np.testing.assert_allclose(found, alone * 6 / 8, rtol=1e-5, atol=1e-8)


def printed(table: Any) -> str:
    target = io.StringIO()
    Console(file=target, width=200).print(table)
    return target.getvalue()


@pytest.mark.slow
def test_plan_summary_and_report_say_how_clients_are_trained(tmp_path):
    experiment = parse_experiment(CONFIG)
    planned = outlook(
        prepare(experiment, population=CLIENTS, dimension=53), population=CLIENTS, dimension=53
    )
    text = printed(plan_table(planned))
    assert re.search(r"learning rate, clients +│? *0.05, cosine after 2 rounds of warm-up", text)
    assert re.search(r"learning rate, server +│? *1, linear", text)
    assert "learning rate" not in printed(plan_table(of_constant_rates()))
    result = api.run(CONFIG, out=tmp_path / "run", report=False)
    said = printed(summary_table(result.summary))
    assert re.search(r"the general trainer \(.*\), steps by Adam", said)
    page = render(read_run(RunFolder.open(result.folder)))
    for key, value, usual in (
        ("training.optimizer", "Adam", "SGD"),
        ("training.schedule", "cosine", "constant"),
        ("server.final", "0.25", "0.0"),
    ):
        cells = rf"{key}\b.{{0,60}}>{value}<.{{0,60}}>{usual}<"
        assert re.search(cells, page), key


def of_constant_rates() -> Outlook:
    constant: dict[str, Any] = {"training": {}, "server": {}}
    experiment = prepare(parse_experiment(CONFIG | constant), population=CLIENTS, dimension=53)
    return outlook(experiment, population=CLIENTS, dimension=53)
