"""Play sessions of the protocol among real clients, around a server that may lie.

A real server serves each session. A curious one delivers its messages; a lying one chooses, message
by message, what each client gets instead. Clients are real parties in both, and only bytes leave
this module.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from zerosum.client.protocol.protection import Protection
from zerosum.secagg import (
    ClientParty,
    IdealClientParty,
    IdealServerParty,
    IdentityKey,
    Message,
    Protocol,
    RemoteProtocolError,
    Roster,
    SecAggError,
    ServerMode,
    ServerParty,
    Session,
    Step,
    decode,
    request_digest,
)
from zerosum.secagg.graph.parameters import graph_parameters
from zerosum.secagg.randomness import Keystream, derive_seed, numpy_generator
from zerosum.secagg.stages import Stage
from zerosum.simulations.attacks.harness.interface import Defense, Scene, ThreatModel, View
from zerosum.simulations.attacks.harness.sealed_view import sealed
from zerosum.simulations.attacks.harness.to_specs import check_played, encoding_of, privacy_of
from zerosum.simulations.attacks.protocol.updates import first_steps
from zerosum.simulations.attacks.protocol.weakened import Weakness, client_of

M = TypeVar("M", bound=Message)

REQUEST = request_digest(b"attacked sessions")


@dataclass(frozen=True)
class Said:
    """Hold one exchange with one client.

    Attributes
    ----------
    stage : str
    client : int
        Roster index.
    asked, answer : bytes
        Canonical bytes; nothing is asked at advertise, and a client that refuses does not answer.
    """

    stage: str
    client: int
    asked: bytes
    answer: bytes


@dataclass(frozen=True)
class Transcript:
    """Hold all bytes that a server saw in one session, and what colluders gave it.

    Attributes
    ----------
    session : bytes
        Canonical bytes.
    victim : int
        Roster index of the attacked client.
    said : tuple of Said
        In the order of the exchanges.
    states : mapping of int to bytes
        Each colluder's exported state after contribute, by roster index.
    identities : mapping of int to bytes
        Each colluder's private signing key, by roster index.
    """

    session: bytes
    victim: int
    said: tuple[Said, ...] = ()
    states: Mapping[int, bytes] = field(default_factory=dict)
    identities: Mapping[int, bytes] = field(default_factory=dict)

    def opened(self) -> Session:
        """Return the session."""
        return Session.from_bytes(self.session)

    def answers(self, stage: str) -> tuple[Said, ...]:
        """Return the exchanges of a stage that the client answered."""
        return tuple(one for one in self.said if one.stage == stage and one.answer)

    def answer(self, stage: str, client: int, kind: type[M]) -> M:
        """Return a client's first answer at a stage.

        Parameters
        ----------
        stage : str
        client : int
            Roster index.
        kind : type
            The message's class.

        Returns
        -------
        Message
            Of that class.

        Raises
        ------
        LookupError
            If it did not answer.
        """
        for exchange in self.answers(stage):
            if exchange.client == client:
                return decode(exchange.answer, kind, self.opened())
        raise LookupError(f"client {client} did not answer at {stage}")


@dataclass(frozen=True)
class SessionsView(View):
    """Hold what a server has of some sessions; ``stopped`` names what clients refused.

    Attributes
    ----------
    trials : tuple of tuple of Transcript, or None
        The sessions of each trial, in the order of its rounds. Trials are independent.
    """

    trials: tuple[tuple[Transcript, ...], ...] | None = None


@dataclass(frozen=True)
class SessionsSetting:
    """Play sessions in each of which the server wants one client's update.

    An attack with a method ``respond(stage, client, message, seen) -> tuple of bytes`` lies: it
    returns the messages, none or several, that a client gets at a stage instead of ``message``, the
    real server's (b"" once it has none). ``seen`` is the :class:`Transcript` so far.

    Attributes
    ----------
    clients : int
        In each cohort; the graph is complete.
    trials : int
        Independent ones, each with other records, keys, victim and colluders.
    colluders : int
        Clients that follow the protocol and give the server all their secrets.
    rounds : int
        Sessions in a trial, with the same clients.
    late : bool
        Whether the victim's contribution arrives after the stage was closed: the server has it and
        counts the victim as a dropout.
    weakness : str
        The part of the protocol that the clients lack.
    same_seed : bool
        Whether each client draws the same seed in all rounds: a broken source of randomness.
    records : int
        Of each client and round, 8x8 digits; its update is a step of a linear model on them.
    """

    clients: int = 9
    trials: int = 10
    colluders: int = 0
    rounds: int = 1
    late: bool = False
    weakness: Weakness = "none"
    same_seed: bool = False
    records: int = 20

    @property
    def name(self) -> str:
        """Return the row's name in the table."""
        parts = [
            f"{self.clients} clients",
            f"{self.colluders} colluding" if self.colluders else "",
            f"{self.rounds} rounds" if self.rounds > 1 else "",
            "one contribution arrives late" if self.late else "",
            "every round the same seed" if self.same_seed else "",
            "" if self.weakness == "none" else f"{self.weakness} left out",
        ]
        return ", ".join(filter(None, parts))

    def play(self, attack: Any, protection: Defense, seed: int) -> Scene:
        """Play the sessions; see :class:`~.interface.Setting`."""
        check_played(protection, ("masking", "threshold", "bits", "clip", "seed_bits", "confirm"))
        played = [self._trial(attack, protection, seed, trial) for trial in range(self.trials)]
        refused = dict.fromkeys(name for trial in played for name in trial.refused)
        view = SessionsView(
            replace(attack.threat, colluders=self.colluders, rounds=self.rounds),
            protection,
            f"clients refused: {', '.join(refused)}" if refused else "",
            tuple(tuple(trial.transcripts) for trial in played),
        )
        return Scene(view, _truth(played), math.inf)

    def _trial(self, attack: Any, protection: Defense, seed: int, trial: int) -> "_Trial":
        done = _Trial()
        for number in range(self.rounds):
            play = _Play(self, protection, _Draws(seed, trial, number, self))
            play.run(getattr(attack, "respond", None))
            done.transcripts.append(play.seen)
            done.refused.update(dict.fromkeys(play.refused))
            done.updates.append(play.truth)
        return done


