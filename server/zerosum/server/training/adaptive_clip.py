"""Move the clip towards a quantile of the updates' norms, by a noised count of bits."""

import math

from zerosum.client.spec import PrivacySpec

SMALLEST, LARGEST = 1e-12, 1e12
"""Where a clip that runs away is stopped."""


class Clip:
    """The clip of the round to come; :meth:`follow` moves it when a round's sum is opened.

    Andrew, Thakkar, McMahan, Ramaswamy, "Differentially private learning with adaptive clipping"
    (2021), Algorithm 1: S <- S exp(-eta (b - quantile)), with b the noised fraction of updates
    whose norm was at most S.

    A client's bit is 1[norm <= S] - quantile, not theirs less 1/2: then a sum is centred where the
    quantile is met, however many take part. Of s survivors, divided by the expected m, this
    estimates quantile + s/m (b - quantile), so that dropouts slow the clip down, and theirs
    1/2 + s/m (b - 1/2), which moves its goal from the quantile by (m/s - 1)(quantile - 1/2): at
    15 % dropouts 90 % becomes 97 %, and 93 % is out of reach. The realised s, which would mend
    that too, is not for outsiders to learn. At the median both are one.

    Parameters
    ----------
    privacy : PrivacySpec
        First clip, quantile and rate; without adaptive clipping the clip stays.
    value : float, optional
        From a checkpoint.
    """

    def __init__(self, privacy: PrivacySpec, value: float | None = None) -> None:
        self._privacy = privacy
        self.value = privacy.clip if value is None else value

    @property
    def privacy(self) -> PrivacySpec:
        """The privacy section of the round to come."""
        if not self._privacy.adaptive:
            return self._privacy
        return self._privacy.model_copy(update={"clip": self.value})

    def follow(self, bit: float | None, clients: float) -> float | None:
        """Move the clip towards its quantile, and return the fraction of norms below it.

        Parameters
        ----------
        bit : float or None
            Sum of 1[norm <= clip] - quantile, noised.
        clients : float
            What the sum is divided by: the expected cohort under DP.

        Returns
        -------
        float or None
            The fraction of small norms, noised; None where nothing adapts.
        """
        if bit is None or self.value is None:
            return None
        fraction = bit / clients + self._privacy.clip_quantile
        # Noise may take the fraction far beyond [0, 1]; nothing is learnt from how far.
        inside = min(1.0, max(0.0, fraction))
        moved = self.value * math.exp(
            -self._privacy.clip_rate * (inside - self._privacy.clip_quantile)
        )
        self.value = min(LARGEST, max(SMALLEST, moved))
        return inside
