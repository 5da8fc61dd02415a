"""Four clients of twenty put a backdoor into a model by their data alone.

Their code is the library's, no update is scaled, and the trigger may be split among them.
``python attack_backdoor.py``
"""

from zerosum.simulations.attacks import (
    IID_CLIENTS,
    NO_DEFENSE,
    BadNets,
    Case,
    Cell,
    Defense,
    DistributedBackdoor,
    play_all,
)

rules = [NO_DEFENSE, Defense("median", rule="median"), Defense("multi-Krum", rule="multi-krum")]
cells = [
    Cell(attack, Case(IID_CLIENTS, rule))
    for attack in (BadNets(), DistributedBackdoor())
    for rule in rules
]

for outcome in play_all(cells, seeds=[0], workers=1):
    cell = cells[outcome.number]
    print(f"{cell.attack.name}, {cell.case.protection.name}, {cell.attack.adaptive}:")
    for name, units in outcome.units.items():
        without = outcome.baseline[name].values[0]
        print(f"  {name} {units.values[0]:.3f}, and {without:.3f} if nobody attacks")