@dataclass
class _Trial:
    transcripts: list[Transcript] = field(default_factory=list)
    updates: list[np.ndarray] = field(default_factory=list)
    refused: dict[str, None] = field(default_factory=dict)


def _truth(played: Sequence[_Trial]) -> dict[str, np.ndarray]:
    """Return the victims' ring vectors of the first round, and the changes to the second."""
    truth = {"updates": np.stack([trial.updates[0] for trial in played])}
    if len(played[0].updates) > 1:
        ring = played[0].transcripts[0].opened().ring
        changes = np.stack([trial.updates[1] - trial.updates[0] for trial in played])
        truth["changes"] = ring.reduce(changes)
    return truth


@dataclass(frozen=True)
class _Draws:
    """Draw all randomness of one session from its seed."""

    seed: int
    trial: int
    round: int
    setting: SessionsSetting

    def roles(self) -> tuple[int, tuple[int, ...]]:
        """Draw the victim and the colluders, the same in all rounds."""
        order = numpy_generator(self.seed, "victim", self.trial).permutation(self.setting.clients)
        victim, *others = order.tolist()
        return victim, tuple(sorted(others[: self.setting.colluders]))

    def identities(self) -> dict[int, IdentityKey]:
        """Draw the signing keys."""
        return {
            i: IdentityKey.generate(Keystream(derive_seed(self.seed, "identity", self.trial, i)))
            for i in range(self.setting.clients)
        }

    def source(self, client: int) -> Keystream:
        """Return the randomness that a party draws its seed from."""
        number = 0 if self.setting.same_seed else self.round
        return Keystream(derive_seed(self.seed, "party", self.trial, number, client))

    def rounding(self, client: int) -> Keystream:
        """Return the randomness of a client's stochastic rounding."""
        return Keystream(derive_seed(self.seed, "rounding", self.trial, self.round, client))

    def updates(self) -> np.ndarray:
        """Return the clients' updates, float64, shape (clients, d)."""
        rng = numpy_generator(self.seed, "updates", self.trial, self.round)
        return first_steps(self.setting.clients, self.setting.records, rng)


