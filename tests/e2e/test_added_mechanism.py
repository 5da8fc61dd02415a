"""A mechanism that a test file registers goes everywhere, with no other edit.

Every figure is checked against a closed form: Gaussian divergences alpha / (2 z^2), and the
conversion of Canonne, Kamath and Steinke (2020), Proposition 12, written out here.
"""

import math
from typing import Any, cast

import numpy as np
import pytest
from added_mechanism import NAME, AddedDpEvent, AddedShares
from narrowed import UNUSED, present
from policies import policy_of

from zerosum.client.flower.client_app import build_app
from zerosum.client.privacy import registry
from zerosum.client.privacy.mechanism import Mechanism
from zerosum.client.privacy.samplers import TAU
from zerosum.client.protocol import admission, own_budget
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.file_store import FileStore
from zerosum.client.protocol.flower_messages import STAGE_TYPES
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.protocol.protection import Protection
from zerosum.client.renyi_filter import divergence_limit, fixed_order
from zerosum.client.request import ModelQuestion, ModelRequest, model_payload
from zerosum.client.spec import (
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PrivacySpec,
    SecAggSpec,
    TrainSpec,
)
from zerosum.secagg import SharedCache
from zerosum.server.config import ConfigError
from zerosum.server.privacy.observers import ObserverName
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.spec import SamplingSpec
from zerosum.simulations import api
from zerosum.simulations.commands.plan import plan
from zerosum.simulations.config import load_experiment
from zerosum.simulations.engine.faults import FaultPlan
from zerosum.simulations.engine.grid import InProcessGrid, nodes
from zerosum.simulations.engine.simulated_clients import SimulatedEnvironment

COHORT, DIMENSION, FRACTION, Z = 20, 1 << 13, 0.6, 1.5
PRIVACY: dict[str, Any] = {"mechanism": NAME, "noise_multiplier": Z, "honest_fraction": FRACTION}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry.register_mechanism(NAME, cast(type[Mechanism], AddedShares))


def epsilon(rho: float, delta: float) -> float:
    """Return the least epsilon over integer orders of divergences alpha rho."""
    return min(
        a * rho + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1)
        for a in range(2, 513)
    )


def rho(z: float, times: float = 1) -> float:
    return times / (2 * z**2)


def request(length: int = 5, **privacy) -> ModelRequest:
    question = ModelQuestion(
        kind="train",
        round=1,
        seed=0,
        population=COHORT,
        task="digits",
        data=DataSpec(),
        model=ModelSpec(),
        training=TrainSpec(),
        privacy=PrivacySpec(**(PRIVACY | privacy)),
        encoding=EncodingSpec(),
        noise_draw="per_client",
        max_loss=1.0,
    )
    return ModelRequest(question, model_payload(np.zeros(length, dtype=np.float32)))


def protection(cohort: int = COHORT, dimension: int = 5, **privacy) -> Protection:
    return Protection.build(
        PrivacySpec(**(PRIVACY | privacy)),
        EncodingSpec(),
        cohort=cohort,
        dimension=dimension,
        rotation_seed=bytes(32),
    )


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


@pytest.mark.parametrize(("dropped", "top_up"), [(0, True), (6, True), (6, False)])
def test_an_added_mechanism_is_encoded_and_topped_up(dropped: int, top_up: bool) -> None:
    environment = Idle(task=UNUSED, entropy=SeededEntropy(3), cache=SharedCache(4))
    grid = InProcessGrid(build_app(lambda context: environment), COHORT, faults=Vanishing(dropped))
    coordinator = Coordinator(
        grid,
        Nodes(nodes(COHORT)),
        SecAggSpec(server="semi-honest", dropout=0.35),
        run_id=b"noise",
        entropy=SeededEntropy(3),
    )
    total = coordinator.private_sum(
        request(DIMENSION, top_up=top_up), (tuple(range(COHORT)),), round=1
    )
    assert len(total.survivors) == COHORT - dropped
    # Without its top-up the sum has the noise of 14 of 20 shares: 16 % less.
    present = 1.0 if top_up else (COHORT - dropped) / COHORT
    claimed = Z * 0.5 / math.sqrt(FRACTION) * math.sqrt(present)
    assert total.noise_std == pytest.approx(claimed, rel=0.01)
    # A deviation of 8,192 draws is known to 0.8 %.
    assert total.total.std() == pytest.approx(total.noise_std, rel=0.04)


