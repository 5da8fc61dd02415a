"""State that could carry an example on to others is put back, and named."""

import random
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from zerosum.client.training.restored_state import Snapshot


class Held:
    """An object of the user's own, with a reference to itself."""

    shared: list[int] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.total, self.me = 0.0, self


class Holding(nn.Module):
    count: int = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("centre", torch.tensor([1.0, torch.nan]))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.plain, self.array = torch.ones(2), np.ones(2)
        self.queue: deque[torch.Tensor] = deque([torch.ones(2)])
        self.many = {place: torch.ones(1) for place in range(1001)}
        self.bits = bytearray(2)
        self.names, self.table = {"a", "b"}, {"deep": [1, {"x": torch.ones(1)}]}
        self.held, self.number, self.text = Held(), 1, "a"
        self.coins = torch.Generator().manual_seed(1)
        self.more_coins, self.old_coins = np.random.default_rng(1), random.Random(1)


MOVES: dict[str, Any] = {
    "parameter layer.weight": lambda m: m.layer.weight.data.add_(1),
    "parameter layer.bias": lambda m: setattr(m.layer, "bias", nn.Parameter(torch.ones(2))),
    "parameter frozen": lambda m: m.frozen.mul_(2),
    "buffer centre": lambda m: m.centre.add_(1),
    "buffer other": lambda m: m.register_buffer("other", torch.ones(1)),
    "attribute plain": lambda m: m.plain.numpy().fill(7),
    "attribute array": lambda m: m.array.fill(7),
    "attribute queue": lambda m: m.queue.append(torch.ones(2)),
    "attribute queue[0]": lambda m: m.queue[0].add_(1),
    "attribute many[1000]": lambda m: m.many[1000].add_(1),
    "attribute bits": lambda m: m.bits.append(1),
    "attribute names": lambda m: m.names.add("c"),
    "attribute table['deep'][1]['x']": lambda m: m.table["deep"][1]["x"].add_(1),
    "attribute table['deep']": lambda m: m.table["deep"].append(2),
    "attribute table['new']": lambda m: m.table.update(new=1),
    "attribute held.total": lambda m: setattr(m.held, "total", 1.0),
    "attribute Held.shared": lambda m: m.held.shared.append(1),
    "attribute Holding.count": lambda m: setattr(type(m), "count", 5),
    "attribute number": lambda m: setattr(m, "number", 2),
    "attribute text": lambda m: delattr(m, "text"),
    "attribute later": lambda m: setattr(m, "later", torch.ones(2)),
    "attribute layer.training": lambda m: m.layer.eval(),
    "attribute layer._forward_hooks": lambda m: m.layer.register_forward_hook(print),
}


def content(model: Any) -> Any:
    tensors = {name: value.clone() for name, value in model.state_dict().items()}
    return [
        tensors,
        [model.plain.clone(), model.array.copy(), *(item.clone() for item in model.queue)],
        [model.table["deep"][0], model.table["deep"][1]["x"].clone(), len(model.table["deep"])],
        [model.many[1000].clone(), bytes(model.bits)],
        [*sorted(model.names), *sorted(model.table), model.text, hasattr(model, "later")],
        [model.held.total, *Held.shared, Holding.count, model.number],
        [model.layer.training, len(model.layer._forward_hooks)],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVES)
def test_what_moved_is_put_back_and_named(name: str) -> None:
    model = Holding()
    before = content(model)
    state = Snapshot(model)
    with torch.no_grad():
        MOVES[name](model)
    assert [str(moved) for moved in state.put_back()] == [name]
    assert repr(content(model)) == repr(before)
    assert state.put_back() == []


def test_what_did_not_move_is_not_named() -> None:
    model = nn.Sequential(Holding().layer, nn.LSTM(2, 2), nn.MultiheadAttention(2, 1), nn.Dropout())
    state = Snapshot(model)
    model[1](model[0](torch.ones(3, 2)))
    assert state.put_back() == []


def test_a_tensor_of_another_size_is_put_back() -> None:
    model = Holding()
    state = Snapshot(model)
    model.plain.resize_(5).fill_(3.0)
    assert [str(moved) for moved in state.put_back()] == ["attribute plain"]
    assert torch.equal(model.plain, torch.ones(2))


def test_a_view_of_the_flat_weights_stays_one() -> None:
    model = Holding()
    flat = torch.zeros(4)
    model.layer.weight.data = flat.view(2, 2)
    state = Snapshot(model)
    model.layer.weight.data.add_(1)
    assert flat.any()
    state.put_back()
    assert not flat.any()


def test_generators_of_its_own_are_rewound() -> None:
    model = Holding()
    state = Snapshot(model)
    drawn = []
    for _ in range(2):
        drawn.append((
            torch.rand(1, generator=model.coins).item(), model.more_coins.random(),
            model.old_coins.random(),
        ))  # fmt: skip
        state.put_back()
    assert drawn[0] == drawn[1]


def test_of_a_task_large_arrays_are_left_alone() -> None:
    class Task:
        def __init__(self) -> None:
            self.records, self.centre = torch.zeros(100_000), torch.zeros(3)

    task = Task()
    state = Snapshot(None, task)
    task.records += 1
    task.centre += 1
    assert [str(moved) for moved in state.put_back()] == ["attribute Task.centre"]
    assert task.records.all()
    assert not task.centre.any()
