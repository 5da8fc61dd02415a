"""Four clients of twenty know the server's rule, and try it before they send anything.

Poisoned data alone does not pass these rules. ``python attack_tailored.py``
"""

from zerosum.simulations.attacks import (
    IID_CLIENTS,
    BadNets,
    Case,
    Cell,
    Defense,
    TailoredBackdoor,
    play_all,
)

rules = [Defense(name, rule=name) for name in ("krum", "multi-krum", "median")]
cells = [
    Cell(attack, Case(IID_CLIENTS, rule))
    for attack in (BadNets(), TailoredBackdoor())
    for rule in rules
]

for outcome in play_all(cells, seeds=[0], workers=1):
    cell = cells[outcome.number]
    print(f"{cell.attack.name}, {cell.case.protection.name}, {cell.attack.adaptive}:")
    for name, units in outcome.units.items():
        without = outcome.baseline[name].values[0]
        print(f"  {name} {units.values[0]:.3f}, and {without:.3f} if nobody attacks")
