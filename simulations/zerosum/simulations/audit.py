"""``zerosum audit``: canaries through the real pipeline, and what an observer of the sum can tell.

One round in which everyone takes part. Each of k rostered clients sends a canary of its own, of
norm C and orthogonal to all others, or zero, as a coin decides; so the cohort, its size and the
noise do not depend on the coins. An observer of the sum scores each canary and guesses
its coin. How often the guesses are right gives a lower bound on epsilon, which must not exceed the
ledger's.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.client.privacy.opendp import check_available
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.survivors import CohortTooSmallError
from zerosum.client.request import ModelRequest
from zerosum.client.spec import ModelSpec, PrivacySpec
from zerosum.client.task import ClientInfo, Task
from zerosum.secagg.graph.failure_bounds import share_of
from zerosum.secagg.randomness import derive_seed, insecure_keystream
from zerosum.server.config import ConfigError
from zerosum.server.privacy.audit import TwoTests
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.protections import question_of
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.private_sum.aggregate import Aggregate
from zerosum.server.private_sum.coordinator import RoundAbandoned
from zerosum.server.private_sum.thresholds import Thresholds
from zerosum.server.spec import Experiment, FaultSpec, SamplingSpec
from zerosum.simulations.engine.one_at_a_time import alone
from zerosum.simulations.engine.simulated_clients import SimulatedEnvironment
from zerosum.simulations.partial_results import PartialRows

LARGEST_DELTA = 1e-5
"""Largest ``--delta``: above it the bound from guesses is vacuous."""

LARGEST_NOISE = 1e6
"""Largest ``--noise-multiplier``: that of ``privacy.noise_multiplier``."""


@dataclass(frozen=True)
class AuditPlan:
    """Sizes and levels of an audit, fixed before anything is observed.

    Attributes
    ----------
    canaries : int
        k: clients, coins and coordinates.
    repetitions : int
        Rounds, each an audit of its own with new coins.
    noise_multiplier : float
        z of the audited round.
    delta, confidence : float
        Of both bounds; of each lower bound.
    dropout : float
        Fraction of clients that vanish before they contribute. Their coins are guessed like all.
    """

    canaries: int = 1000
    repetitions: int = 20
    noise_multiplier: float = 1.0
    delta: float = LARGEST_DELTA
    confidence: float = 0.95
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.canaries < 10 or self.repetitions < 1:
            raise ConfigError(
                f"--canaries {self.canaries} --repetitions {self.repetitions}: an audit needs at "
                "least 10 canaries and 1 repetition"
            )
        if not 0 < self.noise_multiplier <= LARGEST_NOISE:
            raise ConfigError(
                f"--noise-multiplier {self.noise_multiplier:g}: an audit needs noise, above 0 and "
                f"at most {LARGEST_NOISE:g}"
            )
        if not 0 < self.delta <= LARGEST_DELTA:
            raise ConfigError(
                f"--delta {self.delta:g}: above {LARGEST_DELTA:g} a bound from guesses says nothing"
            )
        if not 0 <= self.dropout < 0.5 or not 0.5 < self.confidence < 1:
            raise ConfigError(
                f"--dropout {self.dropout} --confidence {self.confidence}: a dropout is in "
                "[0, 0.5), a confidence in (0.5, 1)"
            )

    @property
    def room(self) -> float:
        """Part of the clients that may vanish: the expected dropouts and six standard deviations.

        Dropouts are binomial. Six deviations are exceeded in about one round of 10^9, so that an
        audit is not abandoned by chance.
        """
        if self.dropout == 0:
            return 0.0
        return self.dropout + 6 * math.sqrt(self.dropout * (1 - self.dropout) / self.canaries)

    def honest_fraction(self, corruption: float) -> float:
        """Return f: 1 less who may vanish and who is taken to collude, whose noise is none.

        Rounded down: of all clients f n and the colluders are needed, not one more.

        Parameters
        ----------
        corruption : float
            Part of the roster, which is the audited cohort.
        """
        colluders = share_of(corruption, self.canaries, "secagg.corruption") / self.canaries
        return max(0.05, math.floor(1e4 * (1 - self.room - colluders)) / 1e4)


@alone("audit")
def run_audit(
    experiment: Experiment,
    plan: AuditPlan,
    on_repetition: Callable[[int], None] = lambda number: None,
    on_power: Callable[[str], None] = lambda words: None,
    partial: PartialRows | None = None,
    scores: Callable[[NDArray[np.float64]], NDArray[np.float64]] = lambda seen: seen,
) -> dict[str, Any]:
    """Audit an experiment's protection: clip, encoding, mechanism, ring and protocol.

    Parameters
    ----------
    experiment : Experiment
        Its model is not trained, its data not read.
    plan : AuditPlan
        Sizes and levels.
    on_repetition : callable, optional
        Called with the number of each repetition as it ends.
    on_power : callable, optional
        Called before the first with a sentence: how much this audit could show.
    partial : PartialRows, optional
        What an earlier call of the same audit came to, which goes on after it: a repetition
        follows from seed and number alone.
    scores : callable, optional
        From what the observer sees, in clips and by canary, to the scores: for tests.

    Returns
    -------
    dict
        ``upper`` and its terms; for each repetition ``lower``, ``null``, ``correct``,
        ``survivors``; ``violations``, repetitions whose lower bound exceeds the upper.

    Raises
    ------
    ConfigError
        If the experiment's sums carry no distributed noise, or a round is abandoned.
    BusyError
        If something else simulates in this process.
    """
    audited = _audited(experiment, plan)
    protection = _protection(audited, plan)
    deviation = _deviation(protection, plan)
    upper = _upper(audited, protection, plan)
    test = TwoTests.of(
        plan.canaries,
        deviation,
        upper.value,
        delta=plan.delta,
        confidence=plan.confidence,
        dropped=plan.dropout,
    )
    on_power(power(_summary(test, plan, upper.value)))
    pipeline = _Pipeline(audited, plan)
    partial = partial or PartialRows(None, "")
    for number in range(len(partial.rows) + 1, plan.repetitions + 1):
        coins, null_coins = (_coins(audited.seed, what, number, plan) for what in ("coins", "null"))
        seen = pipeline.observe(coins, number)
        row = _judged(test, scores(seen.total / canary_norm(audited)), coins, null_coins)
        partial.add(row | {"survivors": len(seen.survivors)})
        on_repetition(number)
    return _result(audited, plan, _summary(test, plan, upper.value), partial.rows) | {
        "score_deviation": deviation,
        "adjacency": upper.adjacency,
        "accountant": upper.accountant,
    }


def canary_norm(experiment: Experiment) -> float:
    """Return the norm C of a canary.

    Parameters
    ----------
    experiment : Experiment
        With a clip.

    Returns
    -------
    float
        C, in the units of the model's update.

    Raises
    ------
    ConfigError
        If there is no clip.
    """
    clip = experiment.privacy.clip
    if clip is None:
        raise ConfigError("privacy.clip = none: without a norm there is nothing to audit")
    return clip


def cannot_fail(result: Mapping[str, Any]) -> bool:
    """Return whether even guesses that are all right would not contradict the ledger."""
    return bool(result["largest"] <= result["upper"])


def power(result: Mapping[str, Any]) -> str:
    """Return in a sentence what an audit could show, which is known before it runs."""
    most = (
        f"The ledger allows epsilon {result['upper']:.3f}; {result['canaries']} canaries could "
        f"show at most {result['largest']:.3f}"
    )
    if cannot_fail(result):
        return f"{most}: this audit cannot fail; raise --canaries or --noise-multiplier"
    if result["detects"] is None:
        return f"{most}, and that only by luck; raise --canaries or --noise-multiplier"
    return f"{most}: they fail noise below {result['detects']:.0%} of what is claimed"


def verdict(result: Mapping[str, Any]) -> str:
    """Return an audit's outcome in one sentence."""
    lower, upper = max(result["lower"]), result["upper"]
    if result["violations"]:
        return (
            f"FAILED: in {len(result['violations'])} of {result['repetitions']} repetitions an "
            f"observer tells more (epsilon above {lower:.3f}) than the ledger allows ({upper:.3f})"
        )
    between = f"{result['lower_median']:.3f} (median of {result['repetitions']}) and {upper:.3f}"
    if cannot_fail(result):
        return (
            f"Could not fail: all guesses right would have shown {result['largest']:.3f}; "
            f"epsilon_sum lies between {between}"
        )
    return (
        f"Passed: no observer told more than the ledger allows; epsilon_sum lies between {between}"
    )


