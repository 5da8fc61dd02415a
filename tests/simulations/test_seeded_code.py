"""Code of the user's own that draws from global generators: the same bits, wherever it runs."""

import multiprocessing
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zerosum.client.training.torch_seed import many_seeded, seeded, seeded_anew
from zerosum.server.config import ConfigError
from zerosum.server.runs.results import Result
from zerosum.server.runs.run_folder import MODEL
from zerosum.simulations import api
from zerosum.simulations.attacks.harness.play_all import play_all
from zerosum.simulations.engine.one_at_a_time import BusyError, alone

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ["rounds=2", "data.clients=6", "sampling.kind=everyone", "training.epochs=2"]
PLAIN = ["privacy.model=none", "secagg.protocol=ideal"]


def drawn() -> float:
    """Draw from every global generator there is."""
    return float(random.random() + np.random.randn() + torch.randn(()).item())  # noqa: NPY002


class Augmented(torch.utils.data.Dataset[Any]):
    """Draws as records are loaded, and again as each is read."""

    def __init__(self) -> None:
        self.inputs = torch.tensor([[drawn() for _ in range(4)] for _ in range(5)])

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Any:
        return self.inputs[index] + drawn(), index % 2


class Noisy(nn.Module):
    """Draws in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.linear(inputs) + 0.1 * drawn()
        return outputs


class Drawing:
    """Draws wherever a task can."""

    def __init__(self) -> None:
        self.offset = drawn()
        self.kept: dict[int, Augmented] = {}

    def model(self) -> nn.Module:
        drawn()
        return Noisy()

    def data(self, client: Any) -> Any:
        if client.index % 2:
            return Augmented()
        if client.index not in self.kept:  # in whichever process asks first
            self.kept[client.index] = Augmented()
        return self.kept[client.index]

    def test_data(self) -> Any:
        return Augmented()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
        return losses * (1.5 + 0.1 * drawn()) + 0.01 * self.offset * outputs.sum(1)


def run(out: Path, *settings: str, **more: Any) -> Result:
    overrides = [f"task={__name__}:Drawing", *SMALL, *settings]
    return api.run("cross-device", overrides=overrides, out=out, report=False, **more)


def bits(result: Result) -> Any:
    return (result.folder / MODEL).read_bytes(), result.metrics


EXAMPLES = [
    "privacy.model=distributed", "privacy.unit=example", "privacy.sampling=examples",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["engine=processes", "trainer=batched"])
def test_drawing_tasks_give_the_same_bits_whatever_was_drawn_before(
    tmp_path: Path, engine: str
) -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    alike = ["engine=serial"] if engine == "engine=processes" else [engine]
    first = bits(run(tmp_path / "a", *PLAIN, *alike))
    drawn()
    workers = ["workers=2"] if engine == "engine=processes" else []
    assert bits(run(tmp_path / "b", *PLAIN, engine, *workers)) == first
    assert bits(run(tmp_path / "c", *PLAIN, *alike, "seed=1")) != first


@pytest.mark.slow
def test_masked_sums_are_of_the_same_bits(tmp_path: Path) -> None:
    found = [
        bits(run(tmp_path / name, "privacy.model=none", f"secagg.protocol={name}"))
        for name in ("ideal", "pairwise")
    ]
    assert found[0] == found[1]


def test_generators_are_left_as_they_were(tmp_path: Path) -> None:
    np.random.seed(5)  # noqa: NPY002
    np.random.randn()  # noqa: NPY002  # of a pair, the other is in hand
    random.seed(5)
    torch_state = torch.get_rng_state()
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    run(tmp_path / "run", *PLAIN, "engine=serial", "rounds=1")
    api.plan(api.load_experiment("cross-device", [f"task={__name__}:Drawing", *SMALL, *PLAIN]))
    after: Any = np.random.get_state()  # noqa: NPY002
    assert random.getstate() == python
    assert all(np.array_equal(a, b) for a, b in zip(numpy, after, strict=True))
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_clients_draw_other_coins_in_every_round_and_worker() -> None:
    found = set()
    for seed in range(50):
        with seeded(seed):
            found.add(drawn())
    assert len(found) == 50


def test_a_block_inside_another_gives_what_it_gives_alone() -> None:
    with seeded(3):
        alone_ = [drawn() for _ in range(3)]
    for around in (partial(seeded, 9), many_seeded):
        for block in (seeded, seeded_anew):
            with around():
                drawn()
                with block(3):
                    assert [drawn() for _ in range(3)] == alone_


def test_numpys_generator_of_another_kind_is_put_back() -> None:
    legacy: Any = np.random  # two functions of it have no types
    before = legacy.get_bit_generator()
    theirs = np.random.PCG64(1)
    legacy.set_bit_generator(theirs)
    try:
        with seeded(3):
            drawn()
        assert legacy.get_bit_generator() is theirs
    finally:
        legacy.set_bit_generator(before)


@pytest.mark.slow
def test_a_second_run_in_another_thread_is_refused_and_the_first_keeps_its_bits(
    tmp_path: Path,
) -> None:
    wanted = bits(run(tmp_path / "a", *PLAIN, "engine=serial"))
    refused: list[BaseException] = []

    def second() -> None:
        for call in (
            lambda: run(tmp_path / "never"),
            lambda: api.resume(tmp_path / "a", overrides=["rounds=3"]),
            lambda: api.plan(api.load_experiment("digits")),
            lambda: play_all([], [0], 1),
        ):
            with pytest.raises(BusyError) as caught:
                call()
            refused.append(caught.value)

    def on_round(record: Any) -> None:
        if record["round"] == 1:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()

    assert bits(run(tmp_path / "b", *PLAIN, "engine=serial", on_round=on_round)) == wanted
    assert len(refused) == 4
    assert not (tmp_path / "never").exists()
    assert "\n" not in str(refused[0])
    assert "in another thread of this process" in str(refused[0])


@pytest.mark.slow
def test_a_run_in_the_callback_of_a_run_is_refused_and_both_ends_let_go(tmp_path: Path) -> None:
    def on_round(record: Any) -> None:
        run(tmp_path / "inner")

    with pytest.raises(BusyError, match=r"run: run goes on around this call of this process"):
        run(tmp_path / "outer", *PLAIN, on_round=on_round)
    with pytest.raises(ConfigError):
        run(tmp_path / "wrong", "rounds=0")
    run(tmp_path / "after", *PLAIN, "rounds=1")


def test_attacks_may_run_simulations_and_nothing_runs_beside_them() -> None:
    with alone("attack", nests=True):
        with alone("run"):
            pass
        with alone("attack", nests=True), alone("run"), pytest.raises(BusyError), alone("run"):
            pass


@pytest.mark.parametrize("around", ["run", "attack"])
def test_what_goes_on_is_called_as_its_user_called_it(around) -> None:
    def second() -> str:
        with pytest.raises(BusyError) as refused, alone("run"):
            pass
        return str(refused.value)

    with alone(around, nests=True), alone("plan"), ThreadPoolExecutor(1) as other:
        assert other.submit(second).result().startswith(f"run: {around} goes on in another thread")
        assert second().startswith(f"run: {around} goes on around this call")


def _in_a_child(out: str, answers: Any, *settings: str) -> None:
    try:
        result = run(Path(out), *PLAIN, *settings)
        answers.put((result.summary["engine"], bits(result)))
    except ConfigError as error:
        answers.put(str(error))


def in_a_daemon(out: Path, *settings: str) -> Any:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_a_child, args=(str(out), answers, *settings), daemon=True)
    child.start()
    found = answers.get()
    child.join()
    return found


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerosum.simulations.engine.choice.cores", lambda: 2)


@pytest.mark.slow
@pytest.mark.usefixtures("two_cores")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_daemonic_worker_runs_serially_and_says_so(tmp_path: Path) -> None:
    engine, found = in_a_daemon(tmp_path / "run", "rounds=1")
    assert engine["name"] == "serial"
    result = run(tmp_path / "here", *PLAIN, "rounds=1")
    assert (result.summary["engine"]["name"], bits(result)) == ("processes", found)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("setting", ["engine=processes", "workers=2"])
def test_workers_asked_for_in_a_daemonic_worker_are_refused(tmp_path: Path, setting: str) -> None:
    said = in_a_daemon(tmp_path / "run", setting)
    assert "daemonic worker" in said
    assert 'or "auto"' in said


@pytest.mark.slow
def test_a_child_forked_in_the_midst_of_a_run_may_run(tmp_path: Path) -> None:
    found: list[Any] = []

    def on_round(record: Any) -> None:
        found.append(in_a_daemon(tmp_path / f"child{record['round']}", "rounds=1"))

    run(tmp_path / "run", *PLAIN, "rounds=1", "engine=serial", on_round=on_round)
    assert found[0][0]["name"] == "serial"
