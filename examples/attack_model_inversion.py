"""An outsider with a trained model draws what each of its classes looks like.

``python attack_model_inversion.py``
"""

import numpy as np

from zerosum.simulations.attacks.inference.model_inversion import ModelInversion
from zerosum.simulations.attacks.inference.trained import TrainedSetting, protected

SHADES = np.array(list(" .:-=+*#%@"))


def main() -> None:
    """Print the image of a zero, and how close all ten come to their classes' means."""
    attack, rng = ModelInversion(), np.random.default_rng(0)
    for protection in (protected("none"), protected("local", 1.0)):
        scene = TrainedSetting().play(attack, protection, seed=0)
        guess = attack.run(scene.view, rng)
        (units,) = attack.score(guess, scene.truth).values()
        (others,) = attack.score(attack.baseline(scene.view, rng), scene.truth).values()
        for row in guess["images"][0, 0, 0]:
            print("".join(np.repeat(SHADES[np.rint(9 * row).astype(int)], 2)))
        own, other = (each.figure(rng).value for each in (units, others))
        print(
            f"{protection.name}: correlation {own:.2f} with the own class, {other:.2f} with others"
        )


if __name__ == "__main__":
    main()
