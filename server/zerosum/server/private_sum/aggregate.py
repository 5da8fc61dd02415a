"""From the sessions of a private sum to what was asked for: one noised real vector."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from zerosum.client.protocol.noise_source import Entropy
from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.saturation_counts import CutCounts
from zerosum.client.request import Request
from zerosum.secagg import IdealServerParty, Ring, Session
from zerosum.secagg.messages.all_messages import Contribution, decode
from zerosum.secagg.parties.interface import Server
from zerosum.server.private_sum.transport import Traffic


@dataclass(frozen=True)
class Sample:
    """One masked contribution: ring words of shape (length,), in their container dtype."""

    vector: np.ndarray
    ring_bits: int


@dataclass(frozen=True)
class Aggregate:
    """Outcome of a private sum.

    Parameters
    ----------
    total : numpy.ndarray
        float64, of a query int64, shape (request.dimension,): sum of the survivors' protected
        vectors.
    survivors : tuple of int
        Roster indices of the clients in the sum, ascending.
    noise_std : float
        Standard deviation of the noise in each coordinate of ``total``: that of the constant total
        where the server tops up, or adds it; otherwise of the survivors' own.
    traffic : Traffic
        What the sum cost.
    sample : Sample, optional
        One masked contribution as received: for the report. Only under ``pairwise``; elsewhere a
        contribution is not the server's to keep.
    contributions : dict, optional
        Under protocol ``none`` alone: each survivor's noised vector, float64, shape (d,).
    failures : tuple of str
        Why groups failed, if some did; each cost its members.
    bit : float, optional
        Under adaptive clipping: the noised sum of 1[norm <= clip] - quantile over the survivors.
    bit_std : float, optional
        Standard deviation of the noise in ``bit``.
    cuts : CutCounts, optional
        Without noise: how many coordinates the encoding's range has cut, over all survivors.
    client_cuts : dict, optional
        Beside ``contributions``: the same of each survivor.
    """

    total: np.ndarray
    survivors: tuple[int, ...]
    noise_std: float
    traffic: Traffic
    sample: Sample | None = None
    contributions: Mapping[int, np.ndarray] | None = None
    failures: tuple[str, ...] = ()
    bit: float | None = None
    bit_std: float | None = None
    cuts: CutCounts | None = None
    client_cuts: Mapping[int, CutCounts] | None = None


@dataclass
class Group:
    """One session of a private sum, from its opening to its sum or its failure."""

    number: int
    session: Session
    protection: Protection
    party: Server
    failure: str = ""

    @cached_property
    def total(self) -> np.ndarray:
        """The opened sum, before the server's noise: centred int64, shape (length,)."""
        return self.session.ring.centre(self.party.result.total)

    def check_sum(self, *, noised: bool) -> None:
        """Fail the group if honest clients cannot have produced its sum.

        Parameters
        ----------
        noised : bool
            Whether contributions carry their noise.
        """
        if self.failure:
            return
        survivors = len(self.party.result.survivors)
        if not self.protection.is_plausible(self.total, survivors, noised=noised):
            self.failure = (
                f"the sum of {survivors} clients exceeds what they can send: one of "
                "them sent another vector than was asked, or the sum wrapped"
            )


