"""Find the nearest settings of a hopeless plan that are not: each changes one thing."""

import math
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

from zerosum.client.spec import MEANINGFUL_EPSILON
from zerosum.server.config import ConfigError, apply_overrides, parse_experiment, to_values
from zerosum.server.planning.preflight import prepare
from zerosum.server.planning.signal import planned_whole_run
from zerosum.server.privacy.calibration import planned_figures, planned_run
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.spec import Experiment

MOST_CLIENTS = 10**7
"""Clients beyond which no more are proposed: nobody has so many."""

MOST_ROUNDS = 10_000
"""Rounds beyond which no more are proposed."""

LOTS_A_PASS = 4
"""Steps that a proposed lot takes for one pass over the examples."""


@dataclass(frozen=True)
class Nearest:
    """A setting that is not hopeless, and what it changes.

    Attributes
    ----------
    words : tuple of str
        Of the command line, as ``("--set", "rounds=80")``.
    says : str
        What they change, in words.
    """

    words: tuple[str, ...]
    says: str

    @property
    def line(self) -> str:
        """Return the words as they are pasted behind the command."""
        return shlex.join(self.words)


@dataclass(frozen=True)
class HopelessPlan:
    """What is searched around.

    Attributes
    ----------
    experiment : Experiment
        As written: with an epsilon to meet, or a noise multiplier.
    population, dimension : int
        Clients; trainable parameters.
    clients_word : str
        What sets the number of clients, as ``"--population "`` or ``"--set data.clients="``; empty
        where it is given, as that of hospitals.
    examples : int or None
        Records of all clients together; None where they are not known.
    epsilon_word : str
        What sets the epsilon: an option of its own goes before every ``--set``.
    """

    experiment: Experiment
    population: int
    dimension: int
    clients_word: str = ""
    examples: int | None = None
    epsilon_word: str = "--set privacy.epsilon="

    def with_settings(self, settings: list[str], population: int | None = None) -> "HopelessPlan":
        """Return the plan after ``--set`` of each setting.

        Parameters
        ----------
        settings : list of str
            As ``"rounds=80"``.
        population : int, optional
            Clients, where they change.

        Returns
        -------
        HopelessPlan

        Raises
        ------
        ConfigError
            If they are no experiment.
        """
        changed = parse_experiment(apply_overrides(to_values(self.experiment), settings))
        return replace(self, experiment=changed, population=population or self.population)

    @cached_property
    def resolved(self) -> Experiment:
        """The experiment as it would run.

        Raises
        ------
        ConfigError
            If it cannot.
        """
        # Too large a delta is warned of and settled here; it does not make a plan hopeless.
        privacy = self.experiment.privacy.model_copy(update={"allow_large_delta": True})
        lenient = self.experiment.model_copy(update={"privacy": privacy})
        return prepare(lenient, population=self.population, dimension=self.dimension)

    @cached_property
    def margin(self) -> float:
        """How far it is from hopeless: at 1 and above it is not; 0 where it cannot run."""
        try:
            whole = planned_whole_run(self.resolved, self.population, self.dimension)
        except ConfigError:
            return 0.0
        return 0.0 if whole is None else whole.margin

    @cached_property
    def epsilon(self) -> float:
        """Epsilon against the observer that the noise is meant for.

        Raises
        ------
        ConfigError
            If it cannot run.
        """
        resolved = self.resolved
        run = planned_run(resolved, self.population, self.dimension)
        return planned_figures(resolved.privacy, run)[resolved.privacy.epsilon_for].value


def nearest_settings(plan: HopelessPlan) -> tuple[Nearest, ...]:
    """Return the nearest settings that are not hopeless, each found by planning it.

    Parameters
    ----------
    plan : HopelessPlan
        A hopeless one.

    Returns
    -------
    tuple of Nearest
        Of clients, rounds, epsilon and the unit of privacy, those that lead out within reach.
    """
    found = (more_clients, _more_rounds, _more_epsilon, _by_example)
    return tuple(near for find in found if (near := find(plan)) is not None)


def more_clients(plan: HopelessPlan) -> Nearest | None:
    """Return the fewest clients a round that are not hopeless; new ones where there are no more.

    Parameters
    ----------
    plan : HopelessPlan

    Returns
    -------
    Nearest or None
        None where clients cannot be had, or so many cost more privacy than protects.
    """
    if not plan.clients_word or plan.experiment.privacy.sums_gradients:
        return None
    found = (_of_clients(plan, in_proportion=either) for either in (False, True))
    return next((near for near in found if near is not None), None)


def clients_needed(plan: HopelessPlan) -> int | None:
    """Return the fewest clients a round, all of them, that are not hopeless at a given noise.

    Parameters
    ----------
    plan : HopelessPlan
        A hopeless one.

    Returns
    -------
    int or None
        None where the noise is not shared among clients.
    """

    def changed(clients: int) -> HopelessPlan:
        drawn = [] if plan.experiment.sampling.cohort is None else [f"sampling.cohort={clients}"]
        rounds = plan.experiment.rounds if plan.experiment.sampling.kind == "once" else 1
        return plan.with_settings(drawn, max(plan.population, clients * rounds))

    if plan.experiment.privacy.sums_gradients:
        return None
    before = plan.experiment.sampling.cohort or plan.population
    return _least(partial(_margin, changed), before, plan.margin, MOST_CLIENTS)


