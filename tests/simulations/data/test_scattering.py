"""Scattering features against their definition, and what is projected on."""

import math

import numpy as np
import pytest
import torch

from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import ClientInfo, resolve_task
from zerosum.client.training.examples import as_examples
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.datasets import Collection, Records
from zerosum.simulations.data.scattering import (
    ANGLES,
    CHANNELS,
    FEATURES,
    _morlets,
    _scattered,
    scattering,
)
from zerosum.simulations.data.synthetic_strokes import strokes
from zerosum.simulations.data.transforms import transformed


def images(count: int = 3, side: int = 28) -> np.ndarray:
    return strokes(count, side, seed=5)


def direct(image: np.ndarray) -> np.ndarray:
    """Every modulus at full resolution, averages by explicit weights: slow, and the definition."""
    padded = np.pad(image, 2, mode="reflect")
    side = padded.shape[0]
    fine, coarse = (part.double().numpy() for part in _morlets(side, side))
    centres = np.arange(4, side, 4) - 0.5
    weights = np.exp(-((np.arange(side)[None] - centres[:, None]) ** 2) / (2 * 1.6**2))
    weights /= weights.sum(1, keepdims=True)

    def modulus(of: np.ndarray, wave: np.ndarray) -> np.ndarray:
        return np.abs(np.fft.ifft2(np.fft.fft2(of) * wave))

    first = [modulus(padded, wave) for wave in fine]
    maps = [padded, *first, *(modulus(padded, wave) for wave in coarse)]
    maps += [modulus(one, wave) for one in first for wave in coarse]
    return np.stack([weights @ one @ weights.T for one in maps])


@pytest.mark.slow
def test_features_are_averaged_moduli_of_two_orders() -> None:
    drawn = images(1)
    expected = direct(drawn[0, 0].astype(np.float64))
    found = _scattered(torch.from_numpy(drawn[:, 0]))[0].numpy()
    assert found.shape == (CHANNELS, 7, 7) == expected.shape
    # The coarser maps are kept at half the resolution, which folds what little lies beyond it.
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()
    assert np.allclose(found[: 1 + ANGLES], expected[: 1 + ANGLES], atol=1e-5)


def test_wavelets_have_no_mean_and_point_everywhere() -> None:
    for waves in _morlets(32, 32):
        assert waves.shape == (ANGLES, 32, 32)
        assert waves[:, 0, 0].abs().max() < 1e-5
        peaks = [np.unravel_index(int(wave.argmax()), (32, 32)) for wave in waves]
        signed = [tuple((p + 16) % 32 - 16 for p in peak) for peak in peaks]
        angles = [math.degrees(math.atan2(right, down)) for down, right in signed]
        expected = 180 * np.arange(ANGLES) / ANGLES
        assert np.abs((np.array(angles) - expected + 180) % 360 - 180).max() < 12


@pytest.mark.slow
def test_each_image_is_described_on_its_own() -> None:
    drawn = images()
    whole = scattering(drawn)
    assert whole.dtype == np.float16
    assert whole.shape == (3, FEATURES * 49)
    assert np.allclose(whole[1:2], scattering(drawn[1:2]), atol=2e-3)
    assert np.isfinite(scattering(np.zeros((1, 1, 28, 28), dtype=np.float32))).all()


@pytest.mark.slow
def test_turning_an_image_turns_its_channels_and_moving_it_changes_little() -> None:
    drawn = images(1)[:, 0]
    here = _scattered(torch.from_numpy(drawn))[0]
    turned = _scattered(torch.from_numpy(np.rot90(drawn, axes=(1, 2)).copy()))[0]
    assert torch.allclose(turned[1], torch.rot90(here[1 + ANGLES // 2]), atol=2e-2)
    moved = _scattered(torch.from_numpy(np.roll(drawn, 1, axis=2)))[0]
    other = _scattered(torch.from_numpy(images(2)[1:, 0]))[0]
    assert torch.dist(here, moved) < 0.7 * torch.dist(here, other)


def test_images_that_do_not_scatter_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(1, 4h, 4w\)"):
        scattering(np.zeros((2, 1, 27, 28), dtype=np.float32))
    records = Records(np.zeros((4, 6), dtype=np.float32), np.array([0, 1, 0, 1]))
    collection = Collection(records, records, 2)
    with pytest.raises(DataError, match=r"data\.transform"):
        transformed(collection, DataSpec(transform="scattering"))
    with pytest.raises(DataError, match=r"data\.directions"):
        transformed(collection, DataSpec(project=2, directions="strokes"))


@pytest.mark.slow
def test_strokes_are_centred_and_the_same_every_time() -> None:
    drawn = strokes(20, 28, seed=1)
    assert np.array_equal(drawn, strokes(20, 28, seed=1))
    assert not np.array_equal(drawn, strokes(20, 28, seed=2))
    assert 0 <= drawn.min() < 0.01 < 0.9 < drawn.max() <= 1
    places = np.arange(28) - 13.5
    mass = drawn[:, 0].sum((1, 2))
    off = (drawn[:, 0].sum(1) * places).sum(1) / mass
    assert np.abs(off).max() < 2


@pytest.mark.slow
def test_projections_have_norm_one_and_are_kept_on_disk(tmp_path) -> None:
    records = Records(images(6), np.arange(6) % 2)
    collection = Collection(records, records, 2)
    spec = DataSpec(transform="scattering", project=5, cache=str(tmp_path / "cache"))
    found = transformed(collection, spec).train.inputs
    assert found.shape == (6, 5)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    (kept,) = (tmp_path / "cache").iterdir()
    assert np.array_equal(np.load(kept), scattering(records.inputs))
    again = Records(records.inputs.copy(), records.targets)
    assert np.array_equal(transformed(Collection(again, again, 2), spec).train.inputs, found)
    kept.write_bytes(b"damaged")
    third = Records(records.inputs.copy(), records.targets)
    with pytest.raises(DataError, match="delete the file"):
        transformed(Collection(third, third, 2), spec)


@pytest.mark.slow
def test_features_are_gathered_as_they_are_taken() -> None:
    data = DataSpec(clients=50, limit=100, transform="scattering")
    task = resolve_task("mnist5k", data, ModelSpec(name="linear"), 0)
    dataset = task.data(ClientInfo(index=3, count=50))
    examples = as_examples(dataset, torch.float64, torch.device("cpu"))
    assert len(examples) == 2
    inputs, targets = examples.take(torch.tensor([1]))
    assert (inputs.dtype, inputs.shape) == (torch.float64, (1, FEATURES * 49))
    assert torch.equal(examples.all()[0][1:], inputs)
    assert torch.equal(examples.all()[1][1:], targets)
