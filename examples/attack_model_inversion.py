"""An outsider with a trained model draws what each of its classes looks like: from grey, or from
the mean of all digits.

``python attack_model_inversion.py``
"""

import numpy as np

from zerosum.simulations.attacks import ModelInversion, TrainedSetting, noise_defense

SHADES = np.array(list(" .:-=+*#%@"))


def main() -> None:
    """Print the image of a zero, and how close all ten come to their classes' means."""
    rng = np.random.default_rng(0)
    for protection in (noise_defense("none"), noise_defense("local", 1.0)):
        for attack in (ModelInversion(), ModelInversion(mean_known=True)):
            scene = TrainedSetting().play(attack, protection, seed=0)
            guess, blind = attack.run(scene.view, rng), attack.baseline(scene.view, rng)
            for row in guess["images"][0, 0]:
                print("".join(np.repeat(SHADES[np.rint(9 * row).astype(int)], 2)))
            print(f"{protection.name}, {attack.adaptive}:")
            start = attack.score(blind, scene.truth)
            for name, units in attack.score(guess, scene.truth).items():
                found, before = (each.figure().value for each in (units, start[name]))
                print(f"  {name}: {found:.2f}, of the image it starts from {before:.2f}")


if __name__ == "__main__":
    main()