class _Play:
    """Run one session; parties do not leave this object."""

    def __init__(self, setting: SessionsSetting, protection: Defense, draws: _Draws) -> None:
        self._setting, self._protection = setting, protection
        self._victim, self._colluders = draws.roles()
        self._identities = draws.identities()
        keys = {i: key.public for i, key in self._identities.items()}
        self._roster = Roster(1, keys)
        self._vectors = self._encoded(draws)
        self._session = self._open(draws)
        self._clients = {i: self._client(i, draws) for i in self._session.cohort}
        self._server: Any = (
            ServerParty(self._session, roster=self._roster)
            if protection.masked
            else IdealServerParty(self._session)
        )
        self._messages: dict[int, bytes] = dict.fromkeys(self._session.cohort, b"")
        self.refused: list[str] = []
        self.seen = Transcript(self._session.to_bytes(), self._victim)

    @property
    def truth(self) -> np.ndarray:
        """Return the victim's ring vector."""
        return self._session.ring.encode(self._vectors[self._victim])

    def _encoded(self, draws: _Draws) -> list[np.ndarray]:
        """Encode the updates as clients encode theirs."""
        updates = draws.updates()
        count, dimension = updates.shape
        built = Protection.build(
            privacy_of(self._protection, count, dimension),
            encoding_of(self._protection),
            cohort=count,
            dimension=dimension,
            rotation_seed=bytes(32),
        )
        self._ring_bits = built.ring_bits
        return [
            built.protect(update, rounding=draws.rounding(i), noise=None).astype(np.int64)
            for i, update in enumerate(updates)
        ]

    def _open(self, draws: _Draws) -> Session:
        n = self._setting.clients
        mode = ServerMode.MALICIOUS if self._protection.confirm else ServerMode.SEMI_HONEST
        threshold = self._protection.threshold
        if threshold is None:
            threshold = graph_parameters(n, dropout=0.2, corruption=0.1, server=mode).threshold
        return Session(
            run_id=derive_seed(draws.seed, "attacked sessions", draws.trial)[:16],
            round=draws.round,
            attempt=0,
            roster_version=self._roster.version,
            roster_digest=self._roster.digest,
            cohort=tuple(range(n)),
            degree=n - 1,
            threshold=threshold,
            min_survivors=2,
            ring_bits=self._ring_bits,
            vector_length=len(self._vectors[0]),
            mode=mode,
            protocol=Protocol.PAIRWISE if self._protection.masked else Protocol.IDEAL,
        )

    def _client(self, index: int, draws: _Draws) -> ClientParty | IdealClientParty:
        kind: type[ClientParty] | type[IdealClientParty] = IdealClientParty
        if self._protection.masked:
            kind = client_of(self._protection, self._setting.weakness)
        identity, source = self._identities[index], draws.source(index)
        return kind(self._session, index, identity=identity, roster=self._roster, source=source)

    def run(self, respond: Callable[..., tuple[bytes, ...]] | None) -> None:
        """Play all stages."""
        for stage in self._session.stages:
            for client in self._session.cohort:
                for message in self._asked(stage, client, respond):
                    self._deliver(stage, client, message)
            if stage == Stage.CONTRIBUTE:
                self._collude()
            self._close(stage)

    def _asked(
        self, stage: str, client: int, respond: Callable[..., tuple[bytes, ...]] | None
    ) -> tuple[bytes, ...]:
        """Return a client's messages: a liar's, who is given bytes, or the real server's."""
        if respond is not None:
            seen = sealed_transcript(self.seen)
            return tuple(respond(stage, client, self._messages.get(client, b""), seen))
        return (self._messages[client],) if client in self._messages else ()

    def _deliver(self, stage: str, client: int, message: bytes) -> None:
        answer = b""
        try:
            answer = self._answer(stage, client, message).send.to_bytes()
        except RemoteProtocolError as error:
            self.refused.append(f"{type(error).__name__} at {stage}")
        # A view holds plain data alone.
        said = Said(str(stage), client, message, answer)
        self.seen = replace(self.seen, said=(*self.seen.said, said))
        late = self._setting.late and stage == Stage.CONTRIBUTE and client == self._victim
        if answer and not late and self._server.stage == stage:
            with suppress(RemoteProtocolError):  # answers to a lie are none to the real server
                self._server.receive(client, answer)

    def _answer(self, stage: str, client: int, message: bytes) -> Step:
        party = self._clients[client]
        if stage == Stage.ADVERTISE:
            return party.advertise()
        if stage == Stage.CONTRIBUTE:
            return party.contribute(message, self._vectors[client])
        step: Step = getattr(party, stage)(message)
        return step

    def _collude(self) -> None:
        """Take the colluders' secrets, before the parties finish and erase them."""
        self.seen = replace(
            self.seen,
            states={i: bytes(self._clients[i].export()) for i in self._colluders},
            identities={i: self._identities[i].to_bytes() for i in self._colluders},
        )

    def _close(self, stage: str) -> None:
        self._messages = {}
        if self._server.stage != stage:
            return
        with suppress(SecAggError):  # the session fails; a liar goes on without it
            found = self._server.close(REQUEST if stage == Stage.SHARE else None)
            self._messages = {i: message.to_bytes() for i, message in found.items()}


def sealed_transcript(transcript: Transcript) -> Transcript:
    """Return a transcript that holds bytes alone: see :func:`~.sealed_view.sealed`."""
    holder = SessionsView(ThreatModel("malicious server"), Defense(""), trials=((transcript,),))
    ((plain,),) = sealed(holder).trials or ((transcript,),)
    return plain
