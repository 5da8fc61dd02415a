"""Plays split by speaker: sequences, models of text, and the shipped experiment."""

from pathlib import Path

import numpy as np
import pytest
import torch

from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import ClientInfo, TaskError
from zerosum.client.training.flat_parameters import Layout
from zerosum.simulations import api
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.models import make_model
from zerosum.simulations.data.shakespeare import ALPHABET, LENGTH, SYMBOLS, encoded, plays, speeches
from zerosum.simulations.data.tasks import ShakespeareTask

TEXT = Path(__file__).parents[4] / "shared" / "data" / "tinyshakespeare.txt"
MODELS = ["lstm", "transformer"]
VERSE = "To be, or not to be, that is the question, and so on to the end.\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Ten speakers of 20 lines each, in turns, and one who says too little."""
    speech = "\n\n".join(f"SPEAKER {n}:\n{VERSE * 2}" for n in range(10))
    path = tmp_path / "plays.txt"
    path.write_text("\n".join([speech] * 10) + "\nA MOUSE:\nI squeak.\n")
    return path


def small(path: Path, model: str) -> list[str]:
    return [
        f"data.path={path}",
        f"model.name={model}",
        "model.hidden=[16]",
        "sampling.kind=everyone",
        "rounds=2",
        "engine=serial",
    ]


def test_every_character_of_a_speaker_is_in_one_sequence_at_most(text: Path) -> None:
    found = plays(DataSpec(path=str(text)))
    said = speeches(text.read_text())["SPEAKER 3"]
    count = len(said) // (LENGTH + 1)
    assert count > 2
    own = [part.inputs[part.owners == 3] for part in (found.train, found.test)]
    last = [part.targets[part.owners == 3][:, -1:] for part in (found.train, found.test)]
    rows = np.concatenate([np.concatenate(own), np.concatenate(last)], axis=1)
    assert len(own[1]) == round(0.2 * count)
    assert np.array_equal(rows.ravel(), encoded(said)[: count * (LENGTH + 1)])
    assert np.array_equal(found.train.inputs[:, 1:], found.train.targets[:, :-1])
    assert found.classes == SYMBOLS


def test_a_speaker_of_too_little_is_no_client(text: Path) -> None:
    assert "A MOUSE" in speeches(text.read_text())
    task = ShakespeareTask.from_specs(
        DataSpec(path=str(text), partition="natural"), ModelSpec(name="lstm", hidden=[4]), 0
    )
    assert task.num_clients() == 10
    sizes = [len(task.data(ClientInfo(index=i, count=10))[1]) for i in range(10)]
    assert min(sizes) > 0


def test_symbols_are_those_written_down_and_one_for_all_others() -> None:
    assert encoded(ALPHABET).tolist() == list(range(len(ALPHABET)))
    assert encoded("7é$\U0001f600").tolist() == [SYMBOLS - 1] * 4


