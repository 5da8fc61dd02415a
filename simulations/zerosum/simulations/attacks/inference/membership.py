"""Infer membership: rank records by how likely the model was trained on them.

Three attackers of rising strength. Yeom et al. 2018, section 3.2: a small loss says member. Carlini
et al. 2022 ("LiRA"): a record's loss is compared with its losses under reference models that were
trained without it (offline, section VI-C) and, online, with it (Algorithm 1).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Metric,
    ThreatModel,
)
from zerosum.simulations.attacks.harness.metrics import Ranking, Units
from zerosum.simulations.attacks.inference.trained import TrainedSetting, TrainedView, noise_defense

AREA = Metric("AUC")
AT_ONE_PERCENT = Metric("TPR at 1 % FPR")


def confidences(model: nn.Module, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return log(p / (1 - p)) of each record's own class.

    Carlini et al. 2022, section VI-B: so scaled, confidences of one record under many models are
    about Gaussian.

    Parameters
    ----------
    model : torch.nn.Module
        Scored, and left, in evaluation mode.
    inputs : ndarray of float32
        Shape (n, ...).
    labels : ndarray of int64
        Shape (n,).

    Returns
    -------
    ndarray of float64
        Shape (n,).
    """
    # Matrix products round by a row's place in the batch. An order that depends on the records
    # alone makes a record's score the same bits wherever it stands.
    order = sorted(range(len(labels)), key=lambda i: (inputs[i].tobytes(), int(labels[i])))
    model.eval()
    with torch.no_grad():
        logits = model(torch.tensor(inputs[order])).double()
    own = torch.tensor(labels[order]).unsqueeze(1)
    others = logits.scatter(1, own, -math.inf).logsumexp(1)
    scores = np.empty(len(labels))
    scores[order] = (logits.gather(1, own).squeeze(1) - others).numpy()
    return scores