def aggregate(
    request: Request,
    opened: Sequence[Group],
    failures: Sequence[str],
    entropy: Entropy,
    traffic: Traffic,
) -> Aggregate:
    """Add the sums of the groups that were opened, and the noise that the server owes.

    A sum lacks the shares of those who dropped out. A group that failed lacks all of them: under
    the distributed model the server adds all of its noise, or the variance of a release would
    tell that it failed. Under the central model it adds noise once, to the sum of all groups.

    Parameters
    ----------
    request : Request
        What was asked.
    opened : sequence of Group
        At least one, none of which failed.
    failures : sequence of str
        Why the others failed.
    entropy : Entropy
        The server's noise.
    traffic : Traffic
        What the sum cost.

    Returns
    -------
    Aggregate
        Of all groups that were opened.
    """
    by_number = {group.number: group for group in opened}
    whole, session = opened[0].protection, opened[0].session
    total = _topped_up(0, by_number.get(0), opened[0], request, entropy)
    for number in range(1, len(opened) + len(failures)):
        total = total + _topped_up(number, by_number.get(number), opened[0], request, entropy)
    once = whole.server_noise(entropy.keystream("top-up", session.round, session.attempt, 0))
    if once is not None:
        total = total + once
    noise_std, bit_std = _noise_of(opened, len(failures))
    survivors = tuple(sorted(i for group in opened for i in group.party.result.survivors))
    return Aggregate(
        total=whole.decode(total),
        survivors=survivors,
        noise_std=noise_std,
        traffic=traffic,
        sample=_sample(by_number, traffic),
        contributions=_contributions(opened),
        failures=tuple(failures),
        bit=whole.decode_bit(total),
        bit_std=bit_std,
        cuts=whole.decode_cuts(total, len(survivors)),
        client_cuts=_client_cuts(opened) if whole.counts_cuts else None,
    )


def _noise_of(opened: Sequence[Group], failed: int) -> tuple[float, float | None]:
    """Return the deviations of the noise in the sum of all groups, and in its bit.

    A group that failed counts with all of its noise where the server tops up, and none elsewhere. A
    trusted server's noise is added once.
    """
    whole = opened[0].protection
    if whole.added_by == "server":
        return whole.std_sum, whole.bit_std_of(0)
    present = [(g.protection, len(g.party.result.survivors)) for g in opened]
    present += [(whole, 0)] * failed
    stds = [protection.std_of(survivors) for protection, survivors in present]
    bits = [protection.bit_std_of(survivors) or 0.0 for protection, survivors in present]
    return math.hypot(*stds), math.hypot(*bits) if whole.adaptive else None


def _topped_up(
    number: int, group: Group | None, like: Group, request: Request, entropy: Entropy
) -> np.ndarray:
    """Return a group's sum with the server's share of the noise, centred int64.

    Noise is added in the ring: what is released is a function of the sum's residue alone.
    """
    protection, session = (group or like).protection, (group or like).session
    ring = Ring(protection.ring_bits)
    if group is None:
        total, survivors = np.zeros(protection.length, dtype=np.int64), 0
    else:
        total, survivors = group.total, len(group.party.result.survivors)
    coins = entropy.keystream("top-up", session.round, session.attempt, number)
    summed = request.question.noise_draw == "summed"
    noise = (protection.summed_noise if summed else protection.top_up)(survivors, coins)
    return total if noise is None else ring.centre(ring.encode(total + noise))


def _sample(groups: Mapping[int, Group], traffic: Traffic) -> Sample | None:
    """Decode the first contribution, if its group was opened."""
    number, message = traffic.sample
    if number not in groups:
        return None
    session = groups[number].session
    return Sample(decode(message, Contribution, session).vector, session.ring_bits)


def _contributions(opened: Sequence[Group]) -> Mapping[int, np.ndarray] | None:
    kept = _kept(opened)
    return None if kept is None else {i: group.protection.decode(v) for i, group, v in kept}


def _client_cuts(opened: Sequence[Group]) -> Mapping[int, CutCounts] | None:
    """Return what each survivor says of its cuts; one that cannot be has said nothing."""
    kept = _kept(opened) or []
    read = ((i, group.protection.decode_cuts(vector, 1)) for i, group, vector in kept)
    return {i: counts for i, counts in read if counts is not None} or None


def _kept(opened: Sequence[Group]) -> list[tuple[int, Group, np.ndarray]] | None:
    """Return each survivor's centred contribution, under protocol none."""
    kept = [g for g in opened if isinstance(g.party, IdealServerParty) and g.party.keeps]
    if not kept:
        return None
    return [
        (index, group, group.session.ring.centre(vector))
        for group in kept
        if isinstance(group.party, IdealServerParty)
        for index, vector in group.party.contributions.items()
    ]
