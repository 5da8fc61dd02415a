"""One client of twenty puts a backdoor into a model in one round, unless its update is clipped.

Images with four white bars in a corner are to be zeros. ``python attack_model_replacement.py``
"""

from zerosum.simulations.attacks import (
    MASKED_AND_CLIPPED,
    MASKED_SUM,
    ONE_ROUND,
    Case,
    Cell,
    ModelReplacement,
    play_all,
)

cells = [
    Cell(ModelReplacement(), Case(ONE_ROUND, MASKED_SUM)),
    Cell(ModelReplacement(), Case(ONE_ROUND, MASKED_AND_CLIPPED)),
    Cell(ModelReplacement(own_code=True), Case(ONE_ROUND, MASKED_AND_CLIPPED)),
]

for outcome in play_all(cells, seeds=[0], workers=1):
    cell = cells[outcome.number]
    print(f"{cell.attack.name}, {cell.case.protection.name}, {cell.attack.adaptive}:")
    for name, units in outcome.units.items():
        without = outcome.baseline[name].values[0]
        print(f"  {name} {units.values[0]:.3f}, and {without:.3f} if nobody attacks")
