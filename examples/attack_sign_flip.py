"""Four clients of twenty send the opposite of what they learnt, ten times over.

Masks, a clip that each client keeps, and the median in their way. ``python attack_sign_flip.py``
"""

from zerosum.simulations.attacks import (
    IID_CLIENTS,
    MASKED_AND_CLIPPED,
    MASKED_SUM,
    Case,
    Cell,
    Defense,
    InnerProduct,
    SignFlip,
    play_all,
)

protections = [MASKED_SUM, MASKED_AND_CLIPPED, Defense("median", rule="median")]
cells = [
    Cell(attack, Case(IID_CLIENTS, protection))
    for attack in (SignFlip(), InnerProduct(epsilon=10.0))
    for protection in protections
]

for outcome in play_all(cells, seeds=[0], workers=1):
    cell = cells[outcome.number]
    print(f"{cell.attack.name}, {cell.case.protection.name}, {cell.attack.adaptive}:")
    for name, units in outcome.units.items():
        without = outcome.baseline[name].values[0]
        print(f"  {name} {units.values[0]:.3f}, and {without:.3f} if nobody attacks")
