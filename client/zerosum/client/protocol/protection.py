"""The envelope around an update: clip, encode, add noise; and its inverse at the server.

Both sides build the same :class:`Protection` from the agreed parameters, so nothing about noise,
scale or ring is decided twice.
"""

import json
import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zerosum.client.privacy.clipping import clip_to_norm, norm_is_within
from zerosum.client.privacy.laplace import DiscreteLaplace
from zerosum.client.privacy.mechanisms import (
    BinnedGaussian,
    CentralGaussian,
    DistributedDiscreteGaussian,
    DistributedSkellam,
    Mechanism,
    SkellamWithBit,
)
from zerosum.client.privacy.privunit import PrivUnit
from zerosum.client.privacy.registry import (
    BIT_UNITS,
    bit_values,
    choose_mechanism,
    guaranteed_shares,
    rounding_rule,
)
from zerosum.client.privacy.samplers import binned_gaussian_sampler
from zerosum.client.protocol.saturation_counts import (
    COUNTS,
    CutCounts,
    are_plausible,
    decoded_counts,
    encoded_counts,
)
from zerosum.client.protocol.saturation_log import log_cut
from zerosum.client.protocol.training_outcomes import NOT_FINITE_CURE, ZERO_SENT
from zerosum.client.spec import EncodingSpec, PrivacySpec
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding, NotFiniteError
from zerosum.secagg.vectors.saturation import FOLDS, Cut, OnCut
from zerosum.secagg.vectors.wrapping import (
    MAX_RING_BITS,
    WRAP_EXPONENT,
    MessageCanWrapError,
    check_message_fits,
    is_plausible,
    largest_of,
    log2_wrap_probability,
    message_fits,
    ring_bits_needed,
)

logger = logging.getLogger("zerosum.client")


class UnusableUpdateError(ValueError):
    """An update that cannot be sent; without privacy its client drops out."""


class CohortTooSmallError(ValueError):
    """The cohort cannot hold the survivors that the guarantee needs."""


