"""Noise randomness: the operating system's in deployment, derived from a seed in simulation."""

from typing import Protocol

from zerosum.secagg.randomness import Keystream, insecure_keystream, system_keystream


class Entropy(Protocol):
    """Where noise, rounding and secret coins come from."""

    @property
    def reproducible(self) -> bool:
        """Whether a rerun draws the same values, and so is the same release."""
        ...

    def keystream(self, purpose: str, *indices: int) -> Keystream:
        """Return the keystream of one purpose, round and client."""
        ...


class SystemEntropy:
    """Fresh operating-system entropy on every call: what a deployment uses."""

    reproducible = False

    def keystream(self, purpose: str, *indices: int) -> Keystream:
        """Return a new keystream; the arguments only name the use."""
        return system_keystream()


class SeededEntropy:
    """Derived from the experiment's seed, so that a simulation can be repeated.

    Whoever knows the seed can take the noise off again: for simulations, and for tests that
    compare a deployment with one.
    """

    reproducible = True

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def keystream(self, purpose: str, *indices: int) -> Keystream:
        """Return the keystream of this purpose and these indices, the same on every call."""
        return insecure_keystream(self._seed, purpose, *indices)
