"""Recovering the secrets of many dealers from the shares that the live clients released."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from zerosum.secagg.decoding import recover_around
from zerosum.secagg.shamir import from_limbs, leave_one_out_weights, weigh

Check = Callable[[int, bytes], bool]


@dataclass
class Recovered:
    """What could be recovered.

    Attributes
    ----------
    secrets : dict
        Dealer's position to its checked secret.
    faulty : set of int
        Positions of holders found to have given wrong shares.
    failed : dict
        Position of a dealer whose secret could not be recovered, to the positions of the
        holders that may be at fault.
    """

    secrets: dict[int, bytes] = field(default_factory=dict)
    faulty: set[int] = field(default_factory=set)
    failed: dict[int, tuple[int, ...]] = field(default_factory=dict)


def recover(
    dealers: Sequence[int],
    shares: NDArray[np.uint32],
    given: NDArray[np.bool_],
    threshold: int,
    check: Check,
) -> Recovered:
    """Recover one secret of each dealer, and decode around wrong shares.

    Parameters
    ----------
    dealers : sequence of int
        Cohort positions.
    shares : ndarray of uint32, shape (n, n, 9)
        By holder, then dealer.
    given : ndarray of bool, shape (n, n)
        Which shares were given, by holder, then dealer.
    threshold : int
        t.
    check : callable
        Tells whether a recovered secret is the one that a dealer committed to.
    """
    out = Recovered()
    bases: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    for dealer in dealers:
        base = _base(np.flatnonzero(given[:, dealer]).tolist(), dealer, threshold)
        if base is None:
            out.failed[dealer] = ()
        else:
            left_out = base.index(dealer) if dealer in base else threshold
            bases[base].append((dealer, left_out))
    suspicious: list[int] = []
    for base, members in bases.items():
        for dealer, secret in _recover_group(base, members, shares):
            if secret is not None and check(dealer, secret):
                out.secrets[dealer] = secret
            else:
                suspicious.append(dealer)
    for dealer in suspicious:
        _recover_alone(dealer, shares, given, threshold, check, out)
    return out


def _base(holders: list[int], dealer: int, threshold: int) -> tuple[int, ...] | None:
    """Return t + 1 positions of which all but one hold shares of the dealer and are used.

    The one left out is the dealer itself where it is among them, so that dealers with the same
    live holders have the same base.
    """
    if len(holders) < threshold:
        return None
    if len(holders) > threshold and dealer > holders[threshold]:
        return tuple(holders[: threshold + 1])
    return tuple(sorted([*holders, dealer])[: threshold + 1])


def _recover_group(
    base: tuple[int, ...], members: list[tuple[int, int]], shares: NDArray[np.uint32]
) -> list[tuple[int, bytes | None]]:
    weights = leave_one_out_weights(tuple(position + 1 for position in base))
    dealers = [dealer for dealer, _ in members]
    rows = weights[[left_out for _, left_out in members]]
    limbs = weigh(rows, shares[np.ix_(base, dealers)])
    return [(dealer, from_limbs(row)) for dealer, row in zip(dealers, limbs.tolist(), strict=True)]


def _recover_alone(
    dealer: int,
    shares: NDArray[np.uint32],
    given: NDArray[np.bool_],
    threshold: int,
    check: Check,
    out: Recovered,
) -> None:
    """Decode around wrong shares, leaving out first the holders known to give such."""
    holders = np.flatnonzero(given[:, dealer]).tolist()
    trusted = [holder for holder in holders if holder not in out.faulty]
    for among in (trusted, holders) if len(trusted) < len(holders) else (holders,):
        if len(among) < threshold:
            continue
        found = recover_around(
            [holder + 1 for holder in among],
            shares[among, dealer],
            threshold,
            lambda secret: check(dealer, secret),
        )
        if found is not None:
            out.secrets[dealer] = found[0]
            out.faulty.update(among[place] for place in found[1])
            return
    out.failed[dealer] = tuple(holders)
