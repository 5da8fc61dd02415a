"""Noise randomness: the operating system's in deployment, derived from a seed in simulation."""

from typing import Protocol

from zerosum.secagg.randomness import Keystream, insecure_keystream, system_keystream


class Entropy(Protocol):
    """Source of noise, rounding and secret coins."""

    @property
    def reproducible(self) -> bool:
        """Return whether a second run draws the same values, and so releases the same figures."""
        ...

    def keystream(self, purpose: str, *indices: int) -> Keystream:
        """Return the keystream of one purpose, round and client."""
        ...


class SystemEntropy:
    """Entropy from the operating system, fresh on every call: for deployments."""

    reproducible = False

    def keystream(self, purpose: str, *indices: int) -> Keystream:
        """Return a new keystream; the arguments only name the use."""
        return system_keystream()


class SeededEntropy:
    """Entropy derived from the experiment's seed: for simulations that can be repeated.

    Whoever knows the seed can take the noise off again: for simulations, and for tests that
    compare a deployment with one.
    """

    reproducible = True

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def keystream(self, purpose: str, *indices: int) -> Keystream:
        """Return the keystream of this purpose and these indices, the same on every call."""
        return insecure_keystream(self._seed, purpose, *indices)