def scores_of(
    view: TrainedView, vector: np.ndarray, inputs: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Return how well a model of the view's kind fits each record: confidence, or less its loss.

    Parameters
    ----------
    view : TrainedView
    vector : ndarray of float32
        Shape (d,): the model's parameters.
    inputs : ndarray
        Shape (n, ...).
    labels : ndarray
        Shape (n, ...).

    Returns
    -------
    ndarray of float64
        Shape (n,).
    """
    model = view.loaded(vector)
    if view.own is None or view.own.cross_entropy:
        return confidences(model, inputs, labels)
    with torch.no_grad():
        losses = view.own.losses(model(torch.tensor(inputs)), torch.tensor(labels))
    fits: np.ndarray = -losses.double().numpy()
    return fits


@dataclass(frozen=True)
class LossThreshold:
    """Rank candidates by their loss: one threshold for all records."""

    name: ClassVar[str] = "membership inference"
    adaptive: ClassVar[str] = "loss threshold"
    threat: ClassVar[ThreatModel] = ThreatModel("outsider", knows=frozenset({"candidates"}))
    requires: ClassVar[tuple[str, ...]] = ("candidate_inputs", "candidate_labels")
    metrics: ClassVar[tuple[Metric, ...]] = (AREA, AT_ONE_PERCENT)

    def cases(self, suite: str) -> Iterable[Case]:
        """Yield an overfit target, plain and under noise."""
        full = suite == "full"
        sigmas = (0.03, 0.1, 0.3, 1.0, 3.0) if full else (0.1, 1.0)
        settings = [TrainedSetting(references=128 if full else 24)]
        if full:
            settings.append(TrainedSetting(task="digits", pool=1))
        for setting in settings:
            yield Case(setting, noise_defense("none"), {"sigma": 0.0})
            yield Case(setting, Defense("masked", masking="double"), {"sigma": 0.0})
            for sigma in sigmas:
                yield Case(setting, noise_defense("local", sigma), {"sigma": sigma})
            for sigma in sigmas if full else (1.0,):
                yield Case(setting, noise_defense("distributed", sigma), {"sigma": sigma})

    def baseline(self, view: TrainedView, rng: np.random.Generator) -> Guess:
        """Give every candidate the same score, or the one that it has without the target.

        Where members were not drawn at random, records that are easier for any model may be those
        of members. Then the baseline is what models tell that were trained without the record.
        """
        if view.blind_scores is not None and not view.lacks(("candidate_labels",)):
            return Guess({"scores": self._blind(view.blind_scores)})
        return Guess({"scores": np.zeros(len(_candidates(view)[1]))})

    def _blind(self, scores: np.ndarray) -> np.ndarray:
        return scores

    def run(self, view: TrainedView, rng: np.random.Generator) -> Guess:
        """Score each candidate by its confidence, which falls as its loss rises."""
        return Guess({"scores": scores_of(view, view.vector, *_candidates(view))})

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Units]:
        """Return how well the scores rank members above others."""
        scores, members = guess["scores"], truth["members"]
        return {
            AREA.name: Ranking(scores, members),
            AT_ONE_PERCENT.name: Ranking(scores, members, at=0.01),
        }


@dataclass(frozen=True)
class Lira(LossThreshold):
    """Rank candidates by the likelihood ratio of their confidence under reference models.

    Attributes
    ----------
    online : bool
        Whether to use reference models trained with a record too. Offline, the candidates need not
        be known before the reference models are trained.
    """

    online: bool = True

    requires: ClassVar[tuple[str, ...]] = (
        *LossThreshold.requires,
        "references",
        "reference_holds",
    )

    @property
    def adaptive(self) -> str:  # type: ignore[override]
        """Reference models are trained under the target's protection."""
        return "online LiRA" if self.online else "offline LiRA"

    def _blind(self, scores: np.ndarray) -> np.ndarray:
        """Ratios are of each record with itself: without the target they tell nothing."""
        return np.zeros_like(scores)

    def run(self, view: TrainedView, rng: np.random.Generator) -> Guess:
        """Return the log-likelihood ratio of member to other or, offline, the other's z-score."""
        inputs, labels = _candidates(view)
        if view.references is None or view.reference_holds is None:
            raise ValueError("the view holds no reference models: require them of the setting")
        target = scores_of(view, view.vector, inputs, labels)
        reference = np.stack([scores_of(view, each, inputs, labels) for each in view.references])
        mean_out, std_out = _gaussians(reference, ~view.reference_holds)
        std_in = std_out
        if self.online:
            mean_in, std_in = _gaussians(reference, view.reference_holds)
        if not (std_out and std_in):
            # Models that are all alike, as untrained ones of zeros, set no record apart.
            return Guess({"scores": self._blind(target)}, _cost(view))
        scores = (target - mean_out) / std_out
        if self.online:
            scores = (scores**2 - ((target - mean_in) / std_in) ** 2) / 2
            scores += math.log(std_out / std_in)
        return Guess({"scores": scores}, _cost(view))


def _cost(view: TrainedView) -> str:
    seconds = f"{view.reference_seconds:.0f} CPU s, which are not in the attack's own"
    return f"LiRA: a seed's reference models were trained in {seconds}"


def _gaussians(scores: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, float]:
    """Return each record's mean over the chosen models, and one standard deviation for all.

    One for all, since each record has few models (Carlini et al. 2022, section VI-C). The sum is
    exact, by ``fsum``, so that it does not depend on the records' order.
    """
    count = chosen.sum(axis=0)
    mean = np.where(chosen, scores, 0).sum(axis=0) / count
    squares = np.where(chosen, (scores - mean) ** 2, 0).sum(axis=0) / (count - 1)
    return mean, math.sqrt(math.fsum(squares) / len(squares))


def _candidates(view: TrainedView) -> tuple[np.ndarray, np.ndarray]:
    if view.candidate_inputs is None or view.candidate_labels is None:
        raise ValueError("the view holds no candidates: add them to what the threat knows")
    return view.candidate_inputs, view.candidate_labels


ATTACKS = (LossThreshold(), Lira(online=False), Lira())
"""As the table lists them."""