@pytest.mark.parametrize(
    "noise",
    [None, np.zeros(1, dtype=np.int64), np.full(5, 0.5)],
    ids=["None", "one for all coordinates", "floats"],
)
def test_noise_that_is_no_integer_a_coordinate_is_never_added(noise, monkeypatch) -> None:
    """None would leave out a top-up, and floats would be cut to zero where they enter the ring."""
    monkeypatch.setattr(AddedShares, "noise", lambda *_: noise)
    monkeypatch.setattr(AddedShares, "apply", lambda *_: noise)
    stream = SeededEntropy(3).keystream("noise")
    for draw in (
        lambda: protection().top_up(14, stream),
        lambda: protection().summed_noise(14, stream),
        lambda: protection().protect(np.zeros(5), rounding=stream, noise=stream),
    ):
        with pytest.raises(TypeError, match="has to return 5 integers"):
            draw()


@pytest.mark.parametrize(
    "row",
    [np.full(511, np.nan), np.full(511, -1.0), np.zeros(1)],
    ids=["NaN", "negative", "one for all orders"],
)
def test_a_cost_that_is_no_divergence_is_unbounded(row, monkeypatch, caplog) -> None:
    """NaN passes every comparison with a limit, and a negative cost would give budget back."""
    monkeypatch.setattr(AddedShares, "divergences", lambda *_, **__: row)
    assert own_budget.cost(request(), protection(), 0) is None
    assert "AddedShares.divergences has to give 511 numbers" in caplog.text


def test_an_added_mechanism_sizes_the_ring_and_bounds_the_session() -> None:
    one = protection()
    assert one.log2_wrap_probability <= -40
    assert b'"name":"AddedShares"' in one.bounds
    assert one.bounds != protection(mechanism="skellam").bounds


def test_an_added_mechanism_is_charged_to_the_run_ledger() -> None:
    ledger = RunLedger(
        None,
        privacy=PrivacySpec(**PRIVACY),
        secagg=SecAggSpec(),
        sampling=SamplingSpec(kind="everyone"),
        population=COHORT,
        protections={"train": protection()},
    )
    for number in range(7):
        key = (number, 0, "train", 0)
        ledger.charge_contributions(key, range(COHORT), cohort=COHORT)
        ledger.charge_sum(key)
    figures = ledger.figures(1e-5)
    expected: dict[ObserverName, float] = {
        "sum": epsilon(rho(Z, 7), 1e-5),
        "release": epsilon(rho(Z / math.sqrt(FRACTION), 7), 1e-5),
        # One share of the twelve that are guaranteed, one vector in place of another.
        "local": epsilon(rho(Z / math.sqrt(FRACTION * COHORT) / 2, 7), 1e-5),
    }
    for observer, value in expected.items():
        assert figures[observer].value == pytest.approx(value, rel=1e-6)
        assert figures[observer].accountant == "rdp"
        assert AddedShares.caveat in " ".join(figures[observer].assumptions)


def planned(**arguments):
    settings = [f"privacy.mechanism={NAME}", f"privacy.honest_fraction={FRACTION}",
                "sampling.kind=everyone", "sampling.cohort=unset", "rounds=7",
                "privacy.delta=1e-5", *arguments.pop("overrides", ())]  # fmt: skip
    found = plan("digits", settings, population=COHORT, dimension=5, **arguments)
    return found.values


def test_an_added_mechanism_is_planned() -> None:
    figures = planned(overrides=[f"privacy.noise_multiplier={Z}"])["epsilon"]
    assert figures["sum"]["value"] == pytest.approx(epsilon(rho(Z, 7), 1e-5), rel=1e-6)
    released = epsilon(rho(Z / math.sqrt(FRACTION), 7), 1e-5)
    assert figures["release"]["value"] == pytest.approx(released, rel=1e-6)


