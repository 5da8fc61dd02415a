"""Clients from which exactly one part of the protocol was taken: controls, and nobody's defaults.

No client of this library is one of these. They show what each part is there for: an attack that
recovers an update from one of them and not from :class:`~zerosum.secagg.ClientParty` was stopped
by that part.
"""

import dataclasses
from typing import Any, Literal

from numpy.typing import NDArray

from zerosum.secagg import ClientParty, ContributeRequest, Session, SharedCache, Step, UnmaskRequest
from zerosum.secagg.crypto.keys import Hkdf, PartySecrets, self_mask
from zerosum.secagg.crypto.prg import accumulate
from zerosum.secagg.messages.durable_record import Decisions
from zerosum.secagg.parties.interface import Incoming
from zerosum.secagg.stages import Stage
from zerosum.simulations.attacks.harness.interface import Defense

Weakness = Literal["none", "one-kind check", "vector masks", "fresh masks"]
"""What clients of a setting lack; what a :class:`~.interface.Defense` names, it says itself."""


class SingleMaskClient(ClientParty):
    """Leaves out, at contribute, the ``PRG(b_u)`` of ``y = x + PRG(b_u) + ...``: no self mask."""

    def _mask(self, vector: NDArray[Any], request: ContributeRequest) -> None:
        super()._mask(vector, request)
        seed = self._own_secrets().self_seed
        own = self_mask(self._hkdf, seed, request.request, self._index)
        accumulate(vector, (), [own])
        self._session.ring.reduce(vector)


class ForgetfulClient(ClientParty):
    """Leaves out, at unmask, "Never both, for any v": answers any acceptable U3, each time.

    A set that was signed at confirm still has to be, where there is that stage.
    """

    def unmask(self, message: Incoming) -> Step:
        """Return one share of each dealer, whatever was answered before."""
        request = self._read(self._enter(Stage.UNMASK), UnmaskRequest, message)
        survivors = self._check_survivors(request.survivors)
        self._check_signatures(request)
        return Step((), self._open_shares(survivors))


class ShortSeedClient(ClientParty):
    """Leaves out, at advertise, that b_u is 32 bytes of a fresh seed: it has ``seed_bits`` bits."""

    seed_bits = 256

    def _own_secrets(self) -> PartySecrets:
        secrets = super()._own_secrets()
        value = int.from_bytes(secrets.self_seed, "little") % (1 << self.seed_bits)
        return dataclasses.replace(secrets, self_seed=value.to_bytes(32, "little"))


class ScalarMaskClient(ClientParty):
    """Leaves out that masks are vectors: their first word is added to every coordinate."""

    def _mask(self, vector: NDArray[Any], request: ContributeRequest) -> None:
        ring = self._session.ring
        masks = ring.zeros(len(vector))
        super()._mask(masks, request)
        vector += masks[0]
        ring.reduce(vector)


class ReusedMaskClient(ClientParty):
    """Leaves out what makes masks fresh: "session ... salt of every key derivation", "request".

    With one seed in all rounds its masks are the same in all rounds; envelopes and signatures are
    still bound to their session.
    """

    def _begin(
        self,
        session: Session,
        index: int,
        cache: SharedCache | None,
        decisions: Decisions,
        threads: int,
    ) -> None:
        super()._begin(session, index, cache, decisions, threads)
        self._hkdf = Hkdf(bytes(32))

    def _mask(self, vector: NDArray[Any], request: ContributeRequest) -> None:
        super()._mask(vector, dataclasses.replace(request, request=bytes(32)))


def client_of(protection: Defense, weakness: Weakness = "none") -> type[ClientParty]:
    """Return the clients that a protection and a weakness ask for: the real ones, or a control.

    Raises
    ------
    ValueError
        If more than one part would be left out.
    """
    asked = {
        SingleMaskClient: protection.masking == "single",
        ShortSeedClient: protection.seed_bits < 256,
        ForgetfulClient: weakness == "one-kind check",
        ScalarMaskClient: weakness == "vector masks",
        ReusedMaskClient: weakness == "fresh masks",
    }
    found = [kind for kind, lacking in asked.items() if lacking]
    if len(found) > 1:
        names = " and ".join(kind.__name__ for kind in found)
        raise ValueError(f"{protection.name}: a control lacks one part, and these are two: {names}")
    if ShortSeedClient in found:
        return type("ShortSeedClient", (ShortSeedClient,), {"seed_bits": protection.seed_bits})
    return found[0] if found else ClientParty
