"""List the cells of imprint attacks: one client, sums of more and more, and a single target."""

from collections.abc import Iterable

from zerosum.simulations.attacks.harness.interface import Case, Defense
from zerosum.simulations.attacks.inversion.gradient_cases import MASKED, PLAIN, distributed, local
from zerosum.simulations.attacks.settings.rounds import RoundsSetting

UNBOUND = Defense("masked, no request hash", masking="double", request_hash=False)
UNCONFIRMED = Defense("masked, survivors not confirmed", masking="double", confirm=False)
CLIPPED = Defense("masked + clip", masking="double", clip=0.1)

RECORDS = 8
"""Images of each client."""


def cases_of(suite: str, targeted: bool, bins: int) -> Iterable[Case]:
    """Yield the cells of a suite.

    Parameters
    ----------
    suite : str
        "quick" or "full".
    targeted : bool
        Whether one client alone gets the model, in place of all.
    bins : int
        Where the cells lie on that axis.

    Yields
    ------
    Case
    """
    ten = RoundsSetting(clients=10, records=RECORDS)
    if targeted:
        for protection in (PLAIN, UNBOUND, UNCONFIRMED, MASKED):
            yield Case(ten, protection, _at(ten, protection, bins))
        return
    full = suite == "full"
    for count in (1, 2, 5, 10, 20, 50) if full else (10,):
        setting = RoundsSetting(clients=count, records=RECORDS)
        for protection in (PLAIN, MASKED) if count > 1 else (PLAIN,):
            yield Case(setting, protection, _at(setting, protection, bins))
    sigmas = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1) if full else (1e-3, 3e-3, 1e-2, 3e-2)
    for protection in (CLIPPED, *map(distributed, sigmas), local(1e-3, masking="double")):
        yield Case(ten, protection, _at(ten, protection, bins))


def _at(setting: RoundsSetting, protection: Defense, bins: int) -> dict[str, float]:
    return {"cohort": setting.clients, "bins": bins, "sigma": protection.sigma}
