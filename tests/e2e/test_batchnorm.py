"""Batch normalisation without privacy: federated averaging of whole state dicts, by torch alone."""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from narrowed import present
from safetensors.torch import load_file
from torch import Tensor, nn

from zerosum.client.task import ClientInfo, TaskError
from zerosum.client.training.threads import one_thread
from zerosum.client.training.torch_seed import seeded
from zerosum.secagg.randomness import derive_seed, numpy_generator
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import MODEL
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations import api
from zerosum.simulations.report.record import SIGHT

CLIENTS, SIZE = 5, 8

CONFIG = {
    "task": "normalised",
    "rounds": 3,
    "engine": "serial",
    "data": {"clients": CLIENTS},
    "training": {"epochs": 2, "batch_size": SIZE, "lr": 0.2, "batchnorm": "average"},
    "privacy": {"model": "none", "clip": "none"},
    "encoding": {"range": 16.0, "bits": 32},
    "sampling": {"kind": "everyone"},
}


class NormalisedTask:
    """Images of two classes, brighter at each client than at the one before."""

    def __init__(
        self, unequal: bool = False, norm: Callable[[int], nn.Module] = nn.BatchNorm2d
    ) -> None:
        self.unequal, self.norm = unequal, norm

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), self.norm(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Linear(16, 6), nn.BatchNorm1d(6), nn.Linear(6, 2),
        )  # fmt: skip

    def data(self, client: ClientInfo) -> tuple[Tensor, Tensor]:
        count = SIZE * (1 + client.index) if self.unequal else 3 * SIZE
        return self._drawn(count, client.index, 0.5 * client.index)

    def test_data(self) -> tuple[Tensor, Tensor]:
        return self._drawn(64, 99, 1.0)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    def _drawn(self, count: int, seed: int, brightness: float) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        targets = torch.randint(0, 2, (count,), generator=generator)
        images = torch.randn(count, 1, 6, 6, generator=generator) + brightness
        images[:, :, :3] += 1.5 * targets.view(-1, 1, 1, 1)
        return images, targets


@one_thread()
def by_hand(
    task: NormalisedTask,
    rounds: int,
    weighted: bool = False,
    clients: Iterable[int] = range(CLIENTS),
) -> dict[str, Tensor]:
    """FedAvg over state dicts: torch.optim.SGD, and the mean of every floating-point entry."""
    with seeded(derive_seed(0, "model initialisation")):
        model = task.model()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for number in range(1, rounds + 1):
        total: dict[str, Tensor] = OrderedDict()
        weights = 0.0
        for index in clients:
            images, targets = task.data(ClientInfo(index, CLIENTS))
            model.load_state_dict(state)
            model.train()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
            seed = int.from_bytes(derive_seed(0, "local training", number, index), "little")
            order = numpy_generator(seed, "batch order")
            several = len(targets) > SIZE
            for _ in range(2):
                turns = order.permutation(len(targets)) if several else np.arange(len(targets))
                for rows in np.split(turns, len(turns) // SIZE):
                    optimizer.zero_grad()
                    task.loss(model(images[rows]), targets[rows]).mean().backward()
                    optimizer.step()
            weight = len(targets) if weighted else 1.0
            weights += weight
            for name, value in model.state_dict().items():
                part = weight * value.double()
                total[name] = total[name] + part if name in total else part
        state = {n: (v / weights).to(state[n].dtype) for n, v in total.items()}
    return state


@pytest.fixture(scope="module")
def reference() -> dict[str, Tensor]:
    return by_hand(NormalisedTask(), 3)


def run(tmp_path, monkeypatch, *overrides, task=None, name="run", **options):
    monkeypatch.setattr(api, "resolve_task", lambda *specs: task or NormalisedTask())
    given = {"overrides": overrides, "out": tmp_path / name, "report": False} | options
    return api.run(CONFIG, **given)


def check(result, wanted: dict[str, Tensor], tolerance: float = 1e-6) -> nn.Module:
    """Compare weights and statistics, and load the file strictly into a model of its own."""
    state = load_file(result.folder / MODEL)
    assert state.keys() == result.model.keys() == wanted.keys()
    for name, value in wanted.items():
        if name.endswith("num_batches_tracked"):
            assert int(state[name]) == 0
            continue
        np.testing.assert_allclose(result.model[name], value, rtol=0, atol=tolerance, err_msg=name)
        assert np.array_equal(result.model[name], state[name].numpy())
    model = NormalisedTask().model()
    model.load_state_dict(state, strict=True)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["pairwise", "ideal", "none"])
