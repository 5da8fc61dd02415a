"""What malicious clients make of a rule that they know: it is tried before anything is sent.

They run the server's own function on their honest updates and on peers drawn around these, and look
for the scale at which what they send moves the outcome most. Where a rule leaves out what is far,
that is the largest scale at which it still takes it.

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

_HALVINGS = 5


@dataclass(frozen=True)
class Rehearsal:
    """A round as its malicious clients expect it.

    Attributes
    ----------
    rule : callable
        What the server makes of contributions, shape (n, d).
    known : ndarray
        float64, shape (k, d): the malicious clients' own honest updates.
    peers : ndarray
        float64, shape (n - k, d): what others may send.
    """

    rule: Rule
    known: np.ndarray
    peers: np.ndarray

    @classmethod
    def of(cls, view: PoisonView, rng: np.random.Generator) -> "Rehearsal":
        """Draw the peers: normal in each coordinate, with the mean and spread of known updates."""
        known = honest_updates(view)
        drawn = rng.normal(size=(view.clients - len(known), known.shape[1]))
        return cls(rule_of(view), known, known.mean(axis=0) + spread(known) * drawn)

    def furthest(self, way: np.ndarray) -> float:
        """Return the scale at which mean + scale * way, sent by all k, moves the outcome most.

        From the best of a ladder of scales, by bisection up to the next, as far as the outcome
        still follows.

        Parameters
        ----------
        way : ndarray
            Shape (d,), of norm 1: where the outcome is to move.
        """
        unit = float(pdist(self.known).max(initial=0.0)) or float(np.linalg.norm(self.known[0]))
        scales = unit * LADDER
        moved = [self._moved(scale, way) for scale in scales]
        best = int(np.argmax(moved))
        low, most, high = scales[best], moved[best], 2 * scales[best]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            found = self._moved(middle, way)
            if found >= most:
                low, most = middle, found
            else:
                high = middle
        return float(low)

    def _moved(self, scale: float, way: np.ndarray) -> float:
        """Return how far along the way the outcome lies."""
        sent = self.known.mean(axis=0) + scale * way
        return float(self.rule(np.concatenate([[sent] * len(self.known), self.peers])) @ way)


def rule_of(view: PoisonView) -> Rule:
    """Return the server's rule, as a server that was told what ``view.server`` says applies it.

    The root update of "fltrust" is not known: the mean of known updates stands for it. Where the
    rule is the mean, each client clips.

    Raises
    ------
    ValueError
        If the threat model does not know the rule.
    """
    spec, clip = view.server, view.protection.clip
    if spec is None:
        raise ValueError('the rule is not known: the threat model does not know "rule"')
    f = spec.rule_malicious or 0
    known: dict[str, Rule] = {
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
    return known[spec.rule]


def caution(view: PoisonView) -> float:
    """Return how much of the scale to go, as the rounds before tell: 1 in the first.

    A tenth more after each round whose model moved by just what was sent, a fifth less after each
    other. Only Krum, which picks one contribution, can be read so: 1 under every other rule.
    """
    found = 1.0
    if view.server is None or view.server.rule != "krum":
        return found
    for i, sent in enumerate(view.sent):
        moved = view.vectors[i + 1].astype(np.float64) - view.vectors[i]
        miss = np.linalg.norm(moved - view.server_lr * sent[0])
        found *= 1.1 if miss <= _TAKEN * np.linalg.norm(moved) else 0.8
    return found


_TAKEN = 0.01
"""Part of what the model moved by that rounding may take."""
