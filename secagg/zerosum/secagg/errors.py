"""Errors, by whose fault they are.

:class:`LocalProtocolError` is our caller's mistake and is fixed by changing code.
:class:`RemoteProtocolError` is the peer's: the party that raises it has not changed its state,
and its caller treats the peer as one that dropped out.
"""

# The kinds are named for what happened, as h11 names its events, without a suffix.

from collections.abc import Sequence


class SecAggError(Exception):
    """Base of everything this package raises on purpose."""


class LocalProtocolError(SecAggError):
    """The caller misused a party: a wrong argument, or a party that is finished."""


class NoFeasibleGraph(LocalProtocolError):
    """No masking graph stands so many colluders and dropouts; the message says what would do."""


class RemoteProtocolError(SecAggError):
    """The peer sent what the protocol does not allow; the state is unchanged."""


class MalformedMessage(RemoteProtocolError):
    """The bytes are not the canonical encoding of the message expected."""


class UnknownVersion(MalformedMessage):
    """The message is of a protocol version that this one does not speak."""


class WrongSession(RemoteProtocolError):
    """The message belongs to another session: another run, round, attempt or parameters."""


class WrongParty(RemoteProtocolError):
    """The message was made by, or for, another client, or the sender is not in the cohort."""


class OutOfOrder(RemoteProtocolError):
    """The message belongs to another stage."""


class DuplicateMessage(OutOfOrder):
    """The sender's message of the current stage was already accepted."""


class ConflictingMessage(RemoteProtocolError):
    """A different message was already answered at this stage of this session."""


class AlreadyContributed(RemoteProtocolError):
    """The masked vector of this session was made before and is never made again."""


class StateLost(RemoteProtocolError):
    """The session was begun by a process whose volatile state is gone."""


class BadKey(RemoteProtocolError):
    """A public key is not acceptable."""


class LowOrderKey(BadKey):
    """A public key of low order, which would make every agreement zero."""


class NonCanonicalKey(BadKey):
    """A public key that is not the canonical encoding of a field element."""


class DuplicateKey(BadKey):
    """Two public keys of one session are equal."""


class AdvertMismatch(RemoteProtocolError):
    """Our own advert was left out of the broadcast, or changed."""


class BadSurvivorSet(RemoteProtocolError):
    """A set of survivors that the protocol's rules exclude."""


class BadShare(RemoteProtocolError):
    """A share that cannot be one: out of range, or for a dealer who gave none."""


class RequestMismatch(RemoteProtocolError):
    """The contribution answers another request than the one that was asked."""


class BadSignature(RemoteProtocolError):
    """A signature is missing, or is not by the client that the roster names."""


class TooFewSignatures(BadSignature):
    """Fewer neighbours than the threshold signed the set of survivors."""


class WrongRoster(RemoteProtocolError):
    """The session is bound to another roster than the one that this party holds."""


class OldRoster(WrongRoster):
    """A roster older than one seen before, or another one of the same version."""


class StaleSession(RemoteProtocolError):
    """The session's round and attempt are not later than those of one joined before."""


class PolicyRefusal(RemoteProtocolError):
    """The session is valid, and this client's own policy does not take part in it."""


class ServerModeRefused(PolicyRefusal):
    """The session trusts the server with more than the policy does: a downgrade."""


class ProtocolRefused(PolicyRefusal):
    """The session would show the server more than the policy does: a protocol that trusts it."""


class CohortTooSmall(PolicyRefusal):
    """The cohort is smaller than the policy's smallest."""


class VectorTooLong(PolicyRefusal):
    """The vector is longer than the policy's longest."""


class MinSurvivorsTooLow(PolicyRefusal):
    """A sum of fewer clients than the policy asks for could be opened."""


class BoundsRefused(PolicyRefusal):
    """The policy does not accept the encoding and privacy parameters."""


class UnsafeGraph(PolicyRefusal):
    """The session's degree or threshold is unsafe under the client's own policy.

    Attributes
    ----------
    term : str
        What is wrong: ``cohort``, ``degree``, ``threshold``, ``secrecy`` or ``connectivity``.
    log2_probability : float or None
        Binary logarithm of the bound on the probability of that failure, for the last two.
    """

    def __init__(
        self, term: str, n: int, degree: int, threshold: int, log2_probability: float | None = None
    ) -> None:
        fault = (
            f"its {term} is out of range"
            if log2_probability is None
            else f"{term} may fail with probability 2^{log2_probability:.1f}"
        )
        super().__init__(
            f"a graph of {n} clients with degree {degree} and threshold {threshold}: {fault}"
        )
        self.term = term
        self.log2_probability = log2_probability


class TooFewSurvivors(SecAggError):
    """The session ends: too few clients are left.

    Attributes
    ----------
    stage : str
        The stage whose end found too few.
    survivors, needed : int
        How many were left, and how many had to be.
    client : int or None
        Where the survivors that count are those who hold shares of one client: its roster index.
    """

    def __init__(self, stage: str, survivors: int, needed: int, client: int | None = None) -> None:
        who = "clients" if client is None else f"neighbours of client {client}"
        super().__init__(f"after {stage}, {survivors} {who} are left and {needed} are needed")
        self.stage = stage
        self.survivors = survivors
        self.needed = needed
        self.client = client


class ReconstructionFailed(SecAggError):
    """The session ends: a secret could not be recovered, so no sum is given.

    Attributes
    ----------
    dealer : int
        Roster index of the client whose secret it was.
    candidates : tuple of int
        Roster indices of those who may be at fault: those of ``liars`` first, then the dealer and
        everybody who holds shares of it, known liars too.
    liars : tuple of int
        Roster indices of those proved to have lied, by this secret or by others.
    wrong_shares : tuple of (int, int)
        Dealer and holder of each wrong share that was found: the holder gave it, or was dealt it.
    """

    def __init__(
        self,
        dealer: int,
        candidates: Sequence[int],
        reason: str,
        *,
        liars: Sequence[int] = (),
        wrong_shares: Sequence[tuple[int, int]] = (),
    ) -> None:
        known = f"known to lie: {', '.join(map(str, liars))}; " if liars else ""
        ordered = [*liars, *(index for index in candidates if index not in liars)]
        names = ", ".join(map(str, ordered))
        super().__init__(f"the secret of client {dealer} {reason}; {known}at fault may be: {names}")
        self.dealer = dealer
        self.candidates = tuple(ordered)
        self.liars = tuple(liars)
        self.wrong_shares = tuple(wrong_shares)
