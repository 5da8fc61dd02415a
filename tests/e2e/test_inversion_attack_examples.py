"""The examples of attacks on updates run as they are, and print what they are there to show."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def said(capsys):
    def run(name):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.slow
def test_masks_alone_do_not_hide_ten_images(said):
    masked, noised = (line for line in said("attack_inversion.py").splitlines() if "PSNR" in line)
    assert float(masked.split("PSNR: ")[1].split()[0]) > 40
    assert masked.split()[0] == "masked"
    assert noised.startswith("masked + noise")
    assert float(noised.split("(")[-1].split("PSNR: ")[-1].split()[0]) < 20


@pytest.mark.slow
def test_an_imprint_reads_a_sum_and_is_refused_for_one_client(said):
    lines = [line for line in said("attack_imprint.py").splitlines() if "above 20 dB" in line]
    masked, noised, expected, unbound, bound = lines
    assert float(masked.split(": ")[1].split()[0]) > 0.8
    assert "at baseline" in noised
    assert float(expected.split(": ")[1].split()[0]) > 0.8
    assert float(unbound.split(": ")[1].split()[0]) > 0.8
    assert "after confirm, 1 clients are left" in bound


@pytest.mark.slow
def test_a_budget_ends_exactness_and_noise_ends_recognition(said):
    lines = said("attack_repetition.py").splitlines()
    exact = [line.split("recovered ")[1] for line in lines if "pixels recovered" in line]
    near = [line.split("PSNR ")[1] for line in lines if "PSNR" in line]
    assert ["0.9" in text.split(" [")[0] for text in exact] == [False, True, False, False]
    assert float(near[2].split()[0]) > 18
    assert "at baseline" in exact[3]
    assert "at baseline" in near[3]


@pytest.mark.slow
def test_a_difference_of_sums_is_an_update(said):
    lines = [line for line in said("attack_differencing.py").splitlines() if "updates" in line]
    assert ["updates recovered: 1 " in line for line in lines] == [True] * 2 + [False] * 3