class _CanaryEnvironment(SimulatedEnvironment):
    """Clients that send a canary or zero where others would train."""

    coins: NDArray[np.bool_]

    def update(self, request: ModelRequest, task: Task, client: ClientInfo) -> NDArray[np.float64]:
        """Return C in the client's own coordinate, or zero."""
        vector = np.zeros(request.dimension)
        if self.coins[client.index]:
            vector[client.index] = request.question.privacy.clip
        return vector


class _NoTask:
    """Stands where a task would: canaries are sent whatever it is."""


class _Pipeline:
    """The path from a client's vector to the server's sum, the same as in any simulation."""

    def __init__(self, experiment: Experiment, plan: AuditPlan) -> None:
        self._experiment, self._plan = experiment, plan
        entropy = SeededEntropy(experiment.seed)
        no_task: Any = _NoTask()
        self._clients = _CanaryEnvironment.of(no_task, entropy, experiment.secagg, plan.canaries)
        run_id = derive_seed(experiment.seed, "audit")[:16]
        self._coordinator = self._clients.coordinator(experiment, plan.canaries, run_id)

    def observe(self, coins: NDArray[np.bool_], number: int) -> Aggregate:
        self._clients.coins = coins
        everyone = tuple(range(self._plan.canaries))
        question = question_of(
            self._experiment, number, self._plan.canaries, noise_draw="per_client"
        )
        request = ModelRequest(question, bytes(4 * self._plan.canaries))
        try:
            return self._coordinator.private_sum(request, [everyone], round=number)
        except RoundAbandoned as abandoned:
            raise ConfigError(f"repetition {number} of the audit: {abandoned}") from None


