"""List the cells of gradient inversion: one client, then sums of more and more, and noise."""

from collections.abc import Iterable

from zerosum.client.spec import ModelSpec
from zerosum.simulations.attacks.harness.interface import Case, Defense, Masking
from zerosum.simulations.attacks.settings.rounds import RoundsSetting

CLIP = 0.1
"""Below the norm of an update of one image, so that the clip is active."""

PLAIN = Defense("plain")
CLIPPED = Defense("clip", clip=CLIP)
MASKED = Defense("masked", masking="double")


def local(sigma: float, masking: Masking = "none") -> Defense:
    """Return local noise, with or without masks.

    Parameters
    ----------
    sigma : float
        Standard deviation in a coordinate of each update, in clips.
    masking : str
        As of :class:`~.interface.Defense`.

    Returns
    -------
    Defense
    """
    name = f"{'' if masking == 'none' else 'masked + '}local noise {sigma:g} C"
    return Defense(name, masking=masking, clip=CLIP, noise="local", sigma=sigma)


def distributed(sigma: float) -> Defense:
    """Return masks and distributed noise, whose sigma, in clips, is of the sum."""
    name = f"masked + distributed noise {sigma:g} C"
    return Defense(name, masking="double", clip=CLIP, noise="distributed", sigma=sigma)


def cases_of(suite: str) -> Iterable[Case]:
    """Yield the cells of a suite."""
    full = suite == "full"
    yield from _one_client(1, (1e-4, 1e-3, 1e-2, 1e-1, 1.0) if full else (1e-3, 1e-2, 1e-1, 1.0))
    yield from _one_client(5, (1e-3, 1e-2) if full else ())
    for count in (2, 5, 10, 20, 50) if full else (2, 10, 50):
        setting = RoundsSetting(clients=count)
        yield Case(setting, MASKED, {"cohort": count, "sigma": 0.0})
        for sigma in (1e-4, 1e-3, 1e-2, 1e-1) if full else (1e-3, 1e-2):
            if full or count == 10:
                yield Case(setting, distributed(sigma), {"cohort": count, "sigma": sigma})
    if full:
        for sigma in (1e-4, 1e-3):
            ten, both = RoundsSetting(clients=10), local(sigma, masking="double")
            yield Case(ten, both, {"cohort": 10, "sigma": sigma})
        for count, protection in ((1, PLAIN), (1, local(1e-3)), (10, MASKED)):
            digits = RoundsSetting(clients=max(2, count), task="digits")
            yield Case(digits, protection, {"cohort": count, "sigma": protection.sigma})


def _one_client(steps: int, sigmas: Iterable[float]) -> Iterable[Case]:
    setting = RoundsSetting(clients=2, steps=steps)
    yield Case(setting, PLAIN, {"cohort": 1, "sigma": 0.0})
    yield Case(setting, CLIPPED, {"cohort": 1, "sigma": 0.0})
    for sigma in sigmas:
        yield Case(setting, local(sigma), {"cohort": 1, "sigma": sigma})


def naive_cases(suite: str) -> Iterable[Case]:
    """Yield cells that show the loss of an attacker that models no part of the protection."""
    for case in cases_of(suite):
        noiseless = not case.protection.sigma
        if suite == "full" or (noiseless and case.at["cohort"] in (1, 50)):
            yield case


def convolved(suite: str) -> Iterable[Case]:
    """Yield cells of a convolutional model, whose first layer does not reveal its input."""
    setting = RoundsSetting(clients=2, model=ModelSpec(name="cnn"))
    full = suite == "full"
    for protection in (PLAIN, CLIPPED, *map(local, (1e-3, 1e-2, 1e-1) if full else (1e-3,))):
        if full or protection is not CLIPPED:
            yield Case(setting, protection, {"cohort": 1, "sigma": protection.sigma})
