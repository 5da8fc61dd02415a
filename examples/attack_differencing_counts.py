"""A count, and the same count without one person: their difference is that person's bit.

From anywhere: ``python attack_differencing_counts.py``. It takes about ten seconds.
"""

from zerosum.simulations.attacks import (
    Case,
    Cell,
    CountsSetting,
    QueryDefense,
    Subtracting,
    play,
)


def main() -> None:
    """Ask masked counts with more and more noise, and then the same counts again and again."""
    once = CountsSetting(groups=5_000)
    masked = QueryDefense("masked", masking="double")
    noised = [
        QueryDefense(f"epsilon {each:g}", masking="double", noise="distributed", epsilon=each)
        for each in (4.0, 1.0, 0.1)
    ]
    again = CountsSetting(groups=5_000, times=8)
    for setting, protection in [(once, masked), *((once, one) for one in noised)]:
        said(setting, protection)
    for fresh, limit in ((True, None), (False, None), (True, 4.0)):
        name = "fresh" if fresh else "stored"
        said(
            again,
            QueryDefense(
                f"8 {name} answers, budget {limit}",
                masking="double",
                noise="distributed",
                epsilon=1.0,
                fresh=fresh,
                limit=limit,
            ),
        )


def said(setting: CountsSetting, protection: QueryDefense) -> None:
    """Play one case, and print how many bits are right."""
    outcome = play(0, Cell(Subtracting(), Case(setting, protection)), seed=0)
    right = outcome.units["bits right"].hits.mean()
    print(f"{protection.name}: {right:.1%} of the bits right (epsilon {outcome.epsilon:.3g})")
    print(f"    {outcome.note}")


if __name__ == "__main__":
    main()