def _audited(experiment: Experiment, plan: AuditPlan) -> Experiment:
    """Return the one-round experiment of an audit: everyone, guaranteed shares only, no top-up."""
    privacy = experiment.privacy
    if privacy.model != "distributed":
        raise ConfigError(
            f'privacy.model = "{privacy.model}": canaries are scored on a sum whose noise the '
            'clients share; audit an experiment with "distributed"'
        )
    changed: dict[str, Any] = {
        "noise_multiplier": plan.noise_multiplier,
        "epsilon": None,
        "delta": plan.delta,
        "allow_large_delta": True,
        "honest_fraction": plan.honest_fraction(experiment.secagg.corruption),
        "top_up": False,
        "components_noise": None,
    }
    return experiment.model_copy(
        update={
            "rounds": 1,
            "model": ModelSpec(),  # canaries stand in for it
            "privacy": PrivacySpec.model_validate(privacy.model_dump() | changed),
            "sampling": SamplingSpec(kind="everyone"),
            "secagg": experiment.secagg.model_copy(
                update={"groups": 1, "dropout": min(0.95, plan.room)}
            ),
            "faults": FaultSpec(contribute=plan.dropout),
            "training": experiment.training.model_copy(update={"weighting": "uniform"}),
        }
    )


def _protection(experiment: Experiment, plan: AuditPlan) -> Protection:
    """Return the protection of an audited round; refuse, before any, what cannot be run."""
    asked = f"--canaries {plan.canaries} --noise-multiplier {plan.noise_multiplier:g}"
    try:
        if experiment.privacy.exact:
            check_available(plan.canaries)
        protection = Protection.build(
            experiment.privacy,
            experiment.encoding,
            cohort=plan.canaries,
            dimension=plan.canaries,
            rotation_seed=bytes(32),
        )
        Thresholds.of(
            plan.canaries,
            roster=plan.canaries,
            secagg=experiment.secagg,
            privacy=experiment.privacy,
        )
    except CohortTooSmallError as error:
        if not plan.dropout:
            raise ConfigError(f"{asked}: {error}") from None
        raise ConfigError(
            f"--canaries {plan.canaries} --dropout {plan.dropout:g}: with room for chance "
            f"{plan.room:.0%} of the clients may vanish, which no session stands; "
            "raise --canaries or lower --dropout"
        ) from None
    except (ValueError, OverflowError, RuntimeError) as error:
        raise ConfigError(f"{asked}: {error}") from None
    return protection


