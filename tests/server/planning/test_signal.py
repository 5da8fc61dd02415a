"""A run's whole noise beside all that it can learn, and settings that were measured."""

import math

import pytest

from zerosum.client.spec import PrivacySpec
from zerosum.server.planning.signal import LEAST_SIGNAL, MOST_NOISE, RoundNoise, whole_run
from zerosum.simulations import api
from zerosum.simulations.commands.plan import plan

SLOW = pytest.mark.slow

CLIENTS = PrivacySpec(clip=2.0)


def noise(std: float, dimension: int = 100) -> RoundNoise:
    return RoundNoise(std, std, std, std * math.sqrt(dimension), clip=2.0)


def test_noise_grows_with_the_root_of_rounds_and_signal_with_rounds() -> None:
    one, hundred = (whole_run(noise(0.5), rounds, CLIENTS) for rounds in (1, 100))
    # By hand: clips 2 of T rounds against deviations 0.5 sqrt(T), and norms 5 sqrt(T).
    assert (one.direction, one.noise) == (pytest.approx(4.0), pytest.approx(2.5))
    assert (hundred.direction, hundred.noise) == (pytest.approx(40.0), pytest.approx(0.25))
    assert one.hopeless
    assert not hundred.hopeless
    assert hundred.why_hopeless == ""


@pytest.mark.parametrize(("over", "hopeless"), [(0.99, True), (1.01, False)])
def test_one_direction_is_judged_by_its_limit(over: float, hopeless: bool) -> None:
    run = whole_run(noise(2.0 / (LEAST_SIGNAL["client"] * over), 1), 1, CLIENTS)
    assert run.hopeless == hopeless
    assert ("pulled the same way" in run.why_hopeless) == hopeless


@pytest.mark.parametrize(("over", "hopeless"), [(0.99, False), (1.01, True)])
def test_all_coordinates_together_are_judged_by_theirs(over: float, hopeless: bool) -> None:
    dimension = 10**6
    run = whole_run(noise(2.0 * MOST_NOISE * over / math.sqrt(dimension), dimension), 1, CLIENTS)
    assert run.direction > 300
    assert run.hopeless == hopeless
    assert ("times as long" in run.why_hopeless) == hopeless


def test_no_noise_is_no_reason() -> None:
    assert not whole_run(noise(0.0), 1, CLIENTS).hopeless


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(
    ("name", "population", "dimension", "accuracy"),
    [
        ("mnist5k", 400, 1970, 0.84),
        ("digits", 100, 650, 0.85),
        ("mnist-local", 6000, 600, 0.81),
        pytest.param("heart", 4, 60, 0.81, marks=SLOW),
        pytest.param("mnist-dpsgd", 100, 44_600, 0.985, marks=SLOW),
        pytest.param("mnist-distributed", 6000, 2000, 0.976, marks=SLOW),
        pytest.param("mnist-abadi", 100, 72_010, 0.936, marks=SLOW),
    ],
)
def test_shipped_experiments_that_were_measured_to_learn_are_not_hopeless(
    name: str, population: int, dimension: int, accuracy: float
) -> None:
    """Test accuracies of docs/privacy.md and of the README: far above a constant's."""
    found = plan(name, population=population, dimension=dimension)
    assert accuracy > 0.8
    assert found.hopeless == ""
    assert found.nearest == ()


@pytest.mark.slow
@pytest.mark.parametrize("clients", [pytest.param(10, marks=SLOW), 20])
def test_few_clients_under_client_level_noise_are_hopeless(clients: int) -> None:
    given = [f"data.clients={clients}", f"sampling.cohort={clients}", "privacy.epsilon=3"]
    found = plan("digits", given, population=clients, dimension=10**4)
    assert found.hopeless.startswith("hopeless: ")
    assert found.hopeless in found.warnings


@pytest.mark.slow
def test_what_is_called_hopeless_learns_little_and_what_is_not_learns(tmp_path) -> None:
    """The digits by a linear model, which all records without noise get to 0.95."""
    given = [
        *("secagg.protocol=ideal", "sampling.kind=everyone", "sampling.cohort=unset"),
        *("privacy.epsilon=3", "secagg.dropout=0", "privacy.honest_fraction=1"),
        *(f"faults.{stage}=0" for stage in ("advertise", "share", "contribute")),
    ]
    accuracy, hopeless = {}, {}
    for clients in (10, 40):
        settings = [*given, f"data.clients={clients}"]
        hopeless[clients] = bool(
            plan("digits", settings, population=clients, dimension=650).hopeless
        )
        result = api.run("digits", overrides=settings, out=tmp_path / f"{clients}", report=False)
        accuracy[clients] = result.summary["metrics"]["test_accuracy"]
    assert hopeless == {10: True, 40: False}
    assert accuracy[10] < 0.6
    assert accuracy[40] > 0.8
