"""Four clients of twenty do harm within the distances that honest updates have from each other.

Where clients' data are alike they have little room; here they are not. ``python attack_hidden.py``
"""

from zerosum.simulations.attacks import (
    DIRICHLET_CLIENTS,
    NO_DEFENSE,
    Case,
    Cell,
    Defense,
    LittleIsEnough,
    MinMax,
    play_all,
)

rules = [NO_DEFENSE, *(Defense(name, rule=name) for name in ("median", "krum", "bulyan"))]
cells = [
    Cell(attack, Case(DIRICHLET_CLIENTS, rule))
    for attack in (LittleIsEnough(), MinMax())
    for rule in rules
]

for outcome in play_all(cells, seeds=[0], workers=1):
    cell = cells[outcome.number]
    print(f"{cell.attack.name}, {cell.case.protection.name}, {cell.attack.adaptive}:")
    for name, units in outcome.units.items():
        without = outcome.baseline[name].values[0]
        print(f"  {name} {units.values[0]:.3f}, and {without:.3f} if nobody attacks")