def _deviation(protection: Protection, plan: AuditPlan) -> float:
    """Return the noise of a score, in clips, with as many survivors as are expected."""
    if protection.mechanism is None or protection.encoding.clip is None:
        raise ConfigError(
            "an audit needs noise and a clip: set privacy.noise_multiplier and privacy.clip"
        )
    expected = plan.canaries * (1 - plan.dropout)
    return protection.mechanism.std(expected) * protection.encoding.step / protection.encoding.clip


def _upper(experiment: Experiment, protection: Protection, plan: AuditPlan) -> EpsilonBound:
    """Return epsilon_sum of one round, from the ledger that every run writes."""
    ledger = RunLedger(
        None,
        privacy=experiment.privacy,
        secagg=experiment.secagg,
        sampling=experiment.sampling,
        population=plan.canaries,
        protections={"train": protection},
    )
    key = (1, 0, "train", 0)
    ledger.charge_contributions(key, range(plan.canaries), cohort=plan.canaries)
    ledger.charge_sum(key)
    figure = ledger.figures()["sum"]
    if not figure.finite:
        raise ConfigError(f"epsilon_sum is infinite: {figure.reason}; no audit contradicts that")
    return figure


def _coins(seed: int, purpose: str, number: int, plan: AuditPlan) -> NDArray[np.bool_]:
    uniform = insecure_keystream(seed, "audit " + purpose, number).uniform(plan.canaries)
    coins: NDArray[np.bool_] = uniform < 0.5
    return coins


def _judged(
    test: TwoTests,
    scores: NDArray[np.float64],
    coins: NDArray[np.bool_],
    null_coins: NDArray[np.bool_],
) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, truth in (("lower", coins), ("null", null_coins)):
        row[name], correct = test.bound(scores[: test.slots], truth)
        row[f"correct_{name}"], row[f"disproof_{name}"] = correct
    return row


def _summary(test: TwoTests, plan: AuditPlan, upper: float) -> dict[str, Any]:
    """Return what is known before anything is observed."""
    return {
        "canaries": plan.canaries,
        "guesses": test.guesses.total,
        "guesses_disproof": test.disproof.guesses.total,
        "upper": upper,
        "largest": test.largest,
        "detects": test.disproof.detects,
    }


def _result(
    experiment: Experiment,
    plan: AuditPlan,
    summary: dict[str, Any],
    rows: list[dict[str, Any]],
) -> dict[str, Any]:
    lower = [row["lower"] for row in rows]
    return {
        "name": experiment.name,
        "protocol": experiment.secagg.protocol,
        "observer": "sum",
        "repetitions": plan.repetitions,
        "noise_multiplier": plan.noise_multiplier,
        "honest_fraction": experiment.privacy.honest_fraction,
        "dropout": plan.dropout,
        "clip": experiment.privacy.clip,
        "delta": plan.delta,
        "confidence": plan.confidence,
        **summary,
        "lower": lower,
        "lower_median": float(np.median(lower)),
        "null": [row["null"] for row in rows],
        "correct": [row["correct_lower"] for row in rows],
        "correct_null": [row["correct_null"] for row in rows],
        "correct_disproof": [row["disproof_lower"] for row in rows],
        "survivors": [row["survivors"] for row in rows],
        "violations": [i + 1 for i, value in enumerate(lower) if value > summary["upper"]],
        "seed": experiment.seed,
    }