def _with_cure(error: Exception) -> Exception:
    """Return an error whose words say what a client's owner can do, where that is known."""
    if isinstance(error, NotFiniteError):
        return NotFiniteError(f"{error}: {NOT_FINITE_CURE}")
    return error


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

    Under adaptive clipping one more coordinate follows the encoded update: the bit that says
    whether the update's norm was within the clip. Without noise four more follow, where the range
    can cut: how many coordinates were beyond 1, 10, 100 and 1,000 times the range.

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
        z: the guaranteed noise of a sum (local: of each contribution; central: of the sum) over
        Delta2; z_delta under adaptive clipping.
    quantile : float or None
        Under adaptive clipping, where a bit follows each update: the quantile that is sought.
    noise_inside : bool
        Whether updates carry their noise already, of DP-SGD inside local training: they are
        encoded as they are.
    """

    encoding: Encoding
    mechanism: Mechanism | None
    cohort: int
    honest_fraction: float
    topped_up: bool
    ring_bits: int
    noise_multiplier: float | None = None
    quantile: float | None = None
    noise_inside: bool = False

    @classmethod
    def build(
        cls,
        privacy: PrivacySpec,
        encoding: EncodingSpec,
        *,
        cohort: int,
        dimension: int,
        rotation_seed: bytes,
        records: bool | None = None,
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
        records : bool
            Whether a vector is a sum of clipped records, each of norm at most ``privacy.clip``, of
            which one is protected. Such a sum is clamped to ``encoding.range`` and rounded once.
            Records that are not finite are the caller's to leave out, and float64 to add them in.
            Default: as ``privacy.unit`` says.

        Raises
        ------
        ValueError
            If a parameter is missing or out of range.
        MessageCanWrapError
            If the messages' sum cannot fit into the ring.
        """
        if cohort < 1:
            raise ValueError(f"a cohort has at least one client, not {cohort}")
        if records is None:
            records = privacy.sums_gradients and privacy.clip is not None
        if records and privacy.adaptive:
            raise ValueError("the clip of records does not adapt: their norms are not one bit")
        seed = rotation_seed if encoding.rotate else None
        code = Encoding.from_bits(
            encoding.bits,
            dimension=dimension,
            # Noise inside an update bounds what it says, whatever its norm.
            clip=None if privacy.noise_inside else privacy.clip,
            limit=encoding.range,
            rotation_seed=seed,
            rule=rounding_rule(privacy, records=records),
        )
        mechanism = None if privacy.noise_inside else choose_mechanism(privacy, code, cohort)
        whole = cls(
            encoding=code,
            mechanism=mechanism,
            cohort=cohort,
            honest_fraction=privacy.honest_fraction,
            topped_up=privacy.top_up,
            ring_bits=encoding.ring_bits or MAX_RING_BITS,
            noise_multiplier=privacy.update_noise_multiplier,
            quantile=privacy.clip_quantile if privacy.adaptive else None,
            noise_inside=privacy.noise_inside,
        )
        if encoding.ring_bits is None:
            whole = replace(whole, ring_bits=whole._ring_bits_needed())
        check_message_fits(whole.ring_bits, cohort, whole._bound)
        return whole

    @property
    def adaptive(self) -> bool:
        """Whether a bit follows each update."""
        return self.quantile is not None

    @property
    def length(self) -> int:
        """Length of an encoded vector (padded when rotated), the bit and counts included."""
        return self.encoding.length + self.adaptive + COUNTS * self.counts_cuts

    @property
    def counts_cuts(self) -> bool:
        """Whether counts of cut coordinates follow each update."""
        return not self.private and self.encoding.can_cut

    @property
    def private(self) -> bool:
        """Whether contributions carry noise."""
        return self.mechanism is not None or self.noise_inside

    @property
    def bounds(self) -> bytes:
        """Canonical bytes of all that both sides must agree on: what a session is bound to."""
        code = self.encoding
        fields: dict[str, object] = {
            "adaptive": self.quantile,
            "bits": self.ring_bits,
            "bound": code.bound,
            "clip": code.clip,
            "cohort": self.cohort,
            "dimension": code.dimension,
            "honest_fraction": self.honest_fraction,
            "length": code.length,
            "limit": code.limit,
            "mechanism": None if self.mechanism is None else _described(self.mechanism),
            "noise_inside": self.noise_multiplier if self.noise_inside else None,
            "rotation": code.rotation_seed.hex() if code.rotation_seed is not None else None,
            "rule": code.rule,
            "top_up": self.topped_up,
        }
        if self.counts_cuts:  # noised sessions stay those of programs that count nothing
            fields["cuts"] = FOLDS
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @property
    def std_contribution(self) -> float:
        """Standard deviation of one contribution's noise, in real units a coordinate."""
        if self.mechanism is None or isinstance(self.mechanism, CentralGaussian):
            return 0.0
        return self.mechanism.std(1) * self.encoding.step

    @property
    def std_sum(self) -> float:
        """Standard deviation of a whole sum's noise, in real units a coordinate.

        Under the distributed model that of the constant total V/f; without top-up, and under the
        local model, that of a full cohort; under the central model the server's.
        """
        shares = self.cohort
        return 0.0 if self.mechanism is None else self.mechanism.std(shares) * self.encoding.step

    def std_of(self, survivors: float) -> float:
        """Return the deviation of the noise in an opened sum of so many, real units a coordinate.

        A top-up brings every sum to ``std_sum``, and a trusted server's noise is one. Otherwise a
        sum has the noise of those who are in it, and no more.
        """
        if self.mechanism is None or not (survivors or self._constant):
            return 0.0
        return self.mechanism.std(self._shares(survivors)) * self.encoding.step

    def bit_std_of(self, survivors: float) -> float | None:
        """Return the deviation of the noise in :meth:`decode_bit`, in clients; None as there."""
        mechanism = self.mechanism
        if not self.adaptive:
            return None
        if not isinstance(mechanism, SkellamWithBit) or not (survivors or self._constant):
            return 0.0
        return mechanism.bit.std(self._shares(survivors)) / (2 * BIT_UNITS)

    def _shares(self, survivors: float) -> float:
        return self.cohort if self._constant else survivors

    @property
    def _constant(self) -> bool:
        """Whether the noise of an opened sum is the same however many are in it."""
        shared = isinstance(self.mechanism, _SHARED) and self.topped_up
        return shared or isinstance(self.mechanism, CentralGaussian)

    @property
    def log2_wrap_probability(self) -> float:
        """Binary logarithm of a bound on the probability that this session's sum wraps."""
        return self._log2_wrap(self.ring_bits)

    def protect(
        self,
        update: ArrayLike,
        *,
        rounding: Keystream,
        noise: Keystream | None,
        whose: str = "the update",
        unusable: Callable[[Exception], None] = lambda error: None,
    ) -> NDArray[np.signedinteger[Any]]:
        """Return the integers a client adds to the sum.

        Under privacy an update with NaN or infinite entries, or of another length, becomes zero
        plus noise: whether a client takes part must not depend on its data. The reason goes to the
        client's own log only. With the noise inside there is none to add, and zero is sent: right
        for what noised steps came to, a diverged model, of which it tells no more than they do.
        What failed before its noise was drawn is not for here, but for :func:`train_on_noise`.

        Coordinates beyond the range are cut to it, which the client's own log says in one line.

        Parameters
        ----------
        update : array_like
            Shape (dimension,), real.
        rounding : Keystream
            Coins of the stochastic rounding.
        noise : Keystream or None
            Noise bits. None where the sum's noise is drawn elsewhere (``noise_draw = "summed"``).
        whose : str
            Whose update this is, for the log.
        unusable : callable
            Told why an update became zero: a simulation counts it.

        Returns
        -------
        ndarray of int64 or int32
            Shape (length,). int32 for float32 updates of at most sixteen bits, without noise.

        Raises
        ------
        UnusableUpdateError
            Without privacy, for an update that cannot be encoded.
        """
        try:
            encoded = self._encoded(update, rounding, whose)
        except Exception as raised:  # whatever a task may return, down to integers beyond any float
            error = _with_cure(raised)
            if not self.private:
                raise UnusableUpdateError(str(error)) from raised
            logger.warning("the update is unusable, %s: %s", ZERO_SENT, error)
            unusable(error)
            encoded = np.zeros(self.length, dtype=np.int64)
        return self._noised(encoded, noise)

    def check_usable(self, update: ArrayLike) -> None:
        """Raise UnusableUpdateError unless this is a finite real vector of the right length."""
        vector = np.asarray(update)
        shape = (self.encoding.dimension,)
        if vector.shape != shape or vector.dtype.kind not in "fiu" or not np.isfinite(vector).all():
            raise UnusableUpdateError(f"an answer is {shape[0]} finite numbers")

    def zero(self, noise: Keystream | None) -> NDArray[np.signedinteger[Any]]:
        """Return what a client sends that has no update: zero plus its noise.

        Raises
        ------
        UnusableUpdateError
            Without privacy, where such a client drops out.
        ValueError
            With the noise inside updates, where zero would have none.
        """
        if self.noise_inside:
            raise ValueError("zero has no noise here: it is drawn in training, by train_on_noise")
        if not self.private:
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
        mechanism, missing = self.mechanism, self.cohort - survivors
        if not isinstance(mechanism, _SHARED) or not self.topped_up or not missing:
            return None
        return mechanism.noise(missing, self.length, noise)

    def server_noise(self, noise: Keystream) -> NDArray[np.int64] | None:
        """Return what a trusted server adds, once, to the sum of a release's sessions.

        However many sessions there are and whichever failed, a client is in one: its sensitivity,
        and so the noise, is that of one.

        Returns
        -------
        ndarray of int64 or None
            Shape (length,); None where clients add the noise.
        """
        if not isinstance(self.mechanism, CentralGaussian):
            return None
        return self.mechanism.noise(1, self.length, noise)

    def summed_noise(self, survivors: int, noise: Keystream) -> NDArray[np.int64] | None:
        """Return all that clients add to a sum, top-up included, in one draw: simulations only.

        Skellam shares have exactly this law. Under the local model it is a Gaussian of the sum's
        variance, rounded once where ``survivors`` clients would each have rounded theirs.

        Raises
        ------
        ValueError
            For local mechanisms whose sums have no law of their own.
        """
        mechanism = self.mechanism
        if isinstance(mechanism, DiscreteLaplace | PrivUnit):
            raise ValueError(f"{type(mechanism).__name__} is drawn by each client")
        if isinstance(mechanism, _SHARED):
            shares = self.cohort if self.topped_up else survivors
            return mechanism.noise(shares, self.length, noise) if shares else None
        if isinstance(mechanism, BinnedGaussian) and survivors:
            sigma = mechanism.std(survivors)
            return binned_gaussian_sampler(sigma).sample(self.length, noise)
        return self.top_up(survivors, noise)

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
        mechanism = self.mechanism
        carried = noised and not isinstance(mechanism, CentralGaussian)
        if carried and isinstance(mechanism, DiscreteLaplace):
            # Its tails are heavier than those that the bound is for.
            return self._log2_laplace(largest_of(total) - survivors * self._bound) > -WRAP_EXPONENT
        within = is_plausible(
            total,
            survivors=survivors,
            bound=self._bound,
            noise_variance=self._noise_variance() if carried else 0.0,
            slack=self._rounding_slack() if carried else 0,
        )
        if not self.counts_cuts:
            return within
        return within and are_plausible(self.encoding, total[-COUNTS:], survivors)

    def decode(self, total: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the real vector, shape (dimension,), of a centred sum of shape (length,)."""
        return self.encoding.decode(total[: self.encoding.length])

    def decode_bit(self, total: NDArray[np.int64]) -> float | None:
        """Return the noised sum of 1[norm <= clip] - quantile in a sum; None where not asked."""
        return float(total[self.encoding.length]) / (2 * BIT_UNITS) if self.adaptive else None

    def decode_cuts(self, total: NDArray[np.int64], clients: int) -> CutCounts | None:
        """Return how many coordinates were cut, in a sum of so many; None where not counted."""
        if not self.counts_cuts:
            return None
        return decoded_counts(self.encoding, total[-COUNTS:], clients)

    def _encoded(
        self, update: ArrayLike, rounding: Keystream, whose: str
    ) -> NDArray[np.signedinteger[Any]]:
        """Clip and encode, add the bit and the counts, and log what the range cut."""
        cuts: list[Cut] = []
        encoded = self._clipped(update, rounding, cuts.append)
        cut = cuts[-1] if cuts else None
        if cut is not None:
            log_cut(whose, cut, " (encoding.range)")
        code, ends = self.encoding, []
        if self.quantile is not None and code.clip is not None:
            within, beyond = bit_values(self.quantile)
            ends.append([within if norm_is_within(update, code.clip) else beyond])
        if self.counts_cuts:
            ends.append(encoded_counts(code, cut).tolist())
        whole: NDArray[np.signedinteger[Any]] = encoded
        if ends:
            whole = np.concatenate([encoded, *(np.array(end, encoded.dtype) for end in ends)])
        return whole

    def _clipped(
        self, update: ArrayLike, rounding: Keystream, on_cut: OnCut
    ) -> NDArray[np.signedinteger[Any]]:
        """Clip and encode; a sum of clipped records is clamped only, by the encoding."""
        code = self.encoding
        if not self.adaptive and isinstance(update, np.ndarray) and update.dtype == np.float32:
            quick = code.encode_clipped(update, rounding, on_cut)
            if quick is not None:
                return quick
        if code.clip is None or code.rule == "records":
            return code.encode(update, rounding, on_cut)
        clipped = clip_to_norm(update, code.clip, 1 if code.rule == "l1" else 2)
        return code.encode(clipped, rounding, on_cut)

    def _noised(
        self, encoded: NDArray[np.signedinteger[Any]], noise: Keystream | None
    ) -> NDArray[np.signedinteger[Any]]:
        if self.mechanism is None or noise is None or isinstance(self.mechanism, CentralGaussian):
            return encoded
        return self.mechanism.apply(encoded.astype(np.int64, copy=False), noise)

    @property
    def _bound(self) -> int:
        """Largest magnitude of a coordinate of a contribution, bounded noise included."""
        if isinstance(self.mechanism, PrivUnit):
            return self.mechanism.bound
        if self.quantile is None:
            return self.encoding.bound
        return max(self.encoding.bound, *map(abs, bit_values(self.quantile)))

    def _noise_variance(self) -> float:
        """Variance of unbounded noise in the noisiest coordinate of a sum."""
        mechanism = self.mechanism
        if mechanism is None or isinstance(mechanism, PrivUnit):
            return 0.0
        if isinstance(mechanism, SkellamWithBit):
            return max(mechanism.std(self.cohort), mechanism.bit.std(self.cohort)) ** 2
        return mechanism.std(self.cohort) ** 2

    def _rounding_slack(self) -> int:
        return self.cohort if isinstance(self.mechanism, BinnedGaussian | CentralGaussian) else 0

    def _ring_bits_needed(self) -> int:
        if isinstance(self.mechanism, DiscreteLaplace):
            for bits in range(2, MAX_RING_BITS + 1):
                fits = message_fits(bits, self.cohort, self._bound)
                if fits and self._log2_wrap(bits) <= -WRAP_EXPONENT:
                    return bits
            raise MessageCanWrapError(f"no ring of {MAX_RING_BITS} bits holds the noise")
        return ring_bits_needed(
            self.cohort,
            self._bound,
            self._noise_variance(),
            self.length,
            slack=self._rounding_slack(),
        )

    def _log2_wrap(self, bits: int) -> float:
        if isinstance(self.mechanism, DiscreteLaplace):
            return self._log2_laplace((1 << (bits - 1)) - self.cohort * self._bound)
        return log2_wrap_probability(
            bits,
            cohort=self.cohort,
            bound=self._bound,
            noise_variance=self._noise_variance(),
            dimension=self.length,
            slack=self._rounding_slack(),
        )

    def _log2_laplace(self, margin: int) -> float:
        """Return log2 of a bound on P(discrete Laplace noise of the cohort reaches this far)."""
        if margin <= 0 or not isinstance(self.mechanism, DiscreteLaplace):
            return 0.0
        tail = self.mechanism.log_tail(self.cohort, margin) / math.log(2)
        return min(0.0, tail + 1 + math.log2(self.length))


_SHARED = (DistributedSkellam, DistributedDiscreteGaussian, SkellamWithBit)
"""Mechanisms of which clients hold shares, and the server the rest."""


def _described(mechanism: Mechanism) -> dict[str, object]:
    fields: dict[str, object] = asdict(mechanism)  # type: ignore[call-overload]
    return {"name": type(mechanism).__name__} | fields
