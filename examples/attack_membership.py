"""An outsider with a trained model asks which records it was trained on.

A small loss says little; a loss compared with those of models that the attacker trained itself,
with and without the record, says more. ``python attack_membership.py``
"""

from zerosum.simulations.attacks import (
    Case,
    Cell,
    Lira,
    LossThreshold,
    TrainedSetting,
    epsilon_text,
    figure_text,
    noise_defense,
    play_all,
    rows_of,
)


def main() -> None:
    """Attack one target, plain and under local noise of one clip a coordinate."""
    setting = TrainedSetting(references=16)
    cells = [
        Cell(attack, Case(setting, protection))
        for protection in (noise_defense("none"), noise_defense("local", 1.0))
        for attack in (LossThreshold(), Lira(online=False), Lira())
    ]
    for row in rows_of(cells, play_all(cells, seeds=[0], workers=1)):
        if row.metric == "AUC" and row.seed == "pooled":
            where = f"{row.protection} (epsilon {epsilon_text(row)})"
            print(f"{where}, {row.adaptive}: AUC {figure_text(row)}")


if __name__ == "__main__":
    main()
