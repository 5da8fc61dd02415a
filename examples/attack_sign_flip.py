"""Four clients of twenty send the opposite of what they learnt, ten times over.

From this folder: ``python attack_sign_flip.py``
"""

import numpy as np

from zerosum.client.threads import one_thread
from zerosum.simulations.attacks.goals import CLIPPED, EVEN, MASKED, RULES
from zerosum.simulations.attacks.opposing import InnerProduct, SignFlip


def main() -> None:
    """Print the accuracy after ten rounds: under masks, with a clip, and by the median."""
    median = next(rule for rule in RULES if rule.name == "median")
    for attack in (SignFlip(), InnerProduct(epsilon=10.0)):
        for protection in (MASKED, CLIPPED, median):
            scene = EVEN.play(attack, protection, seed=0)
            rng = np.random.default_rng(0)
            found = attack.score(attack.run(scene.view, rng), scene.truth)
            without = attack.score(attack.baseline(scene.view, rng), scene.truth)
            ((metric, units),) = found.items()
            print(
                f"{attack.name}, {protection.name}: {metric} {units.values[0]:.3f}, "
                f"and {without[metric].values[0]:.3f} if nobody attacks"
            )


if __name__ == "__main__":
    with one_thread():
        main()
