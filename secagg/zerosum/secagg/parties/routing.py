"""Sealed shares on their way: in by sender, out by recipient, in memory of one copy."""

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.messages.all_messages import SEALED_BYTES


class Envelopes:
    """The envelopes of one session.

    Parameters
    ----------
    size : int
        The cohort's size.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._recipients: list[NDArray[np.intp]] = []
        self._sealed: list[NDArray[np.uint8]] = []
        self._starts = np.zeros(size + 1, np.intp)
        self._sorted = np.empty((0, SEALED_BYTES), np.uint8)

    def add(self, recipients: NDArray[np.intp], sealed: NDArray[np.uint8]) -> None:
        """Take the envelopes of one sender; senders come in ascending order.

        Parameters
        ----------
        recipients : ndarray of int, shape (m,)
            Cohort positions.
        sealed : ndarray of uint8, shape (m, 88)
        """
        self._recipients.append(recipients)
        self._sealed.append(sealed)

    def sort(self) -> None:
        """End the taking."""
        recipients = np.concatenate([np.empty(0, np.intp), *self._recipients])
        order = np.argsort(recipients, kind="stable")
        self._sorted = np.concatenate([self._sorted, *self._sealed])[order]
        self._starts[1:] = np.cumsum(np.bincount(recipients, minlength=self._size))
        self._recipients.clear()
        self._sealed.clear()

    def to(self, position: int) -> bytes:
        """Return the envelopes for one recipient, in the order of their senders."""
        return self._sorted[self._starts[position] : self._starts[position + 1]].tobytes()
