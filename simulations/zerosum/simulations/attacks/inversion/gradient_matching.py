"""Match gradients: search for images whose recomputed update equals the observed one.

Zhu, Liu, Han, "Deep leakage from gradients" (2019), Algorithm 1, by L-BFGS; labels as Zhao, Mopuri,
Bilen, "iDLG" (2020), section 3. Or the cosine with total variation of Geiping et al., "Inverting
gradients" (2020), equation 4, by Adam on the gradient's signs, which noise disturbs less. For a
masked sum all clients' images are searched together.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge

from zerosum.simulations.attacks.harness.interface import Case, Guess
from zerosum.simulations.attacks.inversion.descent import by_curvature, by_signs, variation
from zerosum.simulations.attacks.inversion.gradient_cases import cases_of, convolved, naive_cases
from zerosum.simulations.attacks.inversion.local_updates import Updates, labels_of, updates_of
from zerosum.simulations.attacks.inversion.reconstruction import (
    Observed,
    Reconstruction,
    guessed,
    observed,
    typical,
)
from zerosum.simulations.attacks.settings.rounds import RoundsView

SOLVED = 1e-7
"""Unexplained share of the update's squared norm at which images count as recovered."""


@dataclass(frozen=True)
class GradientMatching(Reconstruction):
    """Search for images whose updates match.

    Attributes
    ----------
    objective : str
        "squares" (L-BFGS), or "cosine" with total variation (Adam).
    aware : bool
        Whether to unroll local steps, model the clip and split sums. Otherwise every observed
        vector is taken for one client's single step.
    weight : float
        Weight of the total variation in the cosine's objective.
    iterations, starts : int
        Of each optimisation; optimisations. The first starts from the mean image, the others,
        until one succeeds, from other images: only where the attacker is aware, the objective is
        "squares" and one image is searched.
    """

    objective: Literal["squares", "cosine"] = "squares"
    aware: bool = True
    weight: Annotated[float, Ge(0)] = 0.01
    iterations: int = 100
    starts: int = 3

    @property
    def adaptive(self) -> str:
        """Return the objective, and how local steps, clip and sum are modelled."""
        how = "DLG" if self.objective == "squares" else "cosine + TV"
        what = "unrolls the steps, clips, splits the sum" if self.aware else "one step of one"
        return f"{how}: {what}"

    def cases(self, suite: str) -> Iterable[Case]:
        """Return one client's updates and sums of several."""
        cases = (cases_of if self.aware else naive_cases)(suite)
        return [*cases, *(convolved(suite) if suite == "full" else ())]

    def run(self, view: RoundsView, rng: np.random.Generator) -> Guess:
        """Search for the images of each observed update."""
        images = np.concatenate([self._best(view, seen, rng) for seen in observed(view)])
        return guessed(view, np.resize(images, (view.clients, *view.input_shape)))

    def _best(self, view: RoundsView, seen: Observed, rng: np.random.Generator) -> np.ndarray:
        """Return the images of the start that leaves least of the observed update unexplained."""
        count = seen.clients if self.aware else 1
        steps = (view.training.steps or 1) if self.aware else 1
        clip = view.protection.clip if self.aware and self.objective == "squares" else None
        updates = updates_of(view, steps, clip)
        labels = torch.tensor(labels_of(view, seen.vector, count, steps))
        target = torch.tensor(seen.vector)
        noise = seen.noise_std**2 / max(float(target @ target), 1e-30)
        best, least, explained = np.zeros(0), np.inf, 0.0
        again = self.aware and count == 1 and self.objective == "squares"
        for start in range(self.starts if again else 1):
            first = self._first(view, count, start, rng)
            images, left, angle = self._descended(updates, target, first, labels, view.classes)
            if left < least:
                best, least, explained = images, left, angle
            if least <= SOLVED + 1.1 * noise * len(target):
                break
        # Images that explain no more than chance does (two units of noise a
        # pixel, as Akaike charges) are worse guesses than the blind one.
        blind = typical(view, count, rng).reshape(count, *view.input_shape)
        chosen = torch.nn.functional.one_hot(labels, view.classes).double()
        without = _explained(updates(torch.tensor(blind), chosen).sum(0), target)
        return best if explained - without > 2 * noise * blind.size else blind

    def _first(
        self, view: RoundsView, count: int, start: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Return the images that a start begins at, shape (count, ...).

        The first start is at the mean image, the others at centroids. Several images of one sum
        start apart from each other: equal ones would have equal gradients, and never part.
        """
        images = rng.permutation(typical(view, 1 if start == 0 else 10, rng))[:1]
        scatter = 0.1 * rng.normal(size=(count, images.shape[1])) * (count > 1)
        return (images + scatter).reshape(count, *view.input_shape)

    def _descended(
        self,
        updates: Updates,
        target: torch.Tensor,
        first: np.ndarray,
        labels: torch.Tensor,
        classes: int,
    ) -> tuple[np.ndarray, float, float]:
        """Return images, the objective that they leave, and the share that they explain."""
        images = torch.tensor(first, requires_grad=True)
        chosen = torch.nn.functional.one_hot(labels, classes).double()
        logits = (3 * chosen).requires_grad_(len(first) > 1)

        def total() -> torch.Tensor:
            return updates(images, logits.softmax(1) if len(first) > 1 else chosen).sum(0)

        def misfit() -> torch.Tensor:
            if self.objective == "squares":
                return ((total() - target) ** 2).sum() / (target**2).sum()
            return 1 - torch.cosine_similarity(total(), target, dim=0)

        free = [logits] if len(first) > 1 else []
        if self.objective == "squares":
            by_curvature([images, *free], misfit, self.iterations)
        else:
            by_signs(
                images, free, lambda: misfit() + self.weight * variation(images), self.iterations
            )
        with torch.no_grad():
            return images.detach().numpy(), float(misfit()), _explained(total(), target)


def _explained(total: torch.Tensor, target: torch.Tensor) -> float:
    """Return the share of a target's squared norm that a sum explains at its best scale."""
    return float(torch.cosine_similarity(total, target, dim=0).clamp(min=0.0)) ** 2


ATTACKS = (
    GradientMatching(),
    GradientMatching(objective="cosine"),
    GradientMatching(aware=False),
)
"""As the table lists them: the strongest of them, and of the first layer's, in each cell."""
