"""The envelope around an update: clip, encode, add noise; and its inverse at the server.

Both sides build the same :class:`Protection` from the agreed parameters, so nothing about noise,
scale or ring is decided twice.
"""

import json
import logging
import math
from dataclasses import asdict, dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zerosum.client.clipping import NotFiniteError, clip_to_norm
from zerosum.client.mechanisms import BinnedGaussian, DistributedSkellam, Mechanism
from zerosum.client.samplers import binned_gaussian_sampler
from zerosum.client.spec import EncodingSpec, PrivacySpec
from zerosum.secagg.encoding import (
    MAX_RING_BITS,
    Encoding,
    check_message_fits,
    is_plausible,
    log2_wrap_probability,
    ring_bits_needed,
)
from zerosum.secagg.randomness import Keystream

logger = logging.getLogger("zerosum.client")


class UnusableUpdateError(ValueError):
    """An update that cannot be sent; without privacy its client drops out."""


class CohortTooSmallError(ValueError):
    """The cohort cannot hold the survivors that the guarantee needs."""


def guaranteed_shares(honest_fraction: float, cohort: int) -> Fraction:
    """Return f n exactly, with f read as the decimal number that was written."""
    return Fraction(repr(honest_fraction)) * cohort


def min_survivors(honest_fraction: float, cohort: int, colluders: int = 0) -> int:
    """Return ceil(f n) + c, the survivors below which a session is abandoned.

    Raises
    ------
    CohortTooSmallError
        If that is more than the cohort.
    """
    needed = math.ceil(guaranteed_shares(honest_fraction, cohort)) + colluders
    if needed > cohort:
        raise CohortTooSmallError(
            f"{needed} of {cohort} clients would have to survive: honest_fraction = "
            f"{honest_fraction} and {colluders} colluders"
        )
    return max(1, needed)


def guarantee_holds(honest_fraction: float, cohort: int, needed: int, colluders: int = 0) -> bool:
    """Return whether ``needed`` survivors, less colluders, carry the guaranteed f n shares.

    What a client checks of the ``min_survivors`` that a session announces.
    """
    return needed <= cohort and needed - colluders >= guaranteed_shares(honest_fraction, cohort)


