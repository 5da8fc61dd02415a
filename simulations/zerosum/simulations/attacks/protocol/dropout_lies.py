"""Lie about dropouts: a server reports living clients as dropped, and gets their keys' shares.

Pairwise masks alone fall to it (Bonawitz et al., "Practical secure aggregation" (CCS 2017), section
4, "Double-masking"): the shares that remove the masks of a dropout remove those of any client. Self
masks require shares of two kinds, t of each, and an honest client gives one kind.

A server may show clients two sets of survivors. Let k clients hold shares of the victim's secrets,
and c of them collude and give both kinds. The server tells t - c honest holders that the victim
lives, and the other k - t that it dropped. These and the colluders have to be t: c >= 2 t - k.

Where t others must have signed the same set first (section 6, the consistency check), each of the
k - t has k - t - 1 honest others and c colluders: c >= 2 t - k + 1. With c >= t the colluders need
nobody. Both bounds are sharp, and of the complete graph.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from zerosum.secagg import ConfirmRequest
from zerosum.secagg.stages import Stage
from zerosum.secagg.wire import to_bitmap
from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Masking,
    ThreatModel,
)
from zerosum.simulations.attacks.protocol.opening import opened_vector, unmask_request
from zerosum.simulations.attacks.protocol.recovering import Recovery
from zerosum.simulations.attacks.protocol.sessions import SessionsSetting, SessionsView, Transcript

HOW = {
    "dropped": "says to all that the victim dropped out",
    "both": "asks each client twice, with and without the victim",
    "split": "shows one part of the clients the victim, the other not",
}


@dataclass(frozen=True)
class LyingAboutDropouts(Recovery):
    """Name false survivors at confirm and at unmask.

    Attributes
    ----------
    lie : str
        "dropped", "both" or "split".
    clients, threshold, trials : int
        Of each session; sessions.
    """

    lie: Literal["dropped", "both", "split"] = "dropped"
    clients: int = 9
    threshold: int = 6
    trials: int = 10
    name: ClassVar[str] = "lying about dropouts"
    threat: ClassVar[ThreatModel] = ThreatModel("malicious server")

    @property
    def adaptive(self) -> str:
        """Return which lie the server tells."""
        return HOW[self.lie]

    @property
    def bound(self) -> int:
        """Return the fewest colluders with whom a split view opens a vector: 2 t - k."""
        return max(0, 2 * self.threshold - (self.clients - 1))

    def cases(self, suite: str) -> Iterator[Case]:
        """Yield the cells of a suite; split views at, below and above their bounds."""
        plain = SessionsSetting(self.clients, self.trials)
        if self.lie == "dropped":
            for masking in ("none", "single", "double"):
                yield from (Case(plain, defense) for defense in self._columns(masking))
        elif self.lie == "both":
            forgetful = SessionsSetting(self.clients, self.trials, weakness="one-kind check")
            for setting in (plain, forgetful):
                yield from (Case(setting, defense) for defense in self._columns("double"))
        else:
            for c in range(self.threshold + 1):
                if suite == "quick" and abs(c - self.bound) > 1:
                    continue
                setting = SessionsSetting(self.clients, self.trials, colluders=c)
                for defense in self._columns("double"):
                    yield Case(setting, defense, {"colluders": c})

    def _columns(self, masking: Masking) -> Iterable[Defense]:
        label = {"none": "plain", "single": "single masks", "double": "double masks"}[masking]
        for confirm in (False,) if masking == "none" else (False, True):
            name = f"{label}, confirm" if confirm else label
            yield Defense(name, masking, self.threshold, confirm=confirm)

    def respond(
        self, stage: str, client: int, message: bytes, seen: Transcript
    ) -> tuple[bytes, ...]:
        """Deliver the real messages until confirm, and then name the survivors of the lie.

        Parameters
        ----------
        stage : str
        client : int
            Roster index of the receiver.
        message : bytes
            The real server's.
        seen : Transcript
            All exchanges so far.

        Returns
        -------
        tuple of bytes
            The messages to deliver: none, one or two.
        """
        session = seen.opened()
        if stage not in (Stage.CONFIRM, Stage.UNMASK):
            return (message,)
        places = {session.position(i) for i in session.cohort}
        alive = to_bitmap(sorted(places), session.size)
        dead = to_bitmap(sorted(places - {session.position(seen.victim)}), session.size)
        told = [alive if lives else dead for lives in self._told(client, seen)]
        if stage == Stage.CONFIRM:
            return tuple(ConfirmRequest(session.digest, each).to_bytes() for each in told)
        return tuple(unmask_request(seen, each) for each in told)

    def _told(self, client: int, seen: Transcript) -> tuple[bool, ...]:
        """Return, for each set that a client is shown, whether the victim is in it."""
        if client in seen.states:
            return ()
        if client == seen.victim:
            return () if self.lie == "dropped" else (True,)
        if self.lie != "split":
            return (False,) if self.lie == "dropped" else (True, False)
        session = seen.opened()
        honest = [i for i in session.cohort if i != seen.victim and i not in seen.states]
        return (client in honest[: max(0, session.threshold - len(seen.states))],)

    def run(self, view: SessionsView, rng: np.random.Generator) -> Guess:
        """Remove the masks whose seeds have enough shares."""
        masking = view.protection.masking
        opened = [opened_vector(seen, masking) for (seen,) in view.trials or ()]
        return Guess({"updates": np.stack(opened)}, view.stopped)


ATTACKS = (
    LyingAboutDropouts(lie="dropped"),
    LyingAboutDropouts(lie="both"),
    LyingAboutDropouts(lie="split"),
)
"""As the table lists them."""
