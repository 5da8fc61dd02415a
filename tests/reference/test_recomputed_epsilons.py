"""Every shipped experiment's printed epsilons against a recomputation that knows no code of ours.

``zerosum`` is imported here to run, plan and resolve experiments, and for nothing else; the modules
beside this file do not import it at all.
"""

import ast
import csv
import itertools
import json
import math
import shutil
from functools import lru_cache
from pathlib import Path

import coupling
import losses
import numpy as np
import openings
import pytest
import recompute_epsilons
import tomli_w
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from openings import Opening
from recompute_epsilons import Noised, Row, Rules, Step
from scipy.stats import binomtest, skellam
from settings import read

from zerosum.simulations import api
from zerosum.simulations.commands.plan import plan
from zerosum.simulations.config import experiment_names, load_experiment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DATA = ROOT.parent / "shared" / "data"
CASES = {
    row["id"]: row
    for row in csv.DictReader((HERE.parent / "vectors" / "epsilons.csv").read_text().splitlines())
}

SHIPPED = {
    "cross-device": (400, 50_890),
    "cross-silo": (10, 50_890),
    "digits": (100, 650),
    "fedavg": (100, 50_890),
    "heart": (4, 60),
    "mnist-abadi": (100, 71_010),
    "mnist-distributed": (6000, 2000),
    "mnist-dpsgd": (100, 44_600),
    "mnist-local": (6000, 600),
    "mnist5k": (400, 1970),
    "shakespeare": (262, 41_923),
    "examples/flower-digits/experiment.toml": (100, 4810),
}
"""Population and trainable parameters of each: with these a plan reads no data."""

NEED_DATA = {name for name in SHIPPED if name.startswith("mnist-")} | {"heart", "shakespeare"}

PRESET_Z = 1.28 / math.sqrt(0.8)
"""Noise over clip of the shipped cross-device settings' released sums."""


def gaussians(rate: float, z: float, count: int, told: float = 0.0) -> tuple[Step, ...]:
    return (Step(count, gaussian=z, rate=rate, told=told),)


def exact(steps: tuple[Step, ...], delta: float) -> float:
    curves = recompute_epsilons.curves(steps)
    return max(losses.least_epsilon(curve, delta) for curve in curves)


# The recomputation itself.


def test_nothing_beside_this_file_imports_the_project() -> None:
    for path in HERE.glob("*.py"):
        if path.name.startswith("test_"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] in ("zerosum", "dp_accounting") for name in names)


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    ("mu", "share"),
    [(1, 0.796), (4, 0.862), (25, 0.965), (100, 0.990), (1e3, 0.9990), (1e4, 0.9999), (1e10, 1.0)],
)
def test_skellam_is_as_near_a_rounded_gaussian_as_is_claimed(mu: float, share: float) -> None:
    assert 48 * mu**2 * coupling.divergence(mu) == pytest.approx(share, abs=6e-4)


@pytest.mark.slow
def test_coarse_sums_of_the_divergence_are_those_over_all_integers() -> None:
    mu = 400.0
    points = list(range(200))
    with coupling.mpmath.workdps(40):
        pairs = zip(
            coupling.skellam_mass(mu, points),
            coupling.binned_mass(coupling.mpf(mu) - coupling.mpf(1) / 12, points),
            strict=True,
        )
        whole = [p * coupling.mp.log(p / b) - p + b for p, b in pairs]
        assert coupling.divergence(mu) == pytest.approx(float(2 * sum(whole) - whole[0]), rel=1e-9)
        law = [float(p) for p in coupling.skellam_mass(mu, [0, 20, 60])]
    assert law == pytest.approx(skellam.pmf([0, 20, 60], mu / 2, mu / 2), rel=1e-9)


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize("count", [1, 6, 13])
@pytest.mark.parametrize("present_first", [True, False])
def test_composed_losses_of_gaussians_are_the_closed_form(count: int, present_first: bool) -> None:
    one = losses.sampled_gaussian(1.0, 1.28, 2e-4, present_first)
    total = losses.composed([(one, count)], 2e-4)
    for epsilon in (0.1, 2.0, 9.0):
        closed = losses.analytic_delta(epsilon, count / 1.28**2)
        assert closed <= losses.delta_curve(total, 2e-4)(epsilon) < closed * (1 + 1e-4) + 1e-12


