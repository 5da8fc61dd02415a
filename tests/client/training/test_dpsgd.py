"""DP-SGD at one client: samples, sums, noise, and failures that do not show."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from random_models import MovesBuffer, MovesFrozenParameter, MovesWeights, Queue
from torch import Tensor, nn
from torch.utils.data import Dataset
from without_data import WithoutData, loader_of

from zerosum.client.privacy.binned_gaussian import BinnedGaussian
from zerosum.client.privacy.local_dp_noise import noise_inside, train_on_noise
from zerosum.client.spec import PrivacySpec, TrainSpec
from zerosum.client.task import TaskError
from zerosum.client.training.dpsgd import ExampleTrainer
from zerosum.client.training.examples import draw
from zerosum.client.training.initial_model import initial_vector
from zerosum.secagg.randomness import Keystream, insecure_keystream

pytestmark = pytest.mark.usefixtures("one_thread")

EVERY = PrivacySpec(unit="example", examples=40, lot=40, clip=0.3, noise_multiplier=1.0)
HALF = EVERY.model_copy(update={"lot": 20})
LOCAL = PrivacySpec(
    unit="example", model="local", examples=40, lot=20, clip=0.3, noise_multiplier=1.0
)


class Toy(WithoutData):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def records(count: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(count, 6, generator=generator)
    return inputs, torch.randint(0, 3, (count,), generator=generator)


def coins(*indices: int) -> Keystream:
    return insecure_keystream(5, "examples", *indices)


def trainer(privacy: PrivacySpec = EVERY, spec: TrainSpec | None = None) -> ExampleTrainer:
    return ExampleTrainer(Toy(), spec or TrainSpec(steps=3), privacy)


def descent(privacy: PrivacySpec, data: tuple[Tensor, Tensor], *indices: int) -> np.ndarray:
    start = initial_vector(Toy(), 0)
    return trainer(privacy).descent(start, lambda: data, coins(*indices))


def test_an_answer_is_the_negated_sum_of_clipped_gradients() -> None:
    inputs, targets = records()
    found = descent(EVERY, (inputs, targets))
    whole = sum(descent(EVERY, (inputs[i : i + 1], targets[i : i + 1])) for i in range(40))
    assert np.allclose(found, whole, rtol=0, atol=1e-12)
    alone = descent(EVERY, (inputs[:1], targets[:1]))
    assert 0.29 < np.linalg.norm(alone) <= 0.3


def test_each_example_is_drawn_by_its_own_coin() -> None:
    sizes = [len(draw(1000, 0.3, coins(i))) for i in range(200)]
    assert np.mean(sizes) == pytest.approx(300, abs=6)
    assert np.var(sizes) == pytest.approx(210, rel=0.5)
    assert len(draw(1000, 1.0, coins())) == 1000
    assert len(draw(0, 0.3, coins())) == 0


def test_a_client_answers_from_its_own_sample_only() -> None:
    inputs, targets = records()
    drawn = draw(40, 0.5, coins(7))
    assert 0 < len(drawn) < 40
    expected = descent(EVERY, (inputs[drawn], targets[drawn]))
    assert np.allclose(descent(HALF, (inputs, targets), 7), expected, rtol=0, atol=1e-12)
    assert not np.allclose(descent(HALF, (inputs, targets), 8), expected)


def test_adding_an_example_moves_an_answer_by_at_most_the_clip() -> None:
    inputs, targets = records()
    with_it, without = descent(EVERY, (inputs, targets)), descent(EVERY, (inputs[1:], targets[1:]))
    assert np.linalg.norm(with_it - without) <= 0.3


@pytest.mark.parametrize("privacy", [EVERY, LOCAL])
def test_data_that_cannot_be_had_is_an_empty_sample(
    privacy: PrivacySpec, caplog: pytest.LogCaptureFixture
) -> None:
    def missing() -> tuple[Tensor, Tensor]:
        raise OSError("disk")

    nothing = records(0)
    start = initial_vector(Toy(), 0)
    made = trainer(privacy)
    if privacy is EVERY:
        assert not made.descent(start, missing, coins()).any()
    else:
        found, empty = (
            made.train_privately(start, load, coins(), 4) for load in (missing, lambda: nothing)
        )
        assert found.std() > 0
        # The same law; the coins are spent in the same order, for no example is drawn.
        assert np.array_equal(found, empty)
    assert "cannot be had" in caplog.text


def test_labels_that_all_break_the_loss_are_a_sum_of_zero() -> None:
    inputs, targets = records()
    assert not descent(EVERY, (inputs, targets + 5)).any()


class Damaged(Dataset[tuple[Any, Any]]):
    """The records, one of which is another, or raises."""

    def __init__(self, where: int, instead: Callable[[Tensor, Tensor], Any]) -> None:
        self.inputs, self.targets = records()
        self.where, self.instead = where, instead

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> Any:
        item = self.inputs[index], self.targets[index]
        return self.instead(*item) if index == self.where else item


def unreadable(x: Tensor, y: Tensor) -> Any:
    raise OSError("a bad sector")


def ending(x: Tensor, y: Tensor) -> Any:
    raise SystemExit("a bad sector")


DAMAGES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a target out of range": lambda x, y: (x, y + 5),
    "a record of another shape": lambda x, y: (x[:4], y),
    "a record that cannot be read": unreadable,
    "a record that ends the process": ending,
    "a record without a target": lambda x, y: (x,),
    "a record that is not finite": lambda x, y: (x * math.nan, y),
    "a target of another type": lambda x, y: (x, "seven"),
}


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("where", [0, 1, 17, 39])
@pytest.mark.parametrize("privacy", [EVERY, LOCAL])
def test_an_example_that_fails_contributes_nothing_and_leaves_the_others(
    name: str, where: int, privacy: PrivacySpec, caplog: pytest.LogCaptureFixture
) -> None:
    inputs, targets = records()
    rest = [i for i in range(40) if i != where]
    made, data = trainer(privacy), Damaged(where, DAMAGES[name])
    start = initial_vector(Toy(), 0)
    if privacy is EVERY:
        found = made.descent(start, lambda: data, coins())
        assert np.allclose(found, descent(EVERY, (inputs[rest], targets[rest])), atol=1e-12)
        assert np.linalg.norm(found) > 1
    else:
        # The same coins: the damaged record is drawn, or not, like the whole one.
        healthy = Damaged(where, lambda x, y: (x, y))
        found = made.train_privately(start, lambda: data, coins(), 1)
        whole = trainer(privacy).train_privately(start, lambda: healthy, coins(), 1)
        # Rounding of integers apart, three steps of 0.1, over a lot of 20, of one clip each.
        assert 0 < np.linalg.norm(found - whole) < 3 * 0.1 * 0.3 / 20 * 1.1
    assert caplog.text.count(f"example {where} has no gradient") == ("finite" not in name)


def test_one_target_out_of_range_in_a_tensor_is_the_only_one_left_out() -> None:
    inputs, targets = records()
    whole = descent(EVERY, (inputs, targets))
    targets[3] = 7
    assert 0 < np.linalg.norm(descent(EVERY, (inputs, targets)) - whole) <= 0.3


def test_an_item_with_fewer_keys_does_not_take_them_from_the_others() -> None:
    class Masked(Toy):
        def model(self) -> nn.Module:
            return TwoInputs()

    class TwoInputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, given: dict[str, Tensor]) -> Tensor:
            outputs: Tensor = self.layer(given["x"])
            return outputs * given["scale"] if "scale" in given else outputs

    items: Any = [
        ({"x": x, "scale": torch.full((3,), 3.0)}, y) for x, y in zip(*records(), strict=True)
    ]
    del items[0][0]["scale"]
    made, start = ExampleTrainer(Masked(), TrainSpec(), EVERY), initial_vector(Masked(), 0)
    all_of_them, first, rest = (
        made.descent(start, loader_of(items[part]), coins())
        for part in (slice(None), slice(1), slice(1, None))
    )
    assert np.allclose(all_of_them, first + rest, rtol=0, atol=1e-12)


class Centred(nn.Module):
    """Mixes the examples of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layer(x - x.mean(0))
        return outputs


