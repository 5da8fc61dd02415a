"""Four clients of twenty do harm within the distances that honest updates have from each other.

Where clients' data are alike they have little room; here they are not. From this folder:
``python attack_hidden.py``
"""

import numpy as np

from zerosum.client.threads import one_thread
from zerosum.simulations.attacks.goals import PLAIN, RULES, UNEVEN
from zerosum.simulations.attacks.hiding import LittleIsEnough, MinMax


def main() -> None:
    """Print the accuracy after ten rounds of a mean and of rules that look at distances."""
    rules = [rule for rule in RULES if rule.name in ("median", "Krum", "Bulyan")]
    for attack in (LittleIsEnough(), MinMax()):
        for protection in (PLAIN, *rules):
            scene = UNEVEN.play(attack, protection, seed=0)
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
