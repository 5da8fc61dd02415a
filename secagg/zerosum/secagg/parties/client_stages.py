"""State of a client in a session: its stage, its identity, and secrets from its seed."""

from typing import TypeVar

from zerosum.secagg.crypto.cache import SessionCache, SharedCache
from zerosum.secagg.crypto.identity import IdentityKey, Roster
from zerosum.secagg.crypto.keys import Channel, Hkdf, PartySecrets
from zerosum.secagg.errors import AlreadyContributed, LocalProtocolError, OutOfOrder, WrongParty
from zerosum.secagg.graph.graphs import Positions, draw_neighbours, public_graph
from zerosum.secagg.messages.all_messages import (
    Advert,
    Adverts,
    ContributeRequest,
    Message,
    UnmaskShares,
    accept,
)
from zerosum.secagg.messages.durable_record import Decisions
from zerosum.secagg.parties.directory import Directory
from zerosum.secagg.parties.interface import Incoming
from zerosum.secagg.parties.neighbourhood import Neighbourhood
from zerosum.secagg.session import Session
from zerosum.secagg.stages import End, Phase, Repeat, Stage

M = TypeVar("M", bound=Message)


class SessionClient:
    """Follow the phase table at one client, whatever protects its vector."""

    def _join(self, session: Session, index: int, *, masks: bool) -> None:
        if session.masked != masks:
            own = "masked sessions" if masks else "sessions that trust the server"
            raise LocalProtocolError(
                f'a party of {own} was given one with protocol = "{session.protocol}"'
            )
        try:
            self._position = session.position(index)
        except WrongParty as error:
            raise LocalProtocolError(str(error)) from error
        self._session = session
        self._index = index
        self._order: tuple[Stage | End, ...] = (*session.stages, End.DONE)
        self._phase = 0
        self._wiped = False

    @property
    def session(self) -> Session:
        """The session that the party takes part in."""
        return self._session

    @property
    def index(self) -> int:
        """The client's roster index."""
        return self._index

    @property
    def stage(self) -> Stage | End:
        """The stage that comes next: one of the session's, or done."""
        return self._order[self._phase]

    def _enter(self, stage: Stage) -> Phase:
        """Return a stage's row of the phase table, if a message is answered there now."""
        if self._wiped:
            raise LocalProtocolError("the party was wiped")
        phase = self._session.phases.get(stage)
        if phase is None:
            raise OutOfOrder(f"a session under a {self._session.mode} server has no {stage}")
        if self._phase > self._order.index(phase.until) and phase.repeat is Repeat.NEVER:
            raise AlreadyContributed("this session's contribution was already made")
        if not self._order.index(stage) <= self._phase <= self._order.index(phase.until):
            raise OutOfOrder(f"{stage} is not possible: the next stage is {self.stage}")
        return phase

    def _read(self, phase: Phase, expected: type[M], message: Incoming) -> M:
        """Return the message of a stage, of the type that the phase table names."""
        if expected.code is not phase.reads:
            raise OutOfOrder(f"{phase.stage} does not read {expected.__name__}")
        return accept(message, expected, self._session)

    def _advance(self, phase: Phase, persist: tuple[bytes, ...]) -> tuple[bytes, ...]:
        self._phase = max(self._phase, self._order.index(phase.then))
        return persist


class StagedClient(SessionClient):
    """Hold a masking client's secrets, its identity and the messages it answered.

    :class:`~zerosum.secagg.parties.client.ClientParty` fills it and answers messages.
    """

    def _begin(
        self,
        session: Session,
        index: int,
        cache: SharedCache | None,
        decisions: Decisions,
        threads: int,
    ) -> None:
        self._join(session, index, masks=True)
        self._cache: SessionCache | None = None if cache is None else cache.of(session.digest)
        self._decisions = decisions
        self._threads = threads
        self._hkdf = Hkdf(session.digest)
        self._seed = b""
        self._secrets: PartySecrets | None = None
        self._channel: Channel | None = None
        self._named: Positions | None = None
        self._advert: Advert | None = None
        self._adverts: Adverts | None = None
        self._directory: Directory | None = None
        self._around: Neighbourhood | None = None
        self._request: ContributeRequest | None = None
        self._answer: UnmaskShares | None = None

    def _identify(self, identity: IdentityKey | None, roster: Roster | None) -> None:
        self._identity, self._roster = identity, roster
        if self._session.signed and (identity is None or roster is None):
            raise LocalProtocolError(
                "against a malicious server a client needs its identity key and the roster"
            )
        if roster is not None:
            roster.check_session(self._session)
        if identity is None or roster is None:
            return
        if roster.entries.get(self._index) != identity.public:
            raise LocalProtocolError(
                f"the identity key is not the one that the roster holds for {self._index}"
            )

    def wipe(self) -> None:
        """Forget all secrets and refuse everything from now on (best effort in Python)."""
        self._forget()
        self._answer = None
        self._wiped = True

    def _forget(self) -> None:
        self._seed = b""
        if self._cache is not None:
            self._cache.maskers.pop(self._position, None)
            self._cache.views.pop(self._position, None)
        self._secrets = self._channel = self._named = self._advert = None
        self._adverts = self._request = self._directory = self._around = None

    def _own_secrets(self) -> PartySecrets:
        if self._secrets is None:
            self._secrets = PartySecrets.expand(self._seed, self._hkdf, self._index, self._cache)
            if self._cache is not None:
                self._cache.maskers[self._position] = self._secrets.mask
        return self._secrets

    def _own_channel(self) -> Channel:
        if self._channel is None:
            own = self._own_secrets().channel
            self._channel = Channel(self._session.digest, self._index, own, self._cache)
        return self._channel

    def _own_identity(self) -> IdentityKey:
        if self._identity is None:
            raise LocalProtocolError("the party was made without an identity key")
        return self._identity

    def _own_neighbours(self) -> Positions:
        if self._named is None:
            graph = public_graph(self._session)
            if graph is not None:
                self._named = graph.named_by(self._position)
            else:
                seed = self._own_secrets().neighbours
                self._named = draw_neighbours(self._session, self._position, seed)
        return self._named

    def _look_around(self, directory: Directory) -> Neighbourhood:
        named = self._own_neighbours()
        return Neighbourhood.of(self._session, self._position, named, directory)

    def _read_directory(self, adverts: Adverts) -> Directory:
        if self._cache is None or not self._session.complete:
            return Directory.of(adverts, self._session)
        directory: Directory | None = self._cache.broadcasts.get(adverts.digest)
        if directory is None:
            directory = Directory.of(adverts, self._session)
            self._cache.broadcasts[adverts.digest] = directory
        return directory

    def _known(self) -> tuple[Directory, Neighbourhood]:
        """Return the adverts checked at share, read again in a new process."""
        if self._directory is None or self._around is None:
            if self._adverts is None:
                raise OutOfOrder("no adverts were answered in this session")
            directory = self._read_directory(self._adverts)
            self._keep_view(directory, self._look_around(directory))
            return self._known()
        return self._directory, self._around

    def _keep_view(self, directory: Directory, around: Neighbourhood) -> None:
        self._directory, self._around = directory, around
        if self._cache is not None:
            self._cache.views[self._position] = directory, around

    def _answered(self) -> ContributeRequest:
        if self._request is None:
            raise OutOfOrder("no contribution was made in this session")
        return self._request