@pytest.mark.quick_one_in(2)
@pytest.mark.parametrize("damage", [5, 0])
def test_a_first_example_that_fails_does_not_hide_that_a_model_mixes(damage: int) -> None:
    class Mixing(Toy):
        def model(self) -> nn.Module:
            return Centred()

    made = ExampleTrainer(Mixing(), TrainSpec(), EVERY)
    start = initial_vector(Mixing(), 0)
    inputs, targets = records()
    targets[0] += damage
    made.descent(start, lambda: (inputs[:1], targets[:1]), coins())
    whole = made.descent(start, lambda: (inputs[1:], targets[1:]), coins())
    alone = sum(
        made.descent(start, loader_of((inputs[i : i + 1], targets[i : i + 1])), coins())
        for i in range(1, 40)
    )
    assert np.allclose(whole, alone, rtol=0, atol=1e-12)


def test_dropout_is_drawn_from_the_secret_coins_alone() -> None:
    class Dropping(Toy):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3))

    start = initial_vector(Dropping(), 0)
    first, again, other = (
        ExampleTrainer(Dropping(), TrainSpec(), EVERY).descent(start, records, coins(i))
        for i in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_local_steps_carry_the_noise_that_is_claimed() -> None:
    start = initial_vector(Toy(), 0)
    spec = TrainSpec(steps=1, lr=1.0)
    local = trainer(LOCAL, spec)
    nothing = records(0)
    moves = [local.train_privately(start, lambda: nothing, coins(i), 4) for i in range(400)]
    code, mechanism = noise_inside(LOCAL, len(start))
    claimed = mechanism.std(1) * code.step / (20 / 4)
    assert claimed == pytest.approx(0.3 / 5, rel=0.011)
    assert np.std(moves) == pytest.approx(claimed, rel=0.03)


def test_local_steps_are_sgd_where_noise_is_negligible() -> None:
    quiet = LOCAL.model_copy(update={"noise_multiplier": 1e-3, "lot": 40, "clip": 5.0})
    spec = TrainSpec(steps=3, lr=0.5, momentum=0.9)
    start = initial_vector(Toy(), 0)
    found = trainer(quiet, spec).train_privately(start, records, coins(), 1)
    model = Toy().model().double()
    nn.utils.vector_to_parameters(torch.from_numpy(start).double(), model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    inputs, targets = records()
    for _ in range(3):
        optimizer.zero_grad()
        torch.autograd.backward(Toy().loss(model(inputs.double()), targets).mean())
        optimizer.step()
    expected = nn.utils.parameters_to_vector(model.parameters()).detach().numpy() - start
    assert np.allclose(found, expected, rtol=0, atol=5e-3)


class Always(Toy):
    """A model of whose examples none has a gradient, or that moves something of its own."""

    def __init__(self, piece: Callable[[], nn.Module]) -> None:
        self.piece = piece

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 4), self.piece(), nn.Linear(4, 3))


