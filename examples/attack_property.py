"""A server asks of one client whether its images are mirrored, which no label tells.

It sees the client's own update, or the masked sum of ten. ``python attack_property.py``
"""

from zerosum.simulations.attacks import (
    Case,
    Cell,
    Defense,
    PropertyInference,
    PropertySetting,
    figure_text,
    play_all,
    rows_of,
)


def main() -> None:
    """Attack one client after another, plain and in a masked sum."""
    setting = PropertySetting(cohort=10, sums=100)
    protections = (Defense("plain"), Defense("masked", masking="double"))
    cells = [Cell(PropertyInference(), Case(setting, each)) for each in protections]
    for row in rows_of(cells, play_all(cells, seeds=[0], workers=1)):
        if row.seed == "pooled":
            print(f"{row.protection}, {row.setting}: {row.metric} {figure_text(row)}")


if __name__ == "__main__":
    main()