def _of_clients(plan: HopelessPlan, *, in_proportion: bool) -> Nearest | None:
    """Find the smallest cohort: of all clients first, or of as many more as keep its part."""
    sampling = plan.experiment.sampling
    before = sampling.cohort or plan.population
    rounds = plan.experiment.rounds if sampling.kind == "once" else 1

    def whole(clients: int) -> int:
        part = -(-plan.population * clients // before) if in_proportion else plan.population
        return max(part, clients * rounds)

    def settings(clients: int) -> tuple[str, ...]:
        drawn = () if sampling.cohort is None else (f"sampling.cohort={clients}",)
        return (*drawn, *_delta(plan, whole(clients)))

    def changed(clients: int) -> HopelessPlan:
        return plan.with_settings([*settings(clients)], whole(clients))

    least = _least(partial(_margin, changed), before, plan.margin, MOST_CLIENTS)
    if least is None:
        return None
    of = f"{least:,} clients a round" + ("" if whole(least) == least else f" of {whole(least):,}")
    near = _affordable(changed(least), settings(least), of)
    if near is None or whole(least) == plan.population:
        return near
    return replace(near, words=(*shlex.split(f"{plan.clients_word}{whole(least)}"), *near.words))


def _more_rounds(plan: HopelessPlan) -> Nearest | None:
    """Find the fewest rounds at the same noise; the epsilon grows with them."""
    if plan.experiment.privacy.epsilon is not None:
        return None  # noise that is found for all rounds together grows as they do

    def changed(rounds: int) -> HopelessPlan:
        return plan.with_settings([f"rounds={rounds}"])

    least = _least(partial(_margin, changed), plan.experiment.rounds, plan.margin, MOST_ROUNDS)
    if least is None:
        return None
    return _affordable(changed(least), (f"rounds={least}",), f"{least:,} rounds")


def _more_epsilon(plan: HopelessPlan) -> Nearest | None:
    """Find the smallest epsilon, in tenths, up to what protects at all."""

    def changed(tenths: int) -> HopelessPlan:
        return plan.with_settings([f"privacy.epsilon={tenths / 10:g}"])

    try:
        before = plan.experiment.privacy.epsilon or plan.epsilon
    except ConfigError:
        return None
    if not before < MEANINGFUL_EPSILON:
        return None
    most = round(MEANINGFUL_EPSILON * 10)
    least = _least(partial(_margin, changed), max(1, int(before * 10)), plan.margin, most)
    if least is None:
        return None
    observer = plan.experiment.privacy.epsilon_for
    says = f"epsilon_{observer} {least / 10:g} in place of {epsilon_text(before)}"
    return Nearest(tuple(shlex.split(f"{plan.epsilon_word}{least / 10:g}")), says)


def _by_example(plan: HopelessPlan) -> Nearest | None:
    """Return the same with each example as the unit, where it is known how many there are."""
    privacy, count = plan.experiment.privacy, plan.examples
    if privacy.unit == "example" or count is None or privacy.model == "local":
        return None
    clip, lot = privacy.clip or 1.0, max(1, count // LOTS_A_PASS)
    settings = [
        "privacy.unit=example",
        f"privacy.examples={count}",
        f"privacy.lot={lot}",
        *([] if privacy.clipping == "flat" else ["privacy.clipping=flat"]),
        # Twice what a client's part of the lot adds up to where all gradients point one way.
        f"encoding.range={max(1, math.ceil(2 * lot / plan.population)) * clip:g}",
        "sampling.kind=everyone",
        *([] if plan.experiment.sampling.cohort is None else ["sampling.cohort=unset"]),
        *_delta(plan, count),
    ]
    try:
        changed = plan.with_settings(settings)
        if changed.margin < 1:
            return None
        return _affordable(changed, tuple(settings), "protects each record, not each client whole")
    except ConfigError:
        return None


def _affordable(plan: HopelessPlan, settings: tuple[str, ...], says: str) -> Nearest | None:
    """Return a setting with the epsilon that it costs; None where that protects nobody."""
    value = plan.epsilon
    if not value <= MEANINGFUL_EPSILON:
        return None
    observer = plan.experiment.privacy.epsilon_for
    words = tuple(word for setting in settings for word in ("--set", setting))
    return Nearest(words, f"{says}: epsilon_{observer} {epsilon_text(value)}")


def _delta(plan: HopelessPlan, units: int) -> Iterator[str]:
    """Yield the largest power of ten below one over so many units, where delta is not below it."""
    if plan.experiment.privacy.delta * units >= 1:
        yield f"privacy.delta={10.0 ** (math.ceil(-math.log10(units)) - 1):g}"


def _margin(changed: Callable[[int], HopelessPlan], value: int) -> float:
    try:
        return changed(value).margin
    except ConfigError:
        return 0.0


def _least(margin: Callable[[int], float], hopeless: int, known: float, most: int) -> int | None:
    """Return the least whole number up to ``most`` whose margin is 1, of margins that grow.

    Margins are nearly powers of what is searched: interpolated, two or three plans are enough,
    each of which takes a tenth of a second or more.

    Parameters
    ----------
    margin : callable
        Of a number.
    hopeless : int
        A number below.
    known : float
        Its margin.
    most : int

    Returns
    -------
    int or None
    """
    low, below, high, above = hopeless, known, hopeless, known
    while above < 1:
        if high >= most:
            return None
        low, below = high, above
        high = min(most, max(low + 1, math.ceil(low / below) if below > 1 / most else 2 * low))
        above = margin(high)
    while high - low > 1:
        middle = min(max(_crossing(low, below, high, above), low + 1), high - 1)
        found = margin(middle)
        if found < 1:
            low, below = middle, found
        else:
            high, above = middle, found
    return high


def _crossing(low: int, below: float, high: int, above: float) -> int:
    """Return about where a power through two margins is 1."""
    if below <= 0 or low < 1 or above <= below:
        return (low + high) // 2
    part = math.log(1 / below) / math.log(above / below)
    return math.ceil(low * math.exp(part * math.log(high / low)))
