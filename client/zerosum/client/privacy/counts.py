"""Build the noise of a query's counts, alike at the client and at the server."""

from fractions import Fraction
from typing import Final

from zerosum.client.privacy.block_noise import BlockNoise
from zerosum.client.privacy.registry import COUNTING, guaranteed_shares

_KINDS: Final = {(law, kind.added_by): kind for law, kind in COUNTING}


def counting_mechanism(
    law: str,
    scale: float,
    cohort: int,
    honest_fraction: float | Fraction,
    moves: tuple[int, ...],
    *,
    central: bool = False,
) -> BlockNoise:
    """Build the mechanism of a query's integer blocks.

    Parameters
    ----------
    law : {"geometric", "skellam"}
        Of the noise.
    scale : float
        Of the guaranteed noise, in integer units: s of geometric noise, the standard deviation of
        Skellam noise.
    cohort : int
        n, the clients of the smallest session of the run.
    honest_fraction : float or Fraction
        Fraction of them whose shares are guaranteed, as asked for: the shares are divided by
        :func:`guaranteed_fraction`, which may be less.
    moves : tuple of int
        What one unit moves in each block at most, under the query's adjacency.
    central : bool
        Whether a trusted server adds the noise, once.

    Returns
    -------
    BlockNoise
        A frozen :class:`~zerosum.client.privacy.mechanism.Mechanism`.

    Raises
    ------
    ValueError
        If there is no such law, or a parameter is out of its range.
    """
    fraction = guaranteed_fraction(law, honest_fraction, cohort)
    return _kind(law, central=central).of_query(scale, fraction * cohort, moves)


def guaranteed_fraction(law: str, honest_fraction: float | Fraction, cohort: int) -> Fraction:
    """Return the f by which a query's noise is divided, topped up and guaranteed.

    Parameters
    ----------
    law : {"geometric", "skellam"}
        Of the noise.
    honest_fraction : float or Fraction
        As asked for; a float is read as the decimal number that was written.
    cohort : int
        n, the clients of the smallest session of the run.

    Returns
    -------
    Fraction
        For geometric noise at most 1 - 1/n, so that fellow clients face all of it.

    Raises
    ------
    ValueError
        If there is no such law, no client, or a fraction out of (0, 1].
    """
    if cohort < 1:
        raise ValueError(f"a cohort has at least one client, not {cohort}")
    if not 0 < honest_fraction <= 1:
        raise ValueError(f"honest_fraction has to be above 0 and at most 1, not {honest_fraction}")
    return _kind(law).guaranteed_fraction(guaranteed_shares(honest_fraction, 1), cohort)


def _kind(law: str, *, central: bool = False) -> type[BlockNoise]:
    kind = _KINDS.get((law, "server" if central else "share"))
    if kind is None:
        where = "that a trusted server adds" if central else "that clients share"
        laws = " or ".join(name for name, by in _KINDS if by == ("server" if central else "share"))
        raise ValueError(f"there is no noise of law {law!r} {where}: write {laws}")
    return kind
