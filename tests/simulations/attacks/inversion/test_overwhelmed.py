"""Overwhelming noise: no attacker of updates is worse than its blind baseline."""

from dataclasses import replace

import numpy as np
import pytest
from narrowed import present, values_of, view_of

from zerosum.simulations.attacks.harness.interface import Case
from zerosum.simulations.attacks.harness.play import Cell, play
from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.inversion import (
    differencing,
    first_layer,
    gradient_matching,
    imprint,
    likeliest_image,
    repetition,
)
from zerosum.simulations.attacks.inversion.gradient_cases import distributed, local
from zerosum.simulations.attacks.inversion.two_cohorts import TwoCohorts
from zerosum.simulations.attacks.settings.rounds import RoundsSetting

pytestmark = pytest.mark.usefixtures("one_thread")

SIGMA = 30.0

MARGINS = {
    "PSNR": 1.0,  # dB
    "images above 20 dB": 0.1,
    "pixels recovered": 0.05,
    "updates recovered": 0.0,
    "relative error": 0.1,
}
"""Largest deficit of an attacker: a scene has few images, so its metrics scatter."""

ONE = Case(RoundsSetting(clients=4), local(SIGMA))
PAIR = Case(RoundsSetting(clients=2), local(SIGMA))
SUM = Case(RoundsSetting(clients=4), distributed(SIGMA))
OF_EIGHT = Case(RoundsSetting(clients=4, records=8), distributed(SIGMA))
DIFFERENCE = Case(TwoCohorts(clients=3), distributed(SIGMA))
REPEATED = Case(repetition.repeated_question(3), repetition.local_noise(SIGMA))

MATCHING = [replace(attack, iterations=20, starts=1) for attack in gradient_matching.ATTACKS]
IMPRINTS = [attack for attack in imprint.ATTACKS if attack.name == "imprint"]

CELLS = [
    *(Cell(attack, case) for attack in MATCHING for case in (ONE, SUM)),
    *(Cell(attack, case) for attack in first_layer.ATTACKS for case in (ONE, SUM)),
    *(Cell(attack, PAIR) for attack in likeliest_image.ATTACKS),
    *(Cell(attack, OF_EIGHT) for attack in IMPRINTS),
    *(Cell(attack, REPEATED) for attack in repetition.ATTACKS),
    *(Cell(attack, DIFFERENCE) for attack in differencing.ATTACKS),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell", CELLS, ids=lambda cell: f"{cell.attack.adaptive}, {cell.case.setting.name}"
)
def test_overwhelmed_attacker_is_no_worse_than_blind(cell):
    outcome = play(0, cell, 0)
    assert outcome.status == "value"
    for row in rows_of([cell], [outcome]):
        higher = row.metric != "relative error"
        value, baseline = present(row.value), present(row.baseline)
        worse = baseline - value if higher else value - baseline
        assert worse <= MARGINS[row.metric], row.metric


@pytest.mark.slow
def test_an_attacker_that_ignores_noise_is_worse_than_blind():
    credulous = repetition.Repetition()
    scene = REPEATED.setting.play(credulous, REPEATED.protection, 0)
    view, rng = view_of(scene), np.random.default_rng(0)
    certain = replace(view, noise_std=view.noise_std / 100)
    attacked, blind = (
        values_of(credulous.score(guess(certain, rng), scene.truth), "PSNR").mean()
        for guess in (credulous.run, credulous.baseline)
    )
    assert attacked < blind - MARGINS["PSNR"]
