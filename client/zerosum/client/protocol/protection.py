"""Protect an update: clip, encode, add noise; and the inverse at the server.

Both sides build the same :class:`Protection` from the agreed parameters, so nothing about noise,
scale or ring is decided twice.
"""

import json
import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zerosum.client.privacy.adaptive_bit import BIT_UNITS, bit_values
from zerosum.client.privacy.clipping import clip_to_norm, norm_is_within
from zerosum.client.privacy.counts import counting_mechanism
from zerosum.client.privacy.mechanism import AddedBy, Mechanism
from zerosum.client.privacy.registry import choose_mechanism, rounding_rule
from zerosum.client.protocol.integer_encoding import IntegerEncoding
from zerosum.client.protocol.saturation_counts import (
    COUNTS,
    CutCounts,
    are_plausible,
    decoded_counts,
    encoded_counts,
)
from zerosum.client.protocol.saturation_log import log_cut
from zerosum.client.protocol.training_outcomes import NOT_FINITE_CURE, ZERO_SENT
from zerosum.client.request import CountEncoding
from zerosum.client.spec import EncodingSpec, PrivacySpec
from zerosum.client.spec.query_privacy import QueryPrivacy
from zerosum.client.spec.sum_privacy import CountPrivacy, SumPrivacy
from zerosum.secagg.randomness import Keystream
from zerosum.secagg.vectors.encoding import Encoding, NotFiniteError
from zerosum.secagg.vectors.saturation import FOLDS, Cut, OnCut
from zerosum.secagg.vectors.vector_sum import VectorSum
from zerosum.secagg.vectors.wrapping import (
    MAX_RING_BITS,
    MessageCanWrapError,
    check_message_fits,
    is_plausible,
    log2_wrap_probability,
    ring_bits_needed,
)

logger = logging.getLogger("zerosum.client")


class UnusableUpdateError(ValueError):
    """An update that cannot be sent; without privacy its client drops out."""


def _with_cure(error: Exception) -> Exception:
    """Return an error whose words say what a client's owner can do, where that is known."""
    if isinstance(error, NotFiniteError):
        return NotFiniteError(f"{error}: {NOT_FINITE_CURE}")
    return error


def _checked(
    vector: NDArray[np.int64], length: int, mechanism: Mechanism, method: str
) -> NDArray[np.int64]:
    """Return what a mechanism gave, if it is one integer a coordinate.

    None would be taken for "nothing to add", one integer would be added to every coordinate alike,
    and a float would be cut to an integer where it enters the ring: less noise than was charged.
    """
    fits = isinstance(vector, np.ndarray) and vector.shape == (length,)
    if not fits or vector.dtype != np.int64:
        raise TypeError(
            f"{type(mechanism).__name__}.{method} has to return {length} integers (int64), one a "
            f"coordinate, not {type(vector).__name__} of {getattr(vector, 'dtype', 'no dtype')} "
            f"and shape {getattr(vector, 'shape', ())}"
        )
    return vector


