"""Adapt a poisoned update to a known aggregation rule by rehearsing the rule first.

The malicious clients run the server's own function on their honest updates and on imagined peers.
They choose the scale at which their update moves the outcome most. A rule that discards outliers
sets that scale: the largest at which the update is still kept.

Sources: Fang, Cao, Jia, Gong, "Local model poisoning attacks to Byzantine-robust federated
learning" (2020), section 3: the directed deviation, with partial knowledge; Shejwalkar, Houmansadr,
"Manipulating the Byzantine" (2021), section IV, attacks that know the rule.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.spatial.distance import pdist

from zerosum.server.training import robust_rules
from zerosum.simulations.attacks.poisoning.directions import spread
from zerosum.simulations.attacks.poisoning.goals import honest_updates
from zerosum.simulations.attacks.poisoning.malicious import PoisonView

Rule = Callable[[np.ndarray], np.ndarray]

LADDER = 2.0 ** np.arange(-4, 6)
"""Scales that are tried first, in largest distances between known updates."""

# A factor of two between rungs, halved five times, leaves the scale uncertain by 1/32 of a rung:
# far less than the imagined peers differ from the real ones.
_HALVINGS = 5


@dataclass(frozen=True)
class Rehearsal:
    """Simulate one round as its malicious clients expect it.

    Attributes
    ----------
    rule : callable
        The server's rule: from contributions, shape (n, d), to an aggregate, shape (d,).
    known : ndarray
        float64, shape (k, d): the malicious clients' own honest updates.
    peers : ndarray
        float64, shape (n - k, d): imagined updates of honest clients.
    """

    rule: Rule
    known: np.ndarray
    peers: np.ndarray

    @classmethod
    def of(cls, view: PoisonView, rng: np.random.Generator) -> "Rehearsal":
        """Draw the peers from the known updates.

        They are normal in each coordinate, with the mean and the spread of the known updates: the
        partial-knowledge attacker of Fang et al. (2020) has nothing better to estimate them by.

        Parameters
        ----------
        view : PoisonView
            During the run: it holds the honest updates.
        rng : numpy.random.Generator
            Draws the peers.

        Returns
        -------
        Rehearsal
        """
        known = honest_updates(view)
        noise = rng.normal(size=(view.clients - len(known), known.shape[1]))
        return cls(rule_of(view), known, known.mean(axis=0) + spread(known) * noise)

    def furthest(self, direction: np.ndarray) -> float:
        """Find the scale at which mean + scale * direction, sent by all k, moves the outcome most.

        The search starts at the best of a ladder of scales and bisects up to the next one, as far
        as the outcome still follows. The outcome is not unimodal in the scale: a rule that discards
        outliers drops the update at once. Hence the ladder first, and bisection between two rungs.

        Parameters
        ----------
        direction : ndarray
            Shape (d,), of norm 1: where the outcome is to move.

        Returns
        -------
        float
            In the units of an update.
        """
        unit = float(pdist(self.known).max(initial=0.0)) or float(np.linalg.norm(self.known[0]))
        scales = unit * LADDER
        moved = [self._moved(scale, direction) for scale in scales]
        best = int(np.argmax(moved))
        low, most, high = scales[best], moved[best], 2 * scales[best]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            distance = self._moved(middle, direction)
            if distance >= most:
                low, most = middle, distance
            else:
                high = middle
        return float(low)

    def _moved(self, scale: float, direction: np.ndarray) -> float:
        """Return how far along the direction the outcome lies."""
        poisoned = self.known.mean(axis=0) + scale * direction
        contributions = np.concatenate([[poisoned] * len(self.known), self.peers])
        return float(self.rule(contributions) @ direction)


def rule_of(view: PoisonView) -> Rule:
    """Return the aggregation rule of ``view.server``, as the malicious clients can run it.

    They do not know the root update of "fltrust": the mean of the known updates stands for it.
    Under the rule "mean" each client clips its own update, so the clip is part of the rule.

    Parameters
    ----------
    view : PoisonView

    Returns
    -------
    callable
        From contributions, shape (n, d), to an aggregate, shape (d,).

    Raises
    ------
    ValueError
        If the threat model does not know the rule.
    """
    spec, clip = view.server, view.protection.clip
    if spec is None:
        raise ValueError(
            "the view holds no aggregation rule: the attack's threat model does not know it; "
            'add "rule" to what it knows'
        )
    f = spec.rule_malicious or 0
    rules: dict[str, Rule] = {
        "mean": robust_rules.mean if clip is None else partial(robust_rules.norm_bound, bound=clip),
        "median": robust_rules.median,
        "trimmed-mean": partial(robust_rules.trimmed_mean, malicious=f),
        "krum": partial(robust_rules.krum, malicious=f),
        "multi-krum": partial(robust_rules.multi_krum, malicious=f, selected=spec.rule_selected),
        "bulyan": partial(robust_rules.bulyan, malicious=f),
        "geometric-median": robust_rules.geometric_median,
        "fltrust": partial(robust_rules.fltrust, reference=honest_updates(view).mean(axis=0)),
        "norm-bound": partial(robust_rules.norm_bound, bound=spec.rule_bound or 0.0),
    }
    return rules[spec.rule]


def caution(view: PoisonView) -> float:
    """Return the part of the rehearsed scale to use, judged by the rounds before; 1 in the first.

    It grows by a tenth after each round in which the model moved by exactly the poisoned update,
    and shrinks by a fifth after each other round. Only Krum, which selects one contribution, shows
    whether it was selected: the part is 1 under every other rule.

    Parameters
    ----------
    view : PoisonView

    Returns
    -------
    float
    """
    part = 1.0
    if view.server is None or view.server.rule != "krum":
        return part
    for i, sent in enumerate(view.sent):
        moved = view.vectors[i + 1].astype(np.float64) - view.vectors[i]
        miss = np.linalg.norm(moved - view.server_lr * sent[0])
        part *= 1.1 if miss <= _ROUNDING * np.linalg.norm(moved) else 0.8
    return part


_ROUNDING = 0.01
"""Largest miss that rounding explains, relative to the model's movement.

Float32 and the encoding change an update by far less. A round in which Krum selected another
client's update misses by about the distance between two updates, which is of the order of 1.
"""