def test_text_that_is_none_of_plays_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    for content, words in (
        (b"No speaker here.\n", "begins with no speaker"),
        (b"A:\n\xff\xfe", "cannot be read"),
        (b"A:\nToo short.\n", r"0 in all, leaves no training"),
        (f"A:\n{VERSE * 2}".encode(), r"2 in all, leaves no test"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=words):
            plays(DataSpec(path=str(path)))
        plays.__globals__["_sequences"].cache_clear()
    with pytest.raises(DataError, match=r'data\.path = ".*gone": no such file'):
        plays(DataSpec(path=str(tmp_path / "gone")))


@pytest.mark.parametrize("partition", ["dirichlet", "shards"])
def test_partitions_by_label_are_refused(text: Path, partition: str) -> None:
    data = DataSpec.model_validate({"path": str(text), "partition": partition, "clients": 5})
    with pytest.raises(DataError, match=r'allowed: "natural", "iid"'):
        ShakespeareTask.from_specs(data, ModelSpec(name="lstm"), 0)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_text_looks_at_nothing_that_comes_later(name: str) -> None:
    spec = ModelSpec.model_validate({"name": name, "hidden": [16, 16]})
    model = make_model(spec, (LENGTH,), SYMBOLS, 0, text=True)
    symbols = torch.arange(2 * 9).view(2, 9)
    other = symbols.clone()
    other[:, 5:] += 20
    before, after = model(symbols), model(other)
    assert before.shape == (2, 9, SYMBOLS)
    assert torch.allclose(before[:, :5], after[:, :5], atol=1e-6)
    assert not torch.allclose(before[:, 5:], after[:, 5:], atol=1e-2)


def test_a_transformer_knows_where_a_symbol_stands() -> None:
    model = make_model(ModelSpec(name="transformer"), (LENGTH,), SYMBOLS, 0, text=True)
    scores = model(torch.zeros(1, 6, dtype=torch.int64))
    assert not torch.allclose(scores[0, 1], scores[0, 5], atol=1e-3)


def test_models_and_inputs_that_do_not_fit_are_named() -> None:
    with pytest.raises(TaskError, match=r'inputs are text; allowed here: "lstm", "transformer"'):
        make_model(ModelSpec(name="mlp"), (LENGTH,), SYMBOLS, 0, text=True)
    with pytest.raises(TaskError, match=r'inputs are numbers; allowed here: "linear", "mlp"'):
        make_model(ModelSpec(name="lstm"), (1, 8, 8), 10, 0)
    spec = ModelSpec(name="transformer", hidden=[16, 32])
    with pytest.raises(TaskError, match="all as wide"):
        make_model(spec, (LENGTH,), SYMBOLS, 0, text=True)
    for name in MODELS:
        spec = ModelSpec.model_validate({"name": name, "hidden": [100_000]})
        with pytest.raises(TaskError, match="allowed: 268435456"):
            make_model(spec, (LENGTH,), SYMBOLS, 0, text=True)
        with pytest.raises(ValueError, match="without a layer: write a width or more"):
            ModelSpec.model_validate({"name": name, "hidden": []})


@pytest.mark.parametrize("name", MODELS)
def test_what_is_counted_before_a_model_is_made_is_what_it_has_at_least(name: str) -> None:
    from zerosum.simulations.data.models import _text_size

    spec = ModelSpec.model_validate({"name": name, "hidden": [32, 32]})
    length = Layout.of(make_model(spec, (LENGTH,), SYMBOLS, 0, text=True)).length
    assert length <= _text_size(spec, SYMBOLS) <= 1.2 * length


def test_an_example_has_the_mean_of_its_characters(text: Path) -> None:
    data = DataSpec(path=str(text), partition="natural")
    task = ShakespeareTask.from_specs(data, ModelSpec(name="lstm", hidden=[4]), 0)
    targets = torch.tensor([[0, 1], [2, 2]])
    outputs = torch.zeros(2, 2, 3)
    outputs[0, 0, 0] = 50.0
    losses = task.loss(outputs, targets)
    assert losses.tolist() == pytest.approx([np.log(3) / 2, np.log(3)], rel=1e-6)
    assert task.metrics(outputs, targets)["accuracy"].tolist() == [0.5, 0.0]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("model", MODELS)
def test_speakers_learn_together_without_noise(text: Path, tmp_path: Path, model: str) -> None:
    lr = 2.0 if model == "lstm" else 0.5  # a transformer diverges where an LSTM learns
    settings = [*small(text, model), "training.epochs=4", f"training.lr={lr}"]
    result = api.run("shakespeare", overrides=settings, out=tmp_path / "run")
    assert result.summary["population"] == 10
    losses = [record["test_loss"] for record in result.rounds if "test_loss" in record]
    assert losses[-1] < np.log(SYMBOLS) - 0.5


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("unit", ["client", "example"])
def test_speakers_and_sequences_can_be_protected(
    text: Path, tmp_path: Path, model: str, unit: str
) -> None:
    settings = ["training.weighting=uniform", "privacy.model=distributed", "privacy.clip=1.0"]
    settings += ["privacy.noise_multiplier=1.0", "encoding.bits=16", f"privacy.unit={unit}"]
    settings += ["privacy.delta=1e-3", "encoding.range=50", "secagg.protocol=ideal"]
    if unit == "example":
        settings += ["privacy.examples=300", "privacy.lot=20"]
    else:
        settings += ["privacy.honest_fraction=0.6"]
    result = api.run(
        "shakespeare", overrides=[*small(text, model), *settings], out=tmp_path / "run"
    )
    assert result.summary["rounds_abandoned"] == 0
    assert result.summary["epsilon"]["sum"]["value"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("model", MODELS)
def test_the_shipped_experiment_learns_to_write(tmp_path: Path, model: str) -> None:
    if not TEXT.exists():
        pytest.skip("needs ../shared/data/tinyshakespeare.txt")
    settings = [f"data.path={TEXT}", f"model.name={model}", "engine=serial", "rounds=10"]
    settings += ["training.lr=0.5"] if model == "transformer" else []
    result = api.run("shakespeare", overrides=settings, out=tmp_path / "run", report=False)
    found = plays(DataSpec(path=str(TEXT)))
    frequent = np.bincount(found.test.targets.ravel()).max() / found.test.targets.size
    assert frequent == pytest.approx(0.163, abs=1e-3)
    assert result.metrics["test_accuracy"] > frequent + 0.09
