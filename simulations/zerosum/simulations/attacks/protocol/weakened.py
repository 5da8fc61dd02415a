"""Define clients that lack exactly one part of the protocol: controls, never defaults.

No client of this library is one of these. They show the purpose of each part: if an attack recovers
an update from one of them and not from :class:`~zerosum.secagg.ClientParty`, that part stopped it.
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
"""Part that a setting's clients lack, beyond what a :class:`~.interface.Defense` can name."""


class SingleMaskClient(ClientParty):
    """Omit, at contribute, the ``PRG(b_u)`` of ``y = x + PRG(b_u) + ...``: no self mask."""

    def _mask(self, vector: NDArray[Any], request: ContributeRequest) -> None:
        super()._mask(vector, request)
        seed = self._own_secrets().self_seed
        own = self_mask(self._hkdf, seed, request.request, self._index)
        accumulate(vector, (), [own], version=self._session.version)
        self._session.ring.reduce(vector)


class ForgetfulClient(ClientParty):
    """Omit, at unmask, "Never both, for any v": answer any acceptable survivors, each time.

    Where there is a confirm stage, a set still has to be signed there.
    """

    def unmask(self, message: Incoming) -> Step:
        """Return one share of each dealer, whatever was answered before."""
        request = self._read(self._enter(Stage.UNMASK), UnmaskRequest, message)
        survivors = self._check_survivors(request.survivors)
        self._check_signatures(request)
        return Step((), self._open_shares(survivors))


class ShortSeedClient(ClientParty):
    """Omit, at advertise, that b_u is 32 fresh bytes: it has ``seed_bits`` bits."""

    seed_bits = 256

    def _own_secrets(self) -> PartySecrets:
        secrets = super()._own_secrets()
        value = int.from_bytes(secrets.self_seed, "little") % (1 << self.seed_bits)
        return dataclasses.replace(secrets, self_seed=value.to_bytes(32, "little"))


class ScalarMaskClient(ClientParty):
    """Omit that masks are vectors: add their first word to every coordinate."""

    def _mask(self, vector: NDArray[Any], request: ContributeRequest) -> None:
        ring = self._session.ring
        masks = ring.zeros(len(vector))
        super()._mask(masks, request)
        vector += masks[0]
        ring.reduce(vector)


class ReusedMaskClient(ClientParty):
    """Omit what makes masks fresh: "session ... salt of every key derivation", "request".

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
    """Return the clients of a protection and a weakness: the real ones, or a control.

    Parameters
    ----------
    protection : Defense
    weakness : str

    Returns
    -------
    type of ClientParty

    Raises
    ------
    ValueError
        If more than one part would be left out.
    """
    lacking = {
        SingleMaskClient: protection.masking == "single",
        ShortSeedClient: protection.seed_bits < 256,
        ForgetfulClient: weakness == "one-kind check",
        ScalarMaskClient: weakness == "vector masks",
        ReusedMaskClient: weakness == "fresh masks",
    }
    kinds = [kind for kind, lacks in lacking.items() if lacks]
    if len(kinds) > 1:
        names = " and ".join(kind.__name__ for kind in kinds)
        raise ValueError(
            f"{protection.name}: a control lacks exactly one part, not {names}; choose one"
        )
    if ShortSeedClient in kinds:
        return type("ShortSeedClient", (ShortSeedClient,), {"seed_bits": protection.seed_bits})
    return kinds[0] if kinds else ClientParty