@dataclass(frozen=True)
class Protection:
    """How one session's vectors are protected: the same object at clients and server.

    Attributes
    ----------
    encoding : Encoding
        Real vectors to integers.
    mechanism : Mechanism or None
        Noise of one contribution; None without privacy.
    cohort : int
        The session's n.
    honest_fraction : float
        The guaranteed fraction f.
    topped_up : bool
        Whether the server brings every sum to the constant noise variance V/f.
    ring_bits : int
        Bits of the ring in which contributions are added.
    noise_multiplier : float or None
        z: the guaranteed noise of a sum (local: of each contribution) over Delta2.
    """

    encoding: Encoding
    mechanism: Mechanism | None
    cohort: int
    honest_fraction: float
    topped_up: bool
    ring_bits: int
    noise_multiplier: float | None = None

    @classmethod
    def build(
        cls,
        privacy: PrivacySpec,
        encoding: EncodingSpec,
        *,
        cohort: int,
        dimension: int,
        rotation_seed: bytes,
    ) -> "Protection":
        """Build the protection of a session.

        Parameters
        ----------
        privacy : PrivacySpec
            With ``noise_multiplier`` resolved, unless the model is "none".
        encoding : EncodingSpec
            Bits, range, rotation, and optionally the ring's size.
        cohort : int
            Clients in the session.
        dimension : int
            Length of the real vector.
        rotation_seed : bytes
            32 bytes from the session; used only where the encoding rotates.

        Raises
        ------
        ValueError
            If a parameter is missing or out of range.
        MessageCanWrapError
            If the messages' sum cannot fit into the ring.
        """
        if cohort < 1:
            raise ValueError(f"a cohort has at least one client, not {cohort}")
        seed = rotation_seed if encoding.rotate else None
        code = Encoding.from_bits(
            encoding.bits,
            dimension=dimension,
            clip=privacy.clip,
            limit=encoding.range,
            rotation_seed=seed,
        )
        mechanism = _mechanism(privacy, code, cohort)
        whole = cls(
            encoding=code,
            mechanism=mechanism,
            cohort=cohort,
            honest_fraction=privacy.honest_fraction,
            topped_up=privacy.top_up,
            ring_bits=encoding.ring_bits or MAX_RING_BITS,
            noise_multiplier=privacy.noise_multiplier,
        )
        if encoding.ring_bits is None:
            whole = replace(whole, ring_bits=whole._ring_bits_needed())
        check_message_fits(whole.ring_bits, cohort, code.bound)
        return whole

    @property
    def length(self) -> int:
        """Length of an encoded vector (padded when rotated)."""
        return self.encoding.length

    @property
    def private(self) -> bool:
        """Whether contributions carry noise."""
        return self.mechanism is not None

    @property
    def bounds(self) -> bytes:
        """Canonical bytes of all that both sides must agree on: what a session is bound to."""
        code = self.encoding
        fields = {
            "bits": self.ring_bits,
            "bound": code.bound,
            "clip": code.clip,
            "cohort": self.cohort,
            "dimension": code.dimension,
            "honest_fraction": self.honest_fraction,
            "length": code.length,
            "limit": code.limit,
            "mechanism": None if self.mechanism is None else _described(self.mechanism),
            "rotation": code.rotation_seed.hex() if code.rotation_seed is not None else None,
            "top_up": self.topped_up,
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @property
    def std_contribution(self) -> float:
        """Standard deviation of one contribution's noise, in real units a coordinate."""
        return 0.0 if self.mechanism is None else self.mechanism.std(1) * self.encoding.step

    @property
    def std_sum(self) -> float:
        """Standard deviation of a whole sum's noise, in real units a coordinate.

        Under the distributed model that of the constant total V/f; without top-up, and under the
        local model, that of a full cohort.
        """
        shares = self.cohort
        return 0.0 if self.mechanism is None else self.mechanism.std(shares) * self.encoding.step

    @property
    def log2_wrap_probability(self) -> float:
        """Binary logarithm of a bound on the probability that this session's sum wraps."""
        return self._log2_wrap(self.ring_bits)

    def protect(
        self, update: ArrayLike, *, rounding: Keystream, noise: Keystream | None
    ) -> NDArray[np.int64]:
        """Return the integers a client adds to the sum.

        Under privacy an update with NaN or infinite entries, or of another length, becomes zero
        plus noise: whether a client takes part must not depend on its data. The reason goes to the
        client's own log only.

        Parameters
        ----------
        update : array_like
            Shape (dimension,), real.
        rounding : Keystream
            Coins of the stochastic rounding.
        noise : Keystream or None
            Noise bits. None where the sum's noise is drawn elsewhere (``noise_draw = "summed"``).

        Returns
        -------
        ndarray of int64
            Shape (length,).

        Raises
        ------
        UnusableUpdateError
            Without privacy, for an update that cannot be encoded.
        """
        try:
            clip = self.encoding.clip
            clipped = update if clip is None else clip_to_norm(update, clip)
            encoded = self.encoding.encode(clipped, rounding)
        except (NotFiniteError, ValueError, TypeError) as error:
            if self.mechanism is None:
                raise UnusableUpdateError(str(error)) from error
            logger.warning("the update is unusable, zero plus noise is sent instead: %s", error)
            encoded = np.zeros(self.length, dtype=np.int64)
        return self._noised(encoded, noise)

    def zero(self, noise: Keystream | None) -> NDArray[np.int64]:
        """Return what a client sends that has no update: zero plus its noise.

        Raises
        ------
        UnusableUpdateError
            Without privacy, where such a client drops out.
        """
        if self.mechanism is None:
            raise UnusableUpdateError("without privacy a client with no update drops out")
        return self._noised(np.zeros(self.length, dtype=np.int64), noise)

    def top_up(self, survivors: int, noise: Keystream) -> NDArray[np.int64] | None:
        """Return the noise that brings a sum of ``survivors`` shares to the constant V/f.

        Parameters
        ----------
        survivors : int
            Shares that are in the sum; 0 draws all of its noise at once.
        noise : Keystream
            Noise bits of the server.

        Returns
        -------
        ndarray of int64 or None
            Shape (length,); None if there is nothing to add.
        """
        if not 0 <= survivors <= self.cohort:
            raise ValueError(f"{survivors} survivors in a cohort of {self.cohort}")
        missing = self.cohort - survivors
        if not isinstance(self.mechanism, DistributedSkellam) or not self.topped_up or not missing:
            return None
        return self.mechanism.noise(missing, self.length, noise)

    def summed_noise(self, survivors: int, noise: Keystream) -> NDArray[np.int64] | None:
        """Return all the noise of a sum, top-up included, in one draw: simulations only.

        Skellam shares have exactly this law. Under the local model it is a Gaussian of the sum's
        variance, rounded once where ``survivors`` clients would each have rounded theirs.
        """
        if isinstance(self.mechanism, DistributedSkellam):
            shares = self.cohort if self.topped_up else survivors
            return self.mechanism.noise(shares, self.length, noise) if shares else None
        if isinstance(self.mechanism, BinnedGaussian) and survivors:
            sigma = self.mechanism.std(survivors)
            return binned_gaussian_sampler(sigma).sample(self.length, noise)
        return None

    def is_plausible(self, total: NDArray[np.int64], survivors: int, *, noised: bool) -> bool:
        """Return whether honest clients can have such a sum: see :func:`encoding.is_plausible`.

        Parameters
        ----------
        total : ndarray of int64, shape (length,)
            Centred, before the server adds noise.
        survivors : int
            Contributions in it.
        noised : bool
            Whether contributions carry their noise.
        """
        mechanism = self.mechanism if noised else None
        return is_plausible(
            total,
            survivors=survivors,
            bound=self.encoding.bound,
            noise_variance=0.0 if mechanism is None else mechanism.std(survivors) ** 2,
            slack=self._rounding_slack(),
        )

    def decode(self, total: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the real vector, shape (dimension,), of a centred sum of shape (length,)."""
        return self.encoding.decode(total)

    def _noised(self, encoded: NDArray[np.int64], noise: Keystream | None) -> NDArray[np.int64]:
        if self.mechanism is None or noise is None:
            return encoded
        return self.mechanism.apply(encoded, noise)

    def _noise_variance(self) -> float:
        return 0.0 if self.mechanism is None else self.mechanism.std(self.cohort) ** 2

    def _rounding_slack(self) -> int:
        return self.cohort if isinstance(self.mechanism, BinnedGaussian) else 0

    def _ring_bits_needed(self) -> int:
        return ring_bits_needed(
            self.cohort,
            self.encoding.bound,
            self._noise_variance(),
            self.length,
            slack=self._rounding_slack(),
        )

    def _log2_wrap(self, bits: int) -> float:
        return log2_wrap_probability(
            bits,
            cohort=self.cohort,
            bound=self.encoding.bound,
            noise_variance=self._noise_variance(),
            dimension=self.length,
            slack=self._rounding_slack(),
        )


def _mechanism(privacy: PrivacySpec, code: Encoding, cohort: int) -> Mechanism | None:
    if privacy.model == "none":
        return None
    z = privacy.noise_multiplier
    if z is None:
        raise ValueError("privacy.noise_multiplier must be found before a session is built")
    l2 = code.l2_sensitivity
    if privacy.model == "local":
        return BinnedGaussian(sigma=z * l2, l2_sensitivity=l2)
    shares = float(guaranteed_shares(privacy.honest_fraction, cohort))
    return DistributedSkellam(l2, code.l1_sensitivity, (z * l2) ** 2 / shares)


def _described(mechanism: Mechanism) -> dict[str, object]:
    if not isinstance(mechanism, DistributedSkellam | BinnedGaussian):
        raise TypeError(f"{type(mechanism).__name__} has no canonical description")
    return {"name": type(mechanism).__name__} | asdict(mechanism)