def test_a_run_equals_averaging_state_dicts_by_hand(tmp_path, monkeypatch, reference, protocol):
    result = run(tmp_path, monkeypatch, f"secagg.protocol={protocol}")
    assert result.summary["dimension"] == sum(
        value.numel() for name, value in reference.items() if "tracked" not in name
    )
    model = check(result, reference)
    moved = np.abs(result.model["1.running_mean"]).max()
    assert moved > 0.1, "the control: statistics that stay at zero would be another model"
    images, targets = NormalisedTask().test_data()
    with torch.no_grad():
        right = (model(images).argmax(1) == targets).double().mean().item()
    assert result.metrics["test_accuracy"] == pytest.approx(right, abs=1e-9)
    assert right > 0.8
    model.load_state_dict(
        {n: v for n, v in model.state_dict().items() if "running" not in n}, strict=False
    )
    layers: Any = model
    for layer in (layers[1], layers[6]):
        layer.reset_running_stats()
    with torch.no_grad():
        fresh = (model(images).argmax(1) == targets).double().mean().item()
    assert fresh < right, "the control: without the averaged statistics it is a worse model"


@pytest.mark.slow
def test_clients_weigh_by_their_examples_in_statistics_too(tmp_path, monkeypatch):
    task = NormalisedTask(unequal=True)
    weighted = ["training.weighting=examples", "training.max_examples=40"]
    result = run(tmp_path, monkeypatch, *weighted, task=task)
    check(result, by_hand(task, 3, weighted=True))
    uniform = run(tmp_path, monkeypatch, task=task, name="uniform").model
    assert np.abs(result.model["1.running_mean"] - uniform["1.running_mean"]).max() > 0.01


class FarTask(NormalisedTask):
    """Images whose brightness is far from the mean of zero that layers start from."""

    def _drawn(self, count: int, seed: int, brightness: float) -> tuple[Tensor, Tensor]:
        images, targets = super()._drawn(count, seed, brightness)
        return 10 * images + 120, targets


@pytest.mark.slow
def test_statistics_beyond_the_range_end_the_round_and_the_range_named_holds_them(
    tmp_path, monkeypatch
):
    """Cut to the range they would be averaged like any others: a model that nobody has."""
    with pytest.raises(NothingLearntError) as ended:
        run(tmp_path, monkeypatch, "encoding.range=8.0", "rounds=1", task=FarTask())
    (record,) = ended.value.result.rounds
    assert record["status"] == "abandoned"
    assert not ended.value.result.model["1.running_mean"].any()
    named = present(re.search(r"^set (encoding\.range = \S+): ", record["reason"]))
    result = run(tmp_path, monkeypatch, named[1], "rounds=3", task=FarTask(), name="held")
    assert all("cut" not in r for r in result.rounds)
    # A step of that range, scaled up by deviations of 10, over three rounds.
    check(result, by_hand(FarTask(), 3), tolerance=1e-4)
    assert np.abs(result.model["1.running_mean"]).max() > 50


