"""Masks of one scalar, and masks that come twice: two ways to lose what a mask is for.

``python attack_weak_masks.py``
"""

from zerosum.simulations.attacks import Cell, ReusedMasks, ScalarMasks, play

for attack in (ScalarMasks(), ReusedMasks()):
    (metric,) = attack.metrics
    print(f"{attack.name}: an attacker who {attack.adaptive}")
    for case in attack.cases("quick"):
        outcome = play(0, Cell(attack, case), seed=0)
        hits = outcome.units[metric.name].hits
        print(f"  {case.setting.name}: {metric.name}, {hits.sum()} of {len(hits)}")