@dataclass(frozen=True)
class Protection:
    """Protection of one session's vectors: the same object at clients and server.

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
    honest_fraction : float or Fraction
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
    honest_fraction: float | Fraction
    topped_up: bool
    ring_bits: int
    noise_multiplier: float | None = None
    quantile: float | None = None
    noise_inside: bool = False

    @classmethod
    def build(
        cls,
        privacy: PrivacySpec | CountPrivacy,
        encoding: EncodingSpec | CountEncoding,
        *,
        cohort: int,
        dimension: int,
        rotation_seed: bytes,
        records: bool | None = None,
    ) -> "Protection":
        """Build the protection of a session.

        Parameters
        ----------
        privacy : PrivacySpec, QueryPrivacy or SumPrivacy
            With ``noise_multiplier`` resolved, unless the model is "none".
        encoding : EncodingSpec or CountEncoding
            Bits, range, rotation, and optionally the ring's size; of a query its bound and moves.
        cohort : int
            Clients in the session.
        dimension : int
            Length of the vector.
        rotation_seed : bytes
            32 bytes from the session; used only where the encoding rotates.
        records : bool
            Whether a vector is a sum of clipped records, each of norm at most ``privacy.clip``, of
            which one is protected. Such a sum is clamped to ``encoding.range`` and rounded once.
            Records that are not finite are the caller's to leave out, and float64 to add them in.
            Default: as ``privacy.unit`` says.

        Returns
        -------
        Protection
            The same from the same parameters.

        Raises
        ------
        ValueError
            If a parameter is missing or out of range.
        MessageCanWrapError
            If the messages' sum cannot fit into the ring.
        """
        if cohort < 1:
            raise ValueError(f"a cohort has at least one client, not {cohort}")
        if isinstance(privacy, QueryPrivacy | SumPrivacy):
            if isinstance(encoding, CountEncoding):
                return cls._of_counts(privacy, encoding, cohort, dimension)
            raise TypeError("a QueryPrivacy protects counts, and nothing else")
        if isinstance(encoding, CountEncoding):
            raise TypeError("counts are protected by a QueryPrivacy, and nothing else is")
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

    @classmethod
    def _of_counts(
        cls, privacy: CountPrivacy, encoding: CountEncoding, cohort: int, dimension: int
    ) -> "Protection":
        """Build the protection of a query's cells: integers of bounded size, and their noise."""
        mechanism: Mechanism | None = None
        if privacy.private and not privacy.noise_inside:
            scale = privacy.scale or 0.0  # which is there where there is noise
            mechanism = counting_mechanism(
                privacy.noise, scale, cohort, privacy.honest_fraction, encoding.moves
            )
        whole = cls(
            encoding=IntegerEncoding.up_to(encoding.bound, dimension, signed=encoding.signed),
            mechanism=mechanism,
            cohort=cohort,
            honest_fraction=privacy.honest_part(cohort),
            topped_up=privacy.top_up,
            ring_bits=MAX_RING_BITS,
            noise_inside=privacy.noise_inside,
        )
        try:
            whole = replace(whole, ring_bits=whole._ring_bits_needed())
        except MessageCanWrapError:
            raise MessageCanWrapError(
                f"{cohort} clients with cells of up to {encoding.bound} each, and noise of "
                f"deviation {whole.std_sum:.3g}, are too much for {MAX_RING_BITS} bits: lower "
                "max_records or privacy.cap, or ask with more epsilon"
            ) from None
        return whole

    @property
    def adaptive(self) -> bool:
        """Return whether a bit follows each update."""
        return self.quantile is not None

    @property
    def length(self) -> int:
        """Length of an encoded vector (padded when rotated), the bit and counts included."""
        return self.encoding.length + self.adaptive + COUNTS * self.counts_cuts

    @property
    def counts_cuts(self) -> bool:
        """Return whether counts of cut coordinates follow each update."""
        return not self.private and self.encoding.can_cut

    @property
    def private(self) -> bool:
        """Return whether contributions carry noise."""
        return self.mechanism is not None or self.noise_inside

    @property
    def added_by(self) -> AddedBy | None:
        """Return the party that adds the mechanism's noise; None without one."""
        return None if self.mechanism is None else self.mechanism.added_by

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
        if isinstance(code, IntegerEncoding) and code.signed:
            fields["signed"] = True
        return json.dumps(
            # A share is a Fraction, which is written as text: exactly.
            fields,
            sort_keys=True,
            separators=(",", ":"),
            allow_nan=False,
            default=_exactly,
        ).encode()

    @property
    def std_contribution(self) -> float:
        """Standard deviation of one contribution's noise, in real units a coordinate."""
        if self.mechanism is None or self.added_by == "server":
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
        if not self.adaptive:
            return None
        if self.mechanism is None or not (survivors or self._constant):
            return 0.0
        return self.mechanism.bit_std(self._shares(survivors)) / (2 * BIT_UNITS)

    def _shares(self, survivors: float) -> float:
        return self.cohort if self._constant else survivors

    @property
    def _constant(self) -> bool:
        """Return whether the noise of an opened sum is the same however many are in it."""
        return self.added_by == "server" or (self.added_by == "share" and self.topped_up)

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
        What failed before its noise was drawn is not for here, but for
        :func:`~zerosum.client.privacy.local_dp_noise.train_on_noise`.

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
        encoded = VectorSum(self.length)
        self._add_encoded(update, encoded, rounding, whose, unusable)
        return self._noised(encoded.integers(), noise)

    def add_protected(
        self,
        update: ArrayLike,
        total: VectorSum,
        *,
        rounding: Keystream,
        noise: Keystream | None,
        whose: str = "the update",
        unusable: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """Add to a sum the integers that :meth:`protect` returns.

        Parameters
        ----------
        update, rounding, noise, whose, unusable
            As for :meth:`protect`.
        total : VectorSum
            Of length ``length``. Where this client adds no noise, the update is rounded into it.

        Raises
        ------
        UnusableUpdateError
            As :meth:`protect` does; nothing is added then.
        """
        if self._own_mechanism(noise) is None:
            self._add_encoded(update, total, rounding, whose, unusable)
            return
        total.add(
            self.protect(update, rounding=rounding, noise=noise, whose=whose, unusable=unusable)
        )

    def check_usable(self, update: ArrayLike) -> None:
        """Check that an answer is a finite real vector of the right length.

        Parameters
        ----------
        update : array_like
            Whatever a task answered.

        Raises
        ------
        UnusableUpdateError
            If it is not.
        """
        vector = np.asarray(update)
        shape = (self.encoding.dimension,)
        if vector.shape != shape or vector.dtype.kind not in "fiu" or not np.isfinite(vector).all():
            raise UnusableUpdateError(f"an answer is {shape[0]} finite numbers")

    def zero(self, noise: Keystream | None) -> NDArray[np.signedinteger[Any]]:
        """Encode the answer of a client that has no update: zero plus its noise.

        Parameters
        ----------
        noise : Keystream or None
            Noise bits; None where the sum's noise is drawn elsewhere.

        Returns
        -------
        ndarray of int64, shape (length,)
            In integer units.

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
        """Draw the noise that brings a sum of ``survivors`` shares to the constant V/f.

        Without it a sum's variance would tell how many were in it, and so whether one client was:
        the release figure could not be claimed.

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

        Raises
        ------
        ValueError
            If more survived than there were.
        """
        if not 0 <= survivors <= self.cohort:
            raise ValueError(f"{survivors} survivors in a cohort of {self.cohort}")
        mechanism, missing = self.mechanism, self.cohort - survivors
        if mechanism is None or self.added_by != "share" or not self.topped_up or not missing:
            return None
        return self._drawn(missing, noise)

    def server_noise(self, noise: Keystream) -> NDArray[np.int64] | None:
        """Return what a trusted server adds, once, to the sum of a release's sessions.

        However many sessions there are and whichever failed, a client is in one: its sensitivity,
        and so the noise, is that of one.

        Returns
        -------
        ndarray of int64 or None
            Shape (length,); None where clients add the noise.
        """
        if self.mechanism is None or self.added_by != "server":
            return None
        return self._drawn(1, noise)

    def summed_noise(self, survivors: int, noise: Keystream) -> NDArray[np.int64] | None:
        """Draw all that clients add to a sum, top-up included, at once: simulations only.

        Shares of a law that is closed under sums have exactly that law. Under the local model it is
        a Gaussian of the sum's variance, rounded once where each client would have rounded its own.

        Parameters
        ----------
        survivors : int
            Contributions in the sum.
        noise : Keystream

        Returns
        -------
        ndarray of int64, shape (length,), or None
            In integer units; None if clients add none.

        Raises
        ------
        ValueError
            For local mechanisms whose sums have no law of their own.
        """
        mechanism, shares = self.mechanism, self._shares(survivors)
        if mechanism is None or self.added_by == "server" or not shares:
            return None
        return self._drawn(shares, noise)

    def is_plausible(self, total: NDArray[np.int64], survivors: int, *, noised: bool) -> bool:
        """Test whether honest clients can have such a sum: see :func:`~.wrapping.is_plausible`.

        Parameters
        ----------
        total : ndarray of int64, shape (length,)
            Centred, before the server adds noise.
        survivors : int
            Contributions in it.
        noised : bool
            Whether contributions carry their noise.

        Returns
        -------
        bool
            Whether the sum may be used.
        """
        carried = noised and self.mechanism is not None and self.added_by != "server"
        within = is_plausible(
            total,
            survivors=survivors,
            bound=self._bound,
            log_tail=self._log_tail if carried else _no_tail,
            slack=self._slack() if carried else 0,
        )
        code = self.encoding
        if isinstance(code, IntegerEncoding) and not code.signed:  # none counts less than nothing
            return within and is_plausible(
                np.minimum(total, 0),
                survivors=0,
                bound=0,
                log_tail=self._log_tail if carried else _no_tail,
            )
        if not self.counts_cuts:
            return within
        return within and are_plausible(self.encoding, total[-COUNTS:], survivors)

    def decode(self, total: NDArray[np.int64]) -> NDArray[np.float64] | NDArray[np.int64]:
        """Return the vector, shape (dimension,), of a centred sum: real, or a query's integers."""
        return self.encoding.decode(total[: self.encoding.length])

    def decode_bit(self, total: NDArray[np.int64]) -> float | None:
        """Return the noised sum of 1[norm <= clip] - quantile in a sum; None where not asked."""
        return float(total[self.encoding.length]) / (2 * BIT_UNITS) if self.adaptive else None

    def decode_cuts(self, total: NDArray[np.int64], clients: int) -> CutCounts | None:
        """Decode how many coordinates were cut.

        Parameters
        ----------
        total : ndarray of int64, shape (length,)
            Centred.
        clients : int
            Contributions in it.

        Returns
        -------
        CutCounts or None
            None where cuts are not counted.
        """
        if not self.counts_cuts:
            return None
        return decoded_counts(self.encoding, total[-COUNTS:], clients)

    def _add_encoded(
        self,
        update: ArrayLike,
        total: VectorSum,
        rounding: Keystream,
        whose: str,
        unusable: Callable[[Exception], None],
    ) -> None:
        """Add an encoded update to a sum; under privacy nothing for one that is unusable."""
        try:
            self._encode(update, total, rounding, whose)
        except Exception as raised:  # whatever a task may return, down to integers beyond any float
            error = _with_cure(raised)
            if not self.private:
                raise UnusableUpdateError(str(error)) from raised
            logger.warning("the update is unusable, %s: %s", ZERO_SENT, error)
            unusable(error)

    def _encode(self, update: ArrayLike, total: VectorSum, rounding: Keystream, whose: str) -> None:
        """Clip and encode into a sum, then the bit and the counts, and log what the range cut."""
        if isinstance(update, np.ma.MaskedArray):  # what it leaves out would count
            raise ValueError("an update is all of its entries, not a masked array: fill it")
        code, end = self.encoding, self.encoding.length
        bit: list[int] = []
        if self.quantile is not None and code.clip is not None:
            within, beyond = bit_values(self.quantile)
            bit = [within if norm_is_within(update, code.clip) else beyond]
        cuts: list[Cut] = []
        kind = self._clip(update, total, rounding, cuts.append)
        cut = cuts[-1] if cuts else None
        if cut is not None:
            log_cut(whose, cut, " (encoding.range)")
        if bit:
            total.add(np.array(bit, kind), end)
        if self.counts_cuts and cut is not None:
            total.add(encoded_counts(code, cut).astype(kind), end + len(bit))

    def _clip(
        self, update: ArrayLike, total: VectorSum, rounding: Keystream, on_cut: OnCut
    ) -> type[np.signedinteger[Any]]:
        """Clip and encode into a sum, and return the type of the integers that were added.

        A sum of clipped records is clamped only, by the encoding.
        """
        code = self.encoding
        quick = not self.adaptive and isinstance(update, np.ndarray)
        if quick and code.add_clipped(np.asarray(update), rounding, total, on_cut):
            return np.int32
        if code.clip is not None and code.rule != "records":
            update = clip_to_norm(update, code.clip, 1 if code.rule == "l1" else 2)
        total.add(code.encode(update, rounding, on_cut), keep=True)
        return np.int64

    def _own_mechanism(self, noise: Keystream | None) -> Mechanism | None:
        """Return the mechanism of noise that a client adds to its own vector; None without."""
        return None if noise is None or self.added_by == "server" else self.mechanism

    def _noised(
        self, encoded: NDArray[np.signedinteger[Any]], noise: Keystream | None
    ) -> NDArray[np.signedinteger[Any]]:
        mechanism = self._own_mechanism(noise)
        if mechanism is None or noise is None:
            return encoded
        noised = mechanism.apply(encoded.astype(np.int64, copy=False), noise)
        return _checked(noised, self.length, mechanism, "apply")

    def _drawn(self, shares: float, noise: Keystream) -> NDArray[np.int64] | None:
        """Draw the noise of so many contributions; None without a mechanism."""
        if self.mechanism is None:
            return None
        drawn = self.mechanism.noise(shares, self.length, noise)
        return _checked(drawn, self.length, self.mechanism, "noise")

    @property
    def _bound(self) -> int:
        """Largest magnitude of a coordinate of a contribution, bounded noise included."""
        code, mechanism = self.encoding, self.mechanism
        bound = code.bound if mechanism is None else mechanism.bound(code)
        return bound if self.quantile is None else max(bound, *map(abs, bit_values(self.quantile)))

    def _log_tail(self, margin: float) -> float:
        """Return ln of a bound on P(a whole cohort's noise > margin), in one coordinate."""
        return -math.inf if self.mechanism is None else self.mechanism.log_tail(self.cohort, margin)

    def _slack(self) -> int:
        return 0 if self.mechanism is None else self.mechanism.slack(self.cohort)

    def _ring_bits_needed(self) -> int:
        return ring_bits_needed(
            self.cohort, self._bound, self._log_tail, self.length, slack=self._slack()
        )

    def _log2_wrap(self, bits: int) -> float:
        return log2_wrap_probability(
            bits,
            cohort=self.cohort,
            bound=self._bound,
            log_tail=self._log_tail,
            dimension=self.length,
            slack=self._slack(),
        )


def _exactly(value: object) -> str:
    if not isinstance(value, Fraction):
        raise TypeError(f"{type(value).__name__} in the parameters of a mechanism")
    return str(value)


def _no_tail(margin: float) -> float:
    return -math.inf


def _described(mechanism: Mechanism) -> dict[str, object]:
    """Return a mechanism's class and fields: sessions are bound to them."""
    fields: dict[str, object] = asdict(mechanism)  # type: ignore[call-overload]
    fields = {key: str(v) if isinstance(v, Fraction) else v for key, v in fields.items()}
    return {"name": type(mechanism).__name__} | fields
