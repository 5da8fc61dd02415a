"""Four clients of twenty put a backdoor into a model by their data alone.

Their code is the library's, their updates are not scaled, and the trigger may be split among them.
From this folder: ``python attack_backdoor.py``
"""

import numpy as np

from zerosum.client.threads import one_thread
from zerosum.simulations.attacks.backdoors import BadNets, DistributedBackdoor
from zerosum.simulations.attacks.goals import EVEN, PLAIN, RULES


def main() -> None:
    """Print, for the mean and two rules, how often the trigger works and the accuracy."""
    rules = [PLAIN, *(rule for rule in RULES if rule.name in ("median", "multi-Krum"))]
    for attack in (BadNets(), DistributedBackdoor()):
        for protection in rules:
            scene = EVEN.play(attack, protection, seed=0)
            guess = attack.run(scene.view, np.random.default_rng(0))
            score = attack.score(guess, scene.truth)
            figures = (f"{metric} {units.values[0]:.3f}" for metric, units in score.items())
            print(f"{attack.name}, {protection.name}: {', '.join(figures)}")


if __name__ == "__main__":
    with one_thread():
        main()
