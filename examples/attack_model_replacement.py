"""One client of twenty puts a backdoor into a model: with nothing in its way, and with a clip.

Images with four white bars in a corner are to be zeros. From this folder:
``python attack_model_replacement.py``
"""

import numpy as np

from zerosum.client.threads import one_thread
from zerosum.simulations.attacks.goals import CLIPPED, MASKED
from zerosum.simulations.attacks.replacement import ONCE, ModelReplacement


def main() -> None:
    """Print how many images with the trigger are taken for zeros, and the accuracy on others."""
    attacks = {
        "masked": (ModelReplacement(), MASKED),
        "masked, and each client clips": (ModelReplacement(), CLIPPED),
        "the same, but its code is its own": (ModelReplacement(own_code=True), CLIPPED),
    }
    for name, (attack, protection) in attacks.items():
        scene = ONCE.play(attack, protection, seed=0)
        rng = np.random.default_rng(0)
        for who, guess in (
            ("nobody attacks", attack.baseline(scene.view, rng)),
            ("one attacks", attack.run(scene.view, rng)),
        ):
            score = attack.score(guess, scene.truth)
            figures = (f"{metric} {units.values[0]:.3f}" for metric, units in score.items())
            print(f"{name}, {who}: {', '.join(figures)}")


if __name__ == "__main__":
    with one_thread():
        main()
