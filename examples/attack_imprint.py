"""A server sends a model that sorts images into bins, and reads them out of the masked sum.

A little noise ends that, and not a server that expects it, whose model has rows that few images
move. A model that is sent to one client alone is noticed: clients' requests differ.
"""

from zerosum.simulations.attacks import (
    Attack,
    Case,
    Cell,
    Defense,
    Imprint,
    RoundsSetting,
    Traps,
    figure_text,
    play,
    rows_of,
)

MASKED = Defense("masked", masking="double")
UNBOUND = Defense("masked, no request hash", masking="double", request_hash=False)
NOISED = Defense("masked + noise", masking="double", clip=0.1, noise="distributed", sigma=0.001)


def main() -> None:
    """Attack all clients, then one of them."""
    setting = RoundsSetting(clients=10, records=8)
    tried: list[tuple[Attack, Defense]] = [(Imprint(), MASKED)]
    tried += [(Imprint(), NOISED), (Traps(), NOISED)]
    tried += [(Imprint(target=0), UNBOUND), (Imprint(target=0), MASKED)]
    for attack, protection in tried:
        cell = Cell(attack, Case(setting, protection))
        row = rows_of([cell], [play(0, cell, seed=0)])[-1]
        print(f"{attack.adaptive}; {protection.name}\n    {row.metric}: {figure_text(row)}")


if __name__ == "__main__":
    main()
