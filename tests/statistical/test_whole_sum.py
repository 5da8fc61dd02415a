"""Zero updates through masks, dropouts, decoding and top-up: the noise that the server releases."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from narrowed import UNUSED

from zerosum.client.flower.client_app import build_app
from zerosum.client.privacy import registry
from zerosum.client.privacy.adaptive_bit import BIT_UNITS
from zerosum.client.privacy.geometric import DistributedGeometric
from zerosum.client.protocol.flower_messages import STAGE_TYPES
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.protocol.protection import Protection
from zerosum.client.request import ModelQuestion, ModelRequest, model_payload
from zerosum.client.spec import (
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PrivacySpec,
    SecAggSpec,
    TrainSpec,
)
from zerosum.secagg.randomness import insecure_keystream
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.simulations.engine.faults import FaultPlan
from zerosum.simulations.engine.grid import InProcessGrid, nodes
from zerosum.simulations.engine.simulated_clients import SimulatedEnvironment

pytestmark = pytest.mark.statistical

COHORT, DIMENSION = 20, 1 << 15
SETTINGS: dict[str, dict[str, Any]] = {
    "skellam": {},
    "discrete-gaussian": {"mechanism": "discrete-gaussian"},
    "adaptive": {"clipping": "adaptive"},
    "central": {"model": "central"},
}


class Vanishing(FaultPlan):
    """The first so many clients vanish before they contribute."""

    def __init__(self, count: int) -> None:
        self._count = count

    def vanishes(self, session_round, client, message_type) -> bool:
        return message_type == STAGE_TYPES["contribute"] and client < self._count


class Idle(SimulatedEnvironment):
    """Clients whose update is zero."""

    def update(self, request, task, client):
        return np.zeros(DIMENSION)


def released(dropped: int, server: Literal["malicious", "semi-honest"] = "semi-honest", **privacy):
    secagg = SecAggSpec(server=server, dropout=0.35 if server == "semi-honest" else 0.2)
    environment = Idle.of(UNUSED, SeededEntropy(3), secagg, COHORT)
    grid = InProcessGrid(build_app(lambda context: environment), COHORT, faults=Vanishing(dropped))
    asked = Coordinator(
        grid,
        Nodes(nodes(COHORT), environment.roster),
        secagg,
        run_id=b"noise",
        entropy=SeededEntropy(3),
    )
    question = ModelQuestion(
        kind="train",
        round=1,
        seed=0,
        population=COHORT,
        task="none",
        data=DataSpec(),
        model=ModelSpec(),
        training=TrainSpec(),
        privacy=PrivacySpec(**{"noise_multiplier": 1.5, "honest_fraction": 0.6} | privacy),
        encoding=EncodingSpec(),
        noise_draw="per_client",
        max_loss=1.0,
    )
    request = ModelRequest(question, model_payload(np.zeros(DIMENSION, dtype=np.float32)))
    return asked.private_sum(request, (tuple(range(COHORT)),), round=1)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("dropped", [0, 2, 6])
def test_the_noise_of_a_release_is_within_two_percent_of_the_claim(name, dropped) -> None:
    aggregate = released(dropped, **SETTINGS[name])
    assert len(aggregate.survivors) == COHORT - dropped
    assert aggregate.total.std() == pytest.approx(aggregate.noise_std, rel=0.02)
    share = 1.0 if name == "central" else 0.6
    z = 1.5 / (math.sqrt(1 - 1 / 25) if name == "adaptive" else 1)
    # Delta2 is at most a hundredth above the clip of 0.5.
    assert aggregate.noise_std == pytest.approx(z * 0.5 / math.sqrt(share), rel=0.01)


@pytest.mark.parametrize("privacy", [{"model": "local"}, {"top_up": False}])
@pytest.mark.parametrize("dropped", [0, 6])
def test_where_nothing_is_topped_up_the_claim_is_the_survivors_own_noise(privacy, dropped) -> None:
    """Six of twenty gone, the claim for a full cohort would be 20 % too much."""
    aggregate = released(dropped, **privacy)
    assert aggregate.total.std() == pytest.approx(aggregate.noise_std, rel=0.02)
    full = 1.5 * 0.5 * (math.sqrt(COHORT) if "model" in privacy else 1 / math.sqrt(0.6))
    left = math.sqrt((COHORT - dropped) / COHORT)
    assert aggregate.noise_std == pytest.approx(full * left, rel=0.01)


@dataclass(frozen=True)
class Counted(DistributedGeometric):
    """Shares of geometric noise of scale 10, on vectors that happen to be integers."""

    @classmethod
    def from_spec(cls, privacy, code, multiplier, shares):
        return DistributedGeometric(10.0, 1 / Fraction(shares), (1,))


@pytest.mark.parametrize("dropped", [0, 2, 4])
def test_geometric_shares_add_up_through_sessions_against_a_malicious_server(
    monkeypatch, dropped: int
) -> None:
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry.register_mechanism("counted", Counted)
    privacy: dict[str, Any] = {"mechanism": "counted", "honest_fraction": 0.8}
    aggregate = released(dropped, "malicious", **privacy)
    assert len(aggregate.survivors) == COHORT - dropped
    step = aggregate.noise_std / math.sqrt(1.25 / 2) * math.sinh(0.05)
    noise = aggregate.total / step
    assert np.abs(noise - np.round(noise)).max() < 1e-6
    assert noise.std() == pytest.approx(math.sqrt(1.25 / 2) / math.sinh(0.05), rel=0.02)
    # The control: the survivors' shares alone.
    bare = released(dropped, "malicious", top_up=False, **privacy)
    left = math.sqrt((COHORT - dropped) / COHORT)
    assert bare.total.std() == pytest.approx(left * aggregate.noise_std, rel=0.02)


def test_the_bit_s_noise_is_as_claimed_and_its_own() -> None:
    spec = PrivacySpec(clipping="adaptive", noise_multiplier=1.0, honest_fraction=0.6)
    protection = Protection.build(
        spec, EncodingSpec(), cohort=10, dimension=1, rotation_seed=bytes(32)
    )
    drawn = [protection.summed_noise(10, insecure_keystream(1, "bit", i)) for i in range(8000)]
    update, bit = np.array(drawn).T
    claimed = 2.5 * 2 * BIT_UNITS / math.sqrt(0.6)
    assert bit.std() == pytest.approx(claimed, rel=0.04)
    assert abs(np.corrcoef(update, bit)[0, 1]) < 5 / math.sqrt(8000)


@pytest.mark.parametrize("rotate", [False, True])
def test_sixteen_bits_add_at_most_a_hundredth_to_the_error(rotate: bool) -> None:
    """Against a Gaussian of z clips on a sum of reals: d = 2^14, n = 100, z = 1, f = 1."""
    cohort, d, clip = 100, 1 << 14, 0.5
    protection = Protection.build(
        PrivacySpec(noise_multiplier=1.0, honest_fraction=1.0, clip=clip),
        EncodingSpec(bits=16, rotate=rotate),
        cohort=cohort,
        dimension=d,
        rotation_seed=bytes(range(32)),
    )
    rng = np.random.default_rng(0)
    assert protection.mechanism is not None
    exact = np.zeros(d)
    rounded, noised = np.zeros((2, protection.length), dtype=np.int64)
    for client in range(cohort):
        update = rng.normal(size=d)
        update *= clip / np.linalg.norm(update)
        exact += update
        coins, noise = (insecure_keystream(6, name, client) for name in ("round", "noise"))
        bare = protection.protect(update, rounding=coins, noise=None)
        rounded = rounded + bare
        noised = noised + protection.mechanism.apply(bare, noise)
    ideal = clip**2
    quantisation = np.mean((protection.decode(rounded) - exact) ** 2)
    assert (quantisation + protection.std_sum**2) / ideal < 1.01
    found = np.mean((protection.decode(noised) - exact) ** 2) / ideal
    # The mean of 2^14 squares is itself within 1.1 % of what it estimates, twice in three times.
    assert found == pytest.approx(1, abs=0.01 + 3 * math.sqrt(2 / d))