@pytest.mark.parametrize(
    ("case", "rate", "z", "count"),
    [
        ("dpsgd_abadi_E100", 0.01, 4.0, 10_000),
        ("dpsgd_small", 0.05, 1.0, 200),
        ("fedavg_emnist_n100", 100 / 3400, 0.8, 1500),
        ("gauss_full_T100", 1.0, 10.0, 100),
    ],
)
def test_both_routes_meet_the_published_vectors(case, rate, z, count) -> None:
    steps, row = gaussians(rate, z, count), CASES[case]
    assert exact(steps, float(row["delta"])) == pytest.approx(float(row["eps_primary"]), rel=0.01)
    # The vectors have fractional orders as well, which a noise of integers has not.
    bound = float(CASES[case + "_rdp"]["eps_primary"])
    found = recompute_epsilons.by_renyi(steps, float(row["delta"]))
    assert bound * (1 - 1e-4) <= found <= 1.06 * bound


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "z", "count"), [(0.15, PRESET_Z, 40), (0.01, 1.048, 1000)])
def test_a_third_voice_agrees(rate: float, z: float, count: int) -> None:
    third = PLDAccountant().compose(PoissonSampledDpEvent(rate, GaussianDpEvent(z)), count)
    assert exact(gaussians(rate, z, count), 1e-5) == pytest.approx(
        third.get_epsilon(1e-5), rel=1e-4
    )


@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_every_route_lies_above_the_exact_distribution_of_one_coordinate(delta: float) -> None:
    mu, shift, count, grid = 1e6, 500, 4, 1e-4
    support = np.arange(-8000, 8001)
    law = _skellam_by_recurrence(mu, 9000)
    moved = law[support - shift + 9000]
    loss = np.round(np.log(moved / law[support + 9000]) / grid).astype(int)
    mass = np.bincount(loss - loss.min(), moved)
    size = losses.next_fast_len(count * len(mass), True)
    total = np.fft.irfft(np.fft.rfft(mass, size) ** count, size)
    values = (count * loss.min() + np.arange(size)) * grid

    def delta_at(epsilon: float) -> float:
        above = values > epsilon
        return float(-np.sum(total[above] * np.expm1(epsilon - values[above])))

    truth = losses.least_epsilon(delta_at, delta)
    steps = (Step(count, (Noised(shift, shift, mu, 1),)),)
    found = recompute_epsilons.by_coupling(steps, delta)
    assert truth * (1 - 1e-5) < min(found)
    assert max(found) < 1.02 * truth < recompute_epsilons.by_renyi(steps, delta)
    # At three quarters of the shift every route claims too little.
    weaker = (Step(count, (Noised(0.75 * shift, shift, mu, 1),)),)
    assert max(recompute_epsilons.by_coupling(weaker, delta)) < truth


@pytest.mark.slow
@pytest.mark.parametrize("skellam_drawn", [True, False])
def test_coarse_moments_of_the_ratio_are_hardly_above_those_of_all_integers(skellam_drawn) -> None:
    mu = 400.0
    coarse, whole = coupling.ratio(mu), coupling.ratio(mu, fineness=10**6)
    assert (coarse.stride, whole.stride) == (5, 1)
    power = mu * np.geomspace(1e-3, 0.05, 9)
    for cut in coupling.CUTS[2:]:
        found = coarse.log_moment(power, cut, skellam_drawn)
        true = whole.log_moment(power, cut, skellam_drawn)
        assert np.all(found > true * (1 - 1e-12))
        assert np.all(found < true * (1 + 1e-4))
        # KL from above, and what is left out is no less than what is there.
        assert found[0] > power[0] * coupling.divergence(mu) * (0.999 if skellam_drawn else 0.99)
        beyond = np.arange(coarse.last(cut) * coarse.stride + 1, 600)
        left = skellam.pmf(beyond, mu / 2, mu / 2).sum() if skellam_drawn else 0.0
        assert math.exp(coarse.log_tail(cut, skellam_drawn)) > 2 * left


