"""A server lies about who dropped out: single masks fall, double masks fall to enough colluders.

Nine clients, six shares recover a secret. Ten sessions a line, among real parties:
``python attack_dropout_lies.py``
"""

from zerosum.simulations.attacks import (
    POOLED,
    Cell,
    LyingAboutDropouts,
    figure_text,
    play_all,
    rows_of,
)

attacks = [LyingAboutDropouts("dropped"), LyingAboutDropouts("both"), LyingAboutDropouts("split")]
cells = [Cell(attack, case) for attack in attacks for case in attack.cases("quick")]

for row in rows_of(cells, play_all(cells, seeds=[0], workers=1)):
    if row.seed == POOLED:
        refused = f" ({row.note})" if row.note else ""
        print(f"{row.adaptive}: {row.setting}, {row.protection}")
        print(f"    updates recovered exactly: {figure_text(row)}{refused}")
