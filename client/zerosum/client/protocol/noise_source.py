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


class RoundingCoins:
    """Coins of clients' roundings, one client after another.

    A round has one key, and each client a stretch of the key's stream. To set a cipher up for each
    client would take a quarter of the time of rounding a small one's vector.

    Parameters
    ----------
    entropy : Entropy
        Keys.
    """

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._stream: tuple[tuple[int, int], Keystream] | None = None

    def of(self, round: int, attempt: int, client: int) -> Keystream:
        """Return a client's coins in a session; those of the client before end.

        Parameters
        ----------
        round, attempt : int
            Of the session.
        client : int
            In the roster.

        Returns
        -------
        Keystream
            At its beginning; of a reproducible entropy the same on every call.
        """
        session = (round, attempt)
        if self._stream is None or self._stream[0] != session:
            self._stream = session, self._entropy.keystream("rounding", *session)
        stream = self._stream[1]
        stream.seek(client)
        return stream