@pytest.mark.slow
@pytest.mark.parametrize("skellam_drawn", [True, False])
def test_what_the_ratio_misses_is_above_the_truth_and_never_far(skellam_drawn: bool) -> None:
    """4,096 coordinates: the ratio's own law, rounded down, composed and compared."""
    mu, count, grid = 100.0, 4096, 2e-5
    one = coupling.ratio(mu, fineness=10**6)
    drawn, log = (one.p, one.log) if skellam_drawn else (one.b, -one.log)
    kept = np.abs(log) < 1.0
    mass = np.concatenate([drawn[kept], drawn[kept][1:]])
    cell = np.floor(np.concatenate([log[kept], log[kept][1:]]) / grid).astype(int)
    law = np.bincount(cell - cell.min(), mass)
    size = losses.next_fast_len(2**19, True)
    composed = np.fft.irfft(np.fft.rfft(law, size) ** count, size)
    offset = count * cell.min()
    middle = round(count * float(np.sum(mass * cell)))
    at = middle + np.arange(-size // 2, size // 2)
    values, composed = at * grid, composed[(at - offset) % size]
    missed = coupling.ratio_missed([(1024, mu, 4)], skellam_drawn)
    forgotten = coupling.ratio_missed([(1024, mu, 1)], skellam_drawn)
    for r in (0.2, 0.3, 0.4):
        above = values > r
        truth = float(-np.sum(composed[above] * np.expm1(r - values[above])))
        assert truth < missed(r) < 30 * truth
        assert forgotten(r) < truth


@pytest.mark.slow
def test_two_adaptive_rounds_of_hidden_presence_stay_within_what_is_chained() -> None:
    """The whole transcript of two rounds of one coordinate, enumerated, in both worlds.

    The client is in a round by a coin, and sometimes the round's opening tells; its second answer
    hangs on the first sum, and so does what the others add.
    """
    mu, reach, rate, told = 25.0, 60, 0.4, 0.1
    points = np.arange(-reach, reach + 1)
    with coupling.mpmath.workdps(40):
        laws = [
            np.array(law, dtype=float)
            for law in (
                coupling.skellam_mass(mu, [*range(100)]),
                coupling.binned_mass(coupling.mpf(mu) - coupling.mpf(1) / 12, [*range(100)]),
            )
        ]

    def transcript(law: np.ndarray, present: bool) -> np.ndarray:
        def outcomes(others: np.ndarray, own: np.ndarray) -> np.ndarray:
            """By (told or not, what came before, sum)."""
            hidden, plain = (
                law[np.minimum(np.abs(points - at[:, None]), 99)]
                for at in (others, others + own * present)
            )
            return np.stack([(1 - told) * ((1 - rate) * hidden + rate * plain), told * plain])

        first = outcomes(np.zeros(1, dtype=int), np.array([5]))[:, 0, :]
        second = outcomes(points // 3, np.where(points > 0, -5, 4))
        return first[:, None, :, None] * second[None, :, :, :]

    def excess(a: np.ndarray, b: np.ndarray, epsilon: float) -> float:
        return float(np.sum(np.maximum(a - math.exp(epsilon) * b, 0.0)))

    def ratio_missed(skellam_drawn: bool, r: float) -> float:
        """Of two draws of noise that are seen as they are, exactly."""
        drawn, other = (law[np.abs(points)] for law in (laws if skellam_drawn else laws[::-1]))
        found = excess(np.outer(drawn, drawn), np.outer(other, other), r)
        assert found < coupling.ratio_missed([(1, mu, 2)], skellam_drawn)(r)
        return found

    worlds = [[transcript(law, present) for law in laws] for present in (True, False)]
    for (noised, rounded), (noised_too, rounded_too) in (worlds, worlds[::-1]):
        assert excess(noised, rounded, 0.0) < coupling.total_variation([(1, mu, 2)])
        # The Gaussian's figure alone is not the run's.
        assert excess(noised, noised_too, 0.3) > excess(rounded, rounded_too, 0.3)
        for r in (0.005, 0.02, 0.05):
            there, back = ratio_missed(True, r), ratio_missed(False, r)
            assert excess(noised, rounded, r) <= there
            assert excess(rounded_too, noised_too, r) <= back + 1e-40
            for epsilon in (0.3, 1.0, 2.0):
                chained = math.exp(r) * excess(rounded, rounded_too, epsilon)
                chained += there + math.exp(epsilon + r) * back
                assert excess(noised, noised_too, epsilon + 2 * r) < chained


def _skellam_by_recurrence(mu: float, reach: int) -> np.ndarray:
    """I_(k-1) - I_(k+1) = (2 k / mu) I_k, run downwards (Miller), then normalised."""
    mass = np.zeros(2 * reach + 1)
    upper, here = 0.0, 1e-300
    for k in range(2 * reach, 0, -1):
        upper, here = here, upper + 2 * k / mu * here
        if here > 1e200:
            mass, upper, here = mass * 1e-250, upper * 1e-250, here * 1e-250
        if k - 1 <= reach:
            mass[reach + k - 1] = mass[reach - k + 1] = here
    return mass / mass.sum()


def test_openings_are_those_of_every_fate_of_every_other_client() -> None:
    opening = Opening(population=7, rate=0.4, fraction=0.8, assumed=0.2)
    for dropout in (0.0, 0.2):
        fates = {(0, 0): 0.6, (1, 0): 0.4 * dropout, (1, 1): 0.4 * (1 - dropout)}
        only = opened = 0.0
        for others in itertools.product(fates, repeat=6):
            weight = math.prod(fates[fate] for fate in others)
            cohort, survivors = (sum(column) for column in zip(*others, strict=True))
            alone = survivors >= opening.needed(cohort)
            joined = survivors + 1 >= opening.needed(cohort + 1)
            opened += weight * (0.6 * alone + 0.4 * joined)
            only += weight * 0.4 * (joined and not alone)
        assert openings.told_at(opening, dropout) == pytest.approx(only / opened, rel=1e-9)


@pytest.mark.parametrize(("dropped", "seen"), [(0, 100), (10, 120), (192, 2400), (7, 7)])
def test_the_dropout_bound_is_clopper_and_pearson_s(dropped: int, seen: int) -> None:
    one_sided = binomtest(dropped, seen, alternative="less").proportion_ci(1 - 1e-6)
    assert openings.upper_bound(dropped, seen) == pytest.approx(one_sided.high, rel=1e-6)


def test_an_assumed_rate_stands_until_it_is_refuted_and_what_is_charged_never_falls() -> None:
    assert openings.rate_charged(0.1, [(60, 99)]) == 0.1
    # 18 of 100 have probability 0.010 at a tenth, 22 of 100 have 2.5e-4.
    assert openings.rate_charged(0.1, [(18, 100), (0, 100)]) == 0.1
    refuted = openings.upper_bound(22, 100, 1e-6 / 2)
    assert openings.rate_charged(0.1, [(22, 100)]) == pytest.approx(refuted)
    assert openings.rate_charged(0.1, [(22, 100), (0, 300)]) == pytest.approx(refuted)
    # The second look misses with a third of that; and sees a higher rate.
    later = openings.rate_charged(0.1, [(22, 100), (60, 100)])
    assert later == pytest.approx(openings.upper_bound(82, 200, 1e-6 / 6))
    assert later > refuted


# Numbers that the design pages state.


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize(
    ("rate", "z", "count", "told", "delta", "by_renyi", "by_losses"),
    [
        (0.15, PRESET_Z, 42, 0.0, 1e-3, 2.995, 2.528),
        (0.15, PRESET_Z, 40, 0.0, 1e-3, None, 2.462),
        (0.15, PRESET_Z, 42, 2.466e-4, 1e-3, None, 2.553),
        (0.15, PRESET_Z, 40, 2.466e-4, 1e-3, 2.979, None),
        (1 / 7, PRESET_Z, 42, 0.0, 1e-3, 2.852, 2.391),
        (0.25, PRESET_Z, 15, 0.0, 1e-3, None, 2.578),
        (0.25, PRESET_Z, 15, 3.026e-3, 1e-3, 3.273, 2.670),
        (1.0, 1.28, 13, 0.0, 1e-3, 13.46, 12.00),
        (1.0, 1.28, 6, 0.0, 1e-3, 7.99, 7.15),
        (0.25, 2.8046875, 60, 0.0, 1e-4, 2.997, None),
        (0.25, 2.8046875 * math.sqrt(0.75), 60, 0.0, 1e-4, 3.605, 3.231),
        (8192 / 60_000, 4.19, 220, 0.0, 1e-5, None, 2.000),
    ],
)
def test_the_pages_numbers_come_out(rate, z, count, told, delta, by_renyi, by_losses) -> None:
    steps = gaussians(rate, z, count, told)
    if by_renyi is not None:
        assert recompute_epsilons.by_renyi(steps, delta) == pytest.approx(by_renyi, abs=6e-3)
    if by_losses is not None:
        assert exact(steps, delta) == pytest.approx(by_losses, abs=6e-3)


def test_the_pages_chances_of_an_opening_that_tells_come_out() -> None:
    preset = Opening(400, 0.15, 0.8, 0.1)
    assert openings.told_at(preset, 0.1) == pytest.approx(2.5e-4, abs=5e-6)
    allocated = Opening(400, 1 / 7, 0.8, 0.1)
    assert 7 * openings.told_at(allocated, 0.1) == pytest.approx(1.9e-3, abs=3e-5)
    assert openings.told_at(Opening(100, 0.25, 0.8, 0.1), 0.1) == pytest.approx(3.03e-3, abs=1e-5)


def test_a_dropout_rate_of_thirty_percent_costs_what_the_page_says() -> None:
    opening = Opening(100, 0.25, 0.6, 0.1)
    part = Noised(32767.5, 32767.5 * math.sqrt(650), (1.28 * 32767.5) ** 2 / 0.6, 650)
    for dropout, expected in ((0.1, 2.51), (0.3, 3.26)):
        steps = (Step(15, (part,), rate=0.25, told=openings.most_told(opening, dropout)),)
        assert recompute_epsilons.by_renyi(steps, 1e-3) == pytest.approx(expected, abs=5e-3)


# What the project prints.


def resolved(source: str, *overrides: str) -> dict:
    return load_experiment(source, overrides).model_dump(exclude_none=True, mode="json")


@lru_cache
def planned(source: str, name: str, *overrides: str) -> dict:
    population, dimension = SHIPPED[source]
    return plan(name, overrides, population=population, dimension=dimension).values


def plan_files(source: str, folder: Path, *settings: str, **changed: object) -> tuple[Path, Path]:
    """Write what `plan --json` writes, with figures or keys changed, and its configuration."""
    name = str(ROOT / source) if source.endswith(".toml") else source
    overrides = [*settings, *(["data.path=nowhere"] if source in NEED_DATA else [])]
    values = planned(source, name, *overrides)
    plan, config = folder / "plan.json", folder / "config.toml"
    plan.write_text(json.dumps(values | changed))
    config.write_text(tomli_w.dumps(resolved(name, *overrides)))
    return plan, config


def test_every_shipped_experiment_is_recomputed() -> None:
    shipped = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("examples/*/*.toml")}
    shipped = {name for name in shipped if name.endswith("/experiment.toml")}
    assert set(SHIPPED) == set(experiment_names()) | shipped


@pytest.mark.slow
@pytest.mark.parametrize("source", SHIPPED)
def test_a_plan_promises_no_more_than_is_true_and_hardly_less(source: str, tmp_path: Path) -> None:
    setting = read(*plan_files(source, tmp_path))
    found = recompute_epsilons.rows(setting, Rules())
    assert {row.observer for row in found} == (
        set() if setting.model == "none" else {"release", "sum", "local"}
    )
    for row in found:
        # A share is planned for a cohort that is hardly ever exceeded: which one is its choice.
        assert no_more_than_needed(row, 1.05), row.text()


def no_more_than_needed(row: Row, share: float = 1.001) -> bool:
    """One client's shares are sampled, or so small that Renyi divergences are what is left."""
    if row.verdict == "TOO STRONG":
        return False
    if row.observer == "local":
        return row.printed < share * row.found.renyi
    return row.ratio < 1.001


@pytest.mark.slow
def test_noise_of_few_integers_costs_more_than_the_gaussian_beside_it(tmp_path: Path) -> None:
    plan, config = plan_files("mnist5k", tmp_path, "encoding.bits=8")
    setting = read(plan, config)
    (steps,) = recompute_epsilons.steps_of(setting, "release", Rules())
    for row in recompute_epsilons.rows(setting, Rules()):
        assert row.verdict != "TOO STRONG", row.text()
        # The ledger's bound does without the factor that a power's maximum spares.
        assert row.observer == "local" or row.ratio < 1.015, row.text()
    gaussian = {"release": {"value": exact(steps, setting.delta)}}
    assert gaussian["release"]["value"] > 2.9
    plan_files("mnist5k", tmp_path, "encoding.bits=8", epsilon=gaussian)
    assert recompute_epsilons.main([str(plan), "--config", str(config)]) == 1


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `heart`, of three rounds, on made-up records."""
    folder = tmp_path_factory.mktemp("heart")
    columns = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"
    for number, name in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        lines = [f"{40 + i},1,4,130,{200 + number},0,1,140,0,1,2,,,{i % 3}" for i in range(30)]
        (folder / f"heart_{name}.csv").write_text("\n".join([columns, *lines, ""]))
    api.run(
        "heart", overrides=[f"data.path={folder}", "rounds=3"], out=folder / "run", report=False
    )
    return folder / "run"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "run"
    api.run("digits", overrides=["rounds=5", "training.epochs=1"], out=folder, report=False)
    return folder


def changed(
    run: Path, folder: Path, *, epsilon: dict[str, float] | None = None, z: float = 1.0
) -> Path:
    """Copy what is read of a run, with other figures printed, or another noise multiplier."""
    folder.mkdir()
    for name in ("ledger.jsonl", "metrics.jsonl", "config.toml", "summary.json"):
        shutil.copy(run / name, folder / name)
    summary = json.loads((folder / "summary.json").read_text())
    for observer, value in (epsilon or {}).items():
        summary["epsilon"][observer]["value"] = value
    (folder / "summary.json").write_text(json.dumps(summary))
    text = (folder / "config.toml").read_text().splitlines()
    text = [
        f"noise_multiplier = {z * float(line.split('=')[1])}"
        if line.startswith("noise_multiplier =")
        else line
        for line in text
    ]
    (folder / "config.toml").write_text("\n".join(text))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hospitals", "digits"])
def test_a_run_prints_what_is_true(name: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(name)
    assert recompute_epsilons.main([str(folder)]) == 0
    for row in recompute_epsilons.rows(read(folder), Rules()):
        assert no_more_than_needed(row), row.text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hospitals", "digits"])
@pytest.mark.parametrize("by", [0.95, 1.05])
def test_another_noise_than_was_accounted_is_found(name, by, tmp_path, request, capsys) -> None:
    run = request.getfixturevalue(name)
    true = {row.observer: row.found.least for row in recompute_epsilons.rows(read(run), Rules())}
    folder = changed(run, tmp_path / "run", epsilon=true, z=by)
    assert recompute_epsilons.main([str(folder)]) == 1
    assert "opened with something else" in capsys.readouterr().out
    # The figure itself gives less noise away, whatever the ledger's first line says.
    found = recompute_epsilons.rows(read(folder), Rules())
    strong = [row for row in found if row.verdict == "TOO STRONG"]
    assert bool(strong) == (by < 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value"), [("delta", 1e-4), ("adjacency", "replace"), ("unit", "example")]
)
def test_a_figure_that_is_labelled_as_another_is_found(
    key, value, digits, tmp_path, capsys
) -> None:
    folder = changed(digits, tmp_path / "run", epsilon={"release": 99.0})
    summary = json.loads((folder / "summary.json").read_text())
    summary["epsilon"]["release"][key] = value
    (folder / "summary.json").write_text(json.dumps(summary))
    assert recompute_epsilons.main([str(folder)]) == 1
    assert f"{key} of epsilon_release" in capsys.readouterr().out


@pytest.mark.slow
def test_a_figure_that_forgets_the_fellow_clients_is_found(hospitals: Path, tmp_path: Path) -> None:
    forgotten = recompute_epsilons.recompute(read(hospitals), "sum", Rules(fellows=False)).least
    true = recompute_epsilons.recompute(read(hospitals), "sum", Rules()).least
    for value, status in ((forgotten, 1), (true, 0)):
        folder = tmp_path / f"{status}"
        printed = {"sum": value, "release": 99.0, "local": 99.0}
        assert recompute_epsilons.main([str(changed(hospitals, folder, epsilon=printed))]) == status


@pytest.mark.slow
@pytest.mark.parametrize(("printed", "status"), [(2.997, 1), (3.231, 0)])
def test_four_hospitals_at_the_old_noise_print_3_23_and_not_3(printed, status, tmp_path) -> None:
    figure = {"sum": {"value": printed}}
    plan, config = plan_files("heart", tmp_path, noise_multiplier=2.8046875, epsilon=figure)
    assert recompute_epsilons.main([str(plan), "--config", str(config)]) == status


@pytest.mark.slow
@pytest.mark.parametrize(("printed", "status"), [(2.073, 1), (3.505, 0)])
def test_a_figure_that_forgets_who_dropped_out_is_found(
    printed: float, status: int, tmp_path: Path
) -> None:
    """15 opened rounds of 25, of whom 28 % drop out where 10 % were assumed."""
    overrides = ["privacy.honest_fraction=0.6", "privacy.noise_multiplier=1.28"]
    (tmp_path / "config.toml").write_text(tomli_w.dumps(resolved("digits", *overrides)))
    lines = [{"type": "run", "population": 100, "kinds": {"train": {"event": None}}}]
    for number in range(1, 16):
        key = [number, 0, "train", 0]
        lines.append({"type": "contributions", "key": key, "cohort": 25, "clients": [*range(25)]})
        lines.append({"type": "sum", "key": key})
        lines.append({"type": "survived", "key": key, "cohort": 25, "survived": 18})
    (tmp_path / "ledger.jsonl").write_text("\n".join(map(json.dumps, lines)))
    summary = {"dimension": 650, "epsilon": {"release": {"value": printed}}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    # No metrics are written: only --every-round reads them.
    assert recompute_epsilons.checked(tmp_path, None, Rules(dropouts=False), False)
    assert recompute_epsilons.checked(tmp_path, None, Rules(), False) == (status == 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heart", "digits", "mnist5k"])
def test_a_whole_run_prints_what_is_true(name: str, tmp_path: Path) -> None:
    overrides = []
    if name == "heart":
        if not (DATA / "heart_va.csv").exists():
            pytest.skip("needs ../shared/data/heart_*.csv")
        overrides = [f"data.path={DATA}"]
    api.run(name, overrides=overrides, out=tmp_path / "run", report=False)
    assert recompute_epsilons.main([str(tmp_path / "run"), "--every-round"]) == 0
    for row in recompute_epsilons.rows(read(tmp_path / "run"), Rules()):
        assert no_more_than_needed(row), row.text()