class HalfThere(NormalisedTask):
    """Client 4 fails in training and in evaluation, client 0 has no records."""

    def data(self, client: ClientInfo) -> tuple[Tensor, Tensor]:
        if client.index == 4:
            raise OSError("gone")
        images, targets = super().data(client)
        return (images[:0], targets[:0]) if client.index == 0 else (images, targets)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_failed_and_idle_clients_weigh_nothing_by_examples(tmp_path, monkeypatch, workers):
    settings = ["training.weighting=examples", "training.max_examples=40", f"workers={workers}"]
    settings += [f"engine={'serial' if workers == 1 else 'processes'}"]
    settings += ["evaluation.federated_every=3"]
    result = run(tmp_path, monkeypatch, *settings, task=HalfThere(unequal=True))
    there = (1, 2, 3)
    model = check(result, by_hand(NormalisedTask(unequal=True), 3, weighted=True, clients=there))
    for record in result.rounds:
        counts = [record[f"clients_{name}"] for name in ("trained", "failed", "idle")]
        assert counts == [3, 1, 1]
    assert result.rounds[-1]["evaluations_failed"] == 1
    pairs = [NormalisedTask(unequal=True).data(ClientInfo(i, CLIENTS)) for i in there]
    with torch.no_grad():
        right = torch.cat([model(images).argmax(1) == targets for images, targets in pairs])
    share = right.double().mean().item()
    assert result.metrics["federated_accuracy"] == pytest.approx(share, abs=1e-4)


@pytest.mark.slow
def test_instance_normalisation_that_tracks_is_averaged_as_well(tmp_path, monkeypatch):
    task = NormalisedTask(norm=lambda width: nn.InstanceNorm2d(width, track_running_stats=True))
    result = run(tmp_path, monkeypatch, "rounds=1", task=task)
    wanted = by_hand(task, 1)
    assert result.model.keys() == wanted.keys()
    assert result.model["1.running_mean"].any()
    for name in ("0.weight", "1.running_mean", "1.running_var", "6.running_var"):
        np.testing.assert_allclose(result.model[name], wanted[name], rtol=0, atol=1e-6)


@pytest.mark.slow
def test_processes_masks_and_a_resume_change_no_bit(tmp_path, monkeypatch):
    whole = run(tmp_path, monkeypatch, name="whole")
    spread = run(tmp_path, monkeypatch, "engine=processes", "workers=2", name="spread")
    half = run(tmp_path, monkeypatch, "rounds=1", name="half")
    resumed = api.resume(half.folder, overrides=["rounds=3"], report=False)
    files = {(each.folder / MODEL).read_bytes() for each in (whole, spread, resumed)}
    assert len(files) == 1


@pytest.mark.slow
def test_a_client_whose_statistics_are_no_numbers_is_not_in_the_average(tmp_path, monkeypatch):
    class Broken(NormalisedTask):
        def data(self, client: ClientInfo) -> tuple[Tensor, Tensor]:
            images, targets = super().data(client)
            return images / 0 if client.index == 3 else images, targets

    result = run(tmp_path, monkeypatch, "rounds=1", task=Broken(), name="broken")
    assert result.rounds[0]["survivors"] == CLIENTS - 1
    assert all(np.isfinite(value).all() for value in result.model.values())
    assert (result.model["1.running_var"] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "server",
    [
        pytest.param(["server.lr=3.0"], marks=pytest.mark.slow),
        pytest.param(["server.options={momentum=0.9}"], marks=pytest.mark.slow),
        ["server.optimizer=Adam"],
    ],
    ids=["lr", "momentum", "Adam"],
)
def test_a_server_optimizer_leaves_statistics_to_the_average(tmp_path, monkeypatch, server):
    """After one round the statistics are those of plain averaging, bit for bit."""
    plain = run(tmp_path, monkeypatch, "rounds=1", name="plain")
    moved = run(tmp_path, monkeypatch, "rounds=1", *server, name="moved")
    same = {n for n in plain.model if np.array_equal(plain.model[n], moved.model[n])}
    statistics = {n for n in plain.model if "running_" in n or "tracked" in n}
    assert statistics <= same
    if server != ["server.options={momentum=0.9}"]:  # whose first step is plain
        assert "0.weight" not in same


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("rule", [["median"], ["trimmed-mean", "server.rule_malicious=1"]])
def test_rules_of_single_coordinates_average_statistics_too(tmp_path, monkeypatch, rule):
    settings = [f"server.rule={rule[0]}", *rule[1:], "secagg.protocol=none", "rounds=2"]
    result = run(tmp_path, monkeypatch, *settings)
    assert (result.model["1.running_var"] > 0).all()
    assert np.abs(result.model["1.running_mean"]).max() > 0.1


