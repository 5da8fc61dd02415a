"""The nearest settings that are not hopeless: each is planned again, and a nearer one fails."""

import math

import pytest

from zerosum.server.planning.nearest_setting import HopelessPlan, more_clients, nearest_settings
from zerosum.server.spec import Experiment
from zerosum.simulations.commands.plan import plan
from zerosum.simulations.config import load_experiment

DIMENSION = 650
SETTINGS = ("privacy.epsilon=3", "data.clients=15", "sampling.cohort=15")


def settings_of(words: tuple[str, ...]) -> list[str]:
    assert words[::2] == ("--set",) * (len(words) // 2)
    return list(words[1::2])


def experiment(*overrides: str, source: str = "digits") -> Experiment:
    return load_experiment(source, list(overrides))


def hopeless(overrides: list[str], population: int | None = None) -> bool:
    """Return what the planner says of pasted settings."""
    whole = [*SETTINGS, *overrides]
    count = population or load_experiment("digits", whole).data.clients
    assert count is not None
    return bool(plan("digits", whole, population=count, dimension=DIMENSION).hopeless)


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    given = HopelessPlan(experiment(*SETTINGS), 15, DIMENSION, "--set data.clients=", 1438)
    assert hopeless([])
    return {
        near.words[1].split("=")[0]: settings_of(near.words) for near in nearest_settings(given)
    }


@pytest.mark.slow
def test_each_nearest_setting_is_planned_without_the_warning(found: dict[str, list[str]]) -> None:
    assert set(found) == {"data.clients", "privacy.epsilon", "privacy.unit"}
    assert not any(hopeless(settings) for settings in found.values())


@pytest.mark.slow
def test_one_client_less_is_still_hopeless(found: dict[str, list[str]]) -> None:
    clients = int(found["data.clients"][0].split("=")[1])
    assert found["data.clients"][1] == f"sampling.cohort={clients}"
    assert hopeless([f"data.clients={clients - 1}", f"sampling.cohort={clients - 1}"])


@pytest.mark.slow
def test_a_tenth_of_epsilon_less_is_still_hopeless(found: dict[str, list[str]]) -> None:
    epsilon = float(found["privacy.epsilon"][0].split("=")[1])
    assert 3 < epsilon < 10
    assert hopeless([f"privacy.epsilon={epsilon - 0.1:g}"])


@pytest.mark.slow
def test_where_an_option_sets_epsilon_the_same_option_is_pasted_behind_it(
    found: dict[str, list[str]],
) -> None:
    rest = ["data.clients=15", "sampling.cohort=15"]
    given = plan("digits", rest, population=15, dimension=DIMENSION, epsilon=3)
    (line,) = (near.line for near in given.nearest if "epsilon_" in near.says.split()[0])
    epsilon = found["privacy.epsilon"][0].split("=")[1]
    assert line == f"--epsilon {epsilon}"
    assert not plan("digits", rest, population=15, dimension=DIMENSION, epsilon=float(epsilon)
                    ).hopeless  # fmt: skip


@pytest.mark.slow
def test_rounds_are_named_where_the_noise_is_given_and_one_less_is_hopeless() -> None:
    given = experiment("rounds=2", "privacy.noise_multiplier=8", "data.clients=100",
                       "sampling.cohort=100")  # fmt: skip
    near = [n for n in nearest_settings(HopelessPlan(given, 100, DIMENSION)) if "rounds" in n.line]
    rounds = int(near[0].words[1].split("=")[1])

    def margin(rounds: int) -> float:
        return HopelessPlan(given, 100, DIMENSION).with_settings([f"rounds={rounds}"]).margin

    assert margin(rounds - 1) < 1 <= margin(rounds)
    # Noise that is found for all rounds together does not grow smaller by more of them.
    met = HopelessPlan(experiment(*SETTINGS), 15, DIMENSION)
    assert not any("rounds" in n.line for n in nearest_settings(met))


def test_no_clients_are_named_where_the_data_have_as_many_as_they_have() -> None:
    assert more_clients(HopelessPlan(experiment(*SETTINGS), 15, DIMENSION)) is None


def test_delta_follows_the_number_of_clients() -> None:
    given = experiment("privacy.noise_multiplier=900", "data.clients=500", "sampling.cohort=500")
    near = more_clients(HopelessPlan(given, 500, DIMENSION, "--population "))
    assert near is not None
    clients = int(near.words[1])
    assert near.words[0] == "--population"
    delta = next(float(w.split("=")[1]) for w in near.words if w.startswith("privacy.delta="))
    assert 0.1 <= delta * clients < 1
    assert math.log10(delta) == pytest.approx(round(math.log10(delta)))


@pytest.mark.slow
def test_nothing_is_named_that_protects_nobody() -> None:
    given = experiment("privacy.epsilon=0.001", "data.clients=2", "sampling.cohort=2", "rounds=1")
    near = nearest_settings(HopelessPlan(given, 2, 10**7))
    assert near == ()