class Raising(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise RuntimeError("needs two records")
        return x


class ByItsDeviation(nn.Module):
    """Of one record the deviation is NaN."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.std(0) if self.training else x


@pytest.mark.filterwarnings("ignore:std.*degrees of freedom:UserWarning")
@pytest.mark.parametrize(
    ("piece", "said"),
    [
        (Raising, r"no example has a gradient .*: RuntimeError: needs two records; correct"),
        (ByItsDeviation, r"no example has a gradient .*: ValueError: it is NaN or infinite;"),
        (lambda: MovesBuffer(0), r"model: buffer 1\.centre is moved while it computes"),
        (lambda: MovesFrozenParameter(0), r"model: parameter 1\.prototype is moved while"),
        (lambda: MovesWeights(0), r"model: parameter 1\.layer\.bias is moved while"),
    ],
)
def test_a_model_that_cannot_be_trained_example_by_example_is_named_before_it_is(
    piece: Callable[[], nn.Module], said: str
) -> None:
    made = ExampleTrainer(Always(piece), TrainSpec(steps=1), EVERY)
    start = initial_vector(Always(piece), 0)
    with pytest.raises(TaskError, match=said):
        made.trial_step(start, records())


@pytest.mark.parametrize("broken", [0, 1])
def test_one_record_without_a_gradient_is_no_fault_of_the_model(broken: int) -> None:
    inputs, targets = records()
    targets[broken] = 7
    trainer().trial_step(initial_vector(Toy(), 0), (inputs, targets))
    trainer().trial_step(initial_vector(Toy(), 0), records(0))


def test_attributes_that_move_are_put_back_and_named_once(caplog) -> None:
    task = Always(lambda: Queue(0))
    made, start = ExampleTrainer(task, TrainSpec(steps=1), EVERY), initial_vector(task, 0)
    made.trial_step(start, records())
    made.descent(start, records, coins())
    assert caplog.text.count("attribute 1.queue is moved by a pass") == 1
    (queue,) = [part for part in made.model.modules() if isinstance(part, Queue)]
    assert queue.queue == []


@pytest.mark.parametrize("privacy", [EVERY, LOCAL])
def test_a_client_of_whose_examples_none_has_a_gradient_logs_it_at_home(caplog, privacy) -> None:
    inputs, targets = records()
    made, start = trainer(privacy), initial_vector(Toy(), 0)
    if privacy is EVERY:
        made.descent(start, lambda: (inputs, targets + 5), coins())
        assert "none of the 40 examples drawn has a gradient" in caplog.text
    else:
        made.train_privately(start, lambda: (inputs, targets + 5), coins(), 1)
        assert "this client sends noise alone" in caplog.text


@pytest.mark.parametrize(("count", "said"), [(40, False), (41, True)])
def test_a_client_with_more_examples_than_all_should_have_logs_it_at_home(caplog, count, said):
    descent(EVERY, records(count))
    assert ("privacy.examples = 40 says how many all" in caplog.text) is said
    assert ("(hold-out=true in the node config)" in caplog.text) is said


def test_noise_alone_takes_the_steps_of_a_client_without_examples(monkeypatch) -> None:
    """Same arithmetic, coordinate by coordinate, where both are given the same noise."""
    start = initial_vector(Toy(), 0)

    def fixed(self, vector, rng):
        return vector + np.rint(self.sigma * np.cos(np.arange(vector.size))).astype(np.int64)

    monkeypatch.setattr(BinnedGaussian, "apply", fixed)
    spec = TrainSpec(steps=4, lr=0.3, momentum=0.8, weight_decay=0.2, proximal=0.4)
    trained = trainer(LOCAL, spec).train_privately(start, lambda: records(0), coins(), 4)
    alone = train_on_noise(start, spec, LOCAL, coins(), 4)
    assert np.allclose(alone, trained, rtol=1e-12, atol=1e-12)
    other = train_on_noise(start, spec.model_copy(update={"momentum": 0.7}), LOCAL, coins(), 4)
    assert not np.allclose(other, trained)


def test_noise_alone_has_the_spread_that_is_claimed() -> None:
    start, spec = initial_vector(Toy(), 0), TrainSpec(steps=1, lr=1.0)
    moves = [train_on_noise(start, spec, LOCAL, coins(i), 4) for i in range(400)]
    assert np.std(moves) == pytest.approx(0.3 / 5, rel=0.03)


def test_noise_alone_may_diverge_without_a_word() -> None:
    start = initial_vector(Toy(), 0)
    spec = TrainSpec(steps=60, lr=1e6, weight_decay=1e6)
    assert not np.isfinite(train_on_noise(start, spec, LOCAL, coins(), 4)).all()


@pytest.mark.slow
def test_steps_whose_sums_are_cut_are_a_few_lines_of_the_clients_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("zerosum.client.privacy.local_dp_noise.LARGEST_SUM", 0.01)
    spec = TrainSpec(steps=30, lr=1e-6)
    made = trainer(LOCAL, spec)
    made.train_privately(initial_vector(Toy(), 0), records, coins(), 1)
    said = [line for line in caplog.messages if "a step's sum of gradients" in line]
    assert 2 <= len(said) < 15
    assert "coordinates were cut to" in said[0]