def test_an_added_mechanism_is_calibrated_to_a_target() -> None:
    z = planned(epsilon=4.0)["noise_multiplier"]
    assert epsilon(rho(z / math.sqrt(FRACTION), 7), 1e-5) <= 4.0
    assert epsilon(rho(0.998 * z / math.sqrt(FRACTION), 7), 1e-5) > 4.0


def test_an_added_mechanism_is_charged_to_a_clients_own_budget(tmp_path) -> None:
    policy = policy_of(max_epsilon=12.0, budget_delta=1e-6, mechanisms=[NAME])
    store, asked, whole = FileStore(tmp_path), request(), protection()
    row = own_budget.cost(asked, whole, 0)
    sampler = 3 * TAU * 5 * COHORT
    assert row == pytest.approx(np.arange(2, 513) * rho(Z) + sampler, rel=1e-9)
    order = fixed_order(12.0, 1e-6)
    affordable = math.floor(divergence_limit(12.0, 1e-6, order) / (order * rho(Z)))
    assert affordable > 3
    for _ in range(affordable):
        store.count_contribution(admission.priced(store, policy, asked, whole, 0))
    with pytest.raises(Declined, match="max_epsilon = 12"):
        admission.priced(store, policy, asked, whole, 0)


def test_an_added_mechanism_is_trusted_only_where_a_policy_names_it() -> None:
    admission.check_request(request(), policy_of(mechanisms=[NAME]))
    admission.check_request(request(), policy_of(mechanisms="any"))
    with pytest.raises(Declined, match=f"mechanism '{NAME}'"):
        admission.check_request(request(), policy_of())


def test_an_event_that_knows_no_more_fails_closed() -> None:
    event = AddedDpEvent(2.0)
    assert event.pure_epsilon() == math.inf
    assert event.loss_distribution(1e-4) is None
    assert event.integer_noise() is None


class LopsidedDpEvent(AddedDpEvent):
    symmetric = False


def test_examples_amplify_only_an_event_that_is_known_to_be_symmetric(monkeypatch) -> None:
    asked, whole = request(unit="example", examples=1000, lot=100), protection()
    amplified, alone = (present(own_budget.cost(each, whole, 0)) for each in (asked, request()))
    assert (amplified < alone).all()
    monkeypatch.setattr(AddedShares, "event", lambda self, shares: LopsidedDpEvent(2.0))
    assert own_budget.cost(asked, whole, 0) is None
    assert own_budget.cost(request(), whole, 0) is not None


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_run_under_an_added_mechanism_reports_what_the_closed_form_says(tmp_path) -> None:
    settings = [f"privacy.mechanism={NAME}", "rounds=2", "data.clients=10", "training.epochs=1",
                "sampling.kind=everyone", "sampling.cohort=unset", "privacy.delta=1e-2",
                "secagg.server=semi-honest", f"privacy.noise_multiplier={Z}",
                "privacy.honest_fraction=0.5", "secagg.dropout=0.3", "faults.contribute=0.2",
                "workers=1"]  # fmt: skip
    result = api.run("digits", overrides=settings, out=tmp_path / "run", report=False)
    figures = result.summary["epsilon"]
    assert figures["sum"]["value"] == pytest.approx(epsilon(rho(Z, 2), 1e-2), rel=1e-3)
    released = epsilon(rho(Z / math.sqrt(0.5), 2), 1e-2)
    assert figures["release"]["value"] == pytest.approx(released, rel=1e-3)


def test_an_unknown_mechanism_is_refused_in_one_line_with_the_registered_names() -> None:
    with pytest.raises(ConfigError) as raised:
        load_experiment("digits", ["privacy.mechanism=skelam"])
    line = str(raised.value)
    assert line.startswith("privacy.mechanism = 'skelam': input should be 'auto', 'skellam', ")
    assert f"'privunit' or '{NAME}'" in line
    assert "\n" not in line
