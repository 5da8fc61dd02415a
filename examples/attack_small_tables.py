"""Which seven people are these? All ages that agree with a published mean and median.

From anywhere: ``python attack_small_tables.py``. It takes about ten seconds.
"""

from zerosum.simulations.attacks import Case, Cell, ConsistentRecords, Defense, TablesSetting, play


def main() -> None:
    """Publish more and more of the same tables, and list what agrees."""
    attack = ConsistentRecords()
    plain = Defense("plain")
    for figures in (("mean",), ("mean", "median"), ("mean", "median", "youngest", "oldest")):
        setting = TablesSetting(tables=10, figures=figures)
        outcome = play(0, Cell(attack, Case(setting, plain)), seed=0)
        listed = 10 ** outcome.units["consistent data sets"].values.mean()
        possible = 10 ** outcome.baseline["consistent data sets"].values.mean()
        pinned = outcome.units["ages pinned to 2 years"].hits.mean()
        print(
            f"{', '.join(figures)}: {listed:,.0f} data sets are left of {possible:.1e}; "
            f"{pinned:.0%} of the ages are known to two years"
        )


if __name__ == "__main__":
    main()
