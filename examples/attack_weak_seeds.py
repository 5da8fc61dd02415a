"""A mask whose seed is short is found by trying them all; how long longer seeds last follows.

Here 16 bits are searched in a fraction of a second; ``python attack_weak_seeds.py 22`` takes some
seconds. The library's seeds have 256 bits.
"""

import sys

from zerosum.simulations.attacks import Cell, SeedSearch, play

bits = int(sys.argv[1]) if sys.argv[1:] else 16

for attack in (SeedSearch("plaintext", bits), SeedSearch("commitment", bits)):
    print(f"an attacker who {attack.adaptive}")
    for case in attack.cases("quick"):
        outcome = play(0, Cell(attack, case), seed=0)
        recovered = outcome.units["update recovered"].hits.all()
        print(f"  {case.protection.name}: update {'recovered' if recovered else 'not recovered'}")
        print(f"    {outcome.note}")
