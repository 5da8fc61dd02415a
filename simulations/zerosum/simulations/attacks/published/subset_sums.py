"""Reconstruct private bits from subset sums: too many, too accurate answers reveal every bit.

Dinur and Nissim (2003), theorem 3: with noise below sqrt(n) in each of enough random subset sums,
almost all bits follow. Three solvers:

- Least squares succeeds if the noise is small on the whole.
- The least L1 error (Dwork, McSherry and Talwar 2007, section 3) tolerates some answers far off.
- A Gaussian posterior weighs the noise against how common the bit is.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import linprog
from scipy.special import logit

from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Metric,
    ThreatModel,
)
from zerosum.simulations.attacks.harness.metrics import Proportion
from zerosum.simulations.attacks.published.answers import AnswersSetting, AnswersView, Noise
from zerosum.simulations.attacks.published.asked_subsets import AskedSubsets, total_cost
from zerosum.simulations.attacks.published.asked_tables import MASKED, PLAIN, noised

EPSILONS = (1.0, 0.5, 0.25, 0.1)
"""Of each real query with geometric noise."""

_LEAST_NOISE = 1e-3
"""Noise assumed for an answer without noise: rounding in the encoding stays below it."""


@dataclass(frozen=True)
class SubsetSums(ABC):
    """Guess each person's bit from noisy counts of random groups.

    Attributes
    ----------
    people : int
    answers : int
        Answers per person.
    path : str
        A data file, or empty: bundled records.
    """

    people: int = 100
    answers: int = 4
    path: str = ""

    name: ClassVar[str] = "reconstruction from subset sums"
    threat: ClassVar[ThreatModel] = ThreatModel("analyst", knows=frozenset({"share", "sigma"}))
    requires: ClassVar[tuple[str, ...]] = ("answers",)
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("bits right"),)

    def cases(self, suite: str) -> Iterable[Case]:
        """Yield noise from none to 2 sqrt(n), whoever adds it; and real queries."""
        setting = AnswersSetting(self.people, self.people * self.answers, self.path)
        yield Case(setting, Defense("plain", clip=setting.clip), {"noise": 0.0})
        levels = (0.25, 0.5, 1.0, 2.0)
        full = suite == "full"
        kinds: tuple[Noise, ...] = ("distributed", "central", "local")
        for kind in kinds:
            for level in levels if full or kind == "distributed" else (1.0,):
                yield Case(setting, setting.noised(kind, level), {"noise": level})
        if full:
            masked = Defense("masked", masking="double", clip=setting.clip)
            for answers in (1, 2, 8):
                fewer = AnswersSetting(self.people, self.people * answers, self.path)
                yield Case(fewer, fewer.noised("distributed", 0.5))
            yield Case(setting, masked, {"noise": 0.0})
        # Half as many queries, each of which counts both a group and everybody else.
        asked = AskedSubsets(self.people, setting.queries // 2, self.path)
        yield from (Case(asked, one, {"noise": 0.0}) for one in (PLAIN, MASKED))
        for epsilon in EPSILONS:
            yield Case(asked, noised(epsilon), {"noise": asked.noise(epsilon)})

    def baseline(self, view: AnswersView, rng: np.random.Generator) -> Guess:
        """Guess for everybody what most people have."""
        return Guess({"bits": np.full(view.queries.shape[1], view.share >= 0.5)})

    def run(self, view: AnswersView, rng: np.random.Generator) -> Guess:
        """Solve for the bits."""
        bits = self.solve(view.queries.astype(np.float64), view.answers, view)
        return Guess({"bits": bits}, total_cost(view))

    @abstractmethod
    def solve(self, queries: np.ndarray, answers: np.ndarray, view: AnswersView) -> np.ndarray:
        """Solve for the bits.

        Parameters
        ----------
        queries : ndarray of float64
            Shape (m, n): 1 where a query counts a person, else 0.
        answers : ndarray of float64
            Shape (m,).
        view : AnswersView
            Noise and the bit's frequency.

        Returns
        -------
        ndarray of bool
            Shape (n,).

        Raises
        ------
        ArithmeticError
            If a solver finds no solution.
        """

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Proportion]:
        """Return which bits are right."""
        return {"bits right": Proportion(guess["bits"] == truth["bits"])}


@dataclass(frozen=True)
class LeastSquares(SubsetSums):
    """Round the solution with the least squared error."""

    adaptive: ClassVar[str] = "least squares, rounded"

    def solve(self, queries: np.ndarray, answers: np.ndarray, view: AnswersView) -> np.ndarray:
        """Round the least-squares solution."""
        bits: np.ndarray = np.linalg.lstsq(queries, answers, rcond=None)[0] > 0.5
        return bits


@dataclass(frozen=True)
class LinearProgram(SubsetSums):
    """Round the point of [0, 1]^n with the least absolute error."""

    adaptive: ClassVar[str] = "linear program, rounded"

    def solve(self, queries: np.ndarray, answers: np.ndarray, view: AnswersView) -> np.ndarray:
        """Minimise the sum of e with ``|Q x - a| <= e`` and 0 <= x <= 1."""
        m, n = queries.shape
        one = np.eye(m)
        solution = linprog(
            np.concatenate([np.zeros(n), np.ones(m)]),
            A_ub=np.block([[queries, -one], [-queries, -one]]),
            b_ub=np.concatenate([answers, -answers]),
            bounds=[(0, 1)] * n + [(0, None)] * m,
            method="highs",
        )
        if solution.x is None:
            raise ArithmeticError(f"the linear program was not solved: {solution.message}")
        bits: np.ndarray = solution.x[:n] > 0.5
        return bits


@dataclass(frozen=True)
class WithPrior(SubsetSums):
    """Choose the likelier value of each bit, given the answers and how common it is."""

    adaptive: ClassVar[str] = "knows the noise and how common the bit is"

    def solve(self, queries: np.ndarray, answers: np.ndarray, view: AnswersView) -> np.ndarray:
        """Weigh the prior against the answers, treating the other bits as Gaussian.

        The posterior of a Gaussian prior with the bits' mean and variance is computed jointly. For
        each bit that prior is divided out of it (Minka 2001, section 3.2), and the bit's own put
        in.
        """
        share, noise = view.share, max(view.noise_std, _LEAST_NOISE)
        variance = share * (1 - share)
        precision = queries.T @ queries / noise**2 + np.eye(queries.shape[1]) / variance
        covariance = np.linalg.inv(precision)
        mean = share + covariance @ queries.T @ (answers - queries.sum(axis=1) * share) / noise**2
        sharpness = 1 / np.diag(covariance) - 1 / variance
        at = (mean / np.diag(covariance) - share / variance) / sharpness
        likelier: np.ndarray = logit(share) + sharpness * (at - 0.5) > 0
        return likelier


ATTACKS = (LeastSquares(), LinearProgram(), WithPrior())
"""As the table lists them."""
