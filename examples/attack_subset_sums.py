"""Too many answers that are too exact: one private bit of each of 100 people, from 400 counts.

From anywhere: ``python attack_subset_sums.py``. It takes about ten seconds.
"""

from zerosum.simulations.attacks import AnswersSetting, Case, Cell, Defense, WithPrior, play


def main() -> None:
    """Ask the same questions under more and more noise, and guess the bits each time."""
    attack = WithPrior()
    setting = AnswersSetting(people=100, queries=400)
    exact = Defense("exact sums", masking="double", clip=setting.clip)
    noised = [setting.noised("distributed", level) for level in (0.25, 0.5, 1.0, 2.0)]
    for protection in (exact, *noised):
        outcome = play(0, Cell(attack, Case(setting, protection)), seed=0)
        right = outcome.units["bits right"].hits.mean()
        majority = outcome.baseline["bits right"].hits.mean()
        print(
            f"{protection.name}: {right:.0%} of the bits right, {majority:.0%} by guessing "
            f"(epsilon {outcome.epsilon:.3g})"
        )


if __name__ == "__main__":
    main()