@pytest.mark.slow
def test_federated_evaluation_and_the_report_use_the_averaged_statistics(
    tmp_path, monkeypatch, reference
):
    result = run(tmp_path, monkeypatch, "evaluation.federated_every=3", report=True)
    model = check(result, reference)
    pairs = [NormalisedTask().data(ClientInfo(i, CLIENTS)) for i in range(CLIENTS)]
    with torch.no_grad():
        right = torch.cat([model(images).argmax(1) == targets for images, targets in pairs])
    share = right.double().mean().item()
    assert result.metrics["federated_accuracy"] == pytest.approx(share, abs=1e-4)
    seen = np.load(result.folder / SIGHT)
    images, _ = NormalisedTask().test_data()
    chosen = torch.linspace(0, 63, 24).long()
    with torch.no_grad():
        assert np.array_equal(seen["predictions"], model(images[chosen]).argmax(1).numpy())


class Frozen(nn.Sequential):
    """A model that keeps its normalisation in evaluation mode."""

    def train(self, mode: bool = True) -> "Frozen":
        super().train(mode)
        self[1].eval()
        return self


class FrozenTask(NormalisedTask):
    def model(self) -> nn.Module:
        norm = nn.BatchNorm2d(4)
        torch.nn.init.constant_(present(norm.running_mean), 0.3)
        return Frozen(
            nn.Conv2d(1, 4, 3), norm, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2)
        )


@pytest.mark.parametrize(
    "privacy",
    [["privacy.model=distributed"], ["privacy.model=none", "privacy.unit=example"]],
    ids=["distributed", "examples"],
)
def test_frozen_layers_are_trained_under_any_privacy(tmp_path, monkeypatch, privacy):
    settings = ["training.batchnorm=refuse", "privacy.clip=1.0", "privacy.allow_large_delta=true"]
    if "privacy.unit=example" in privacy:
        settings += ["privacy.examples=120", "privacy.lot=60"]
    result = run(tmp_path, monkeypatch, *settings, *privacy, "rounds=1", task=FrozenTask())
    assert result.rounds[0]["survivors"] == CLIENTS
    model: Any = FrozenTask().model()
    before = model[1].weight.detach().numpy().copy()
    model.load_state_dict(load_file(result.folder / MODEL), strict=True)
    assert (model[1].running_mean == 0.3).all()
    assert (model[1].weight.detach().numpy() != before).all(), "scale and shift are trained"


REFUSED = {
    "the default": (["training.batchnorm=refuse"], r'batchnorm = "average"'),
    "privacy": (["privacy.model=distributed", "privacy.clip=1.0"], r'privacy\.model = "none"'),
    "local privacy": (["privacy.model=local", "privacy.clip=1.0"], r'privacy\.model = "none"'),
    "examples": (
        ["privacy.unit=example", "privacy.examples=120", "privacy.lot=60"],
        r'privacy\.unit = "client"',
    ),
    "a clip": (["privacy.clip=0.5"], r'privacy\.clip = "none"'),
    "a rule of distances": (
        ["server.rule=krum", "server.rule_malicious=1", "secagg.protocol=none"],
        r'server\.rule = "mean"',
    ),
    "a value of another design": (["training.batchnorm=local"], r"training\.batchnorm"),
}


@pytest.mark.parametrize(("settings", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_averaged_is_refused_in_one_line(tmp_path, monkeypatch, settings, said):
    with pytest.raises((ConfigError, TaskError), match=said) as caught:
        run(tmp_path, monkeypatch, *settings)
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "run").exists()
    assert re.search(r"training\.batchnorm|batchnorm", str(caught.value))
