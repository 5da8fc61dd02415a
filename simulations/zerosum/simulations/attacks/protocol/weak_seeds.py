"""Short seeds: what a curious server takes off a contribution that has one mask left.

A contribution that arrives late is hidden by its self mask alone: of a client that seemed gone the
server was given the shares of the mask key, and takes off the masks that it shares with others
(Bonawitz et al., "Practical secure aggregation" (CCS 2017), section 4, "Double-masking"). So the
seed of the self mask is searched: 22 bits here, and longer ones by the same rate.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from zerosum.simulations.attacks.harness.interface import Case, Defense, Guess, ThreatModel
from zerosum.simulations.attacks.protocol.opening import (
    masked_vector,
    secrets_of,
    without_pair_masks,
    without_self_mask,
)
from zerosum.simulations.attacks.protocol.recovering import Recovery
from zerosum.simulations.attacks.protocol.seed_search import (
    by_commitment,
    by_plaintext,
    extrapolated,
    flower_hours,
)
from zerosum.simulations.attacks.protocol.sessions import SessionsSetting, SessionsView, Transcript


@dataclass(frozen=True)
class SeedSearch(Recovery):
    """Tries all seeds of ``bits`` bits on a contribution that came late.

    Attributes
    ----------
    by : str
        How a seed is known: by a "plaintext" that is small, or by the "commitment" to it.
    bits : int
        As far as is searched, whatever the protection.
    clients : int
        Of the session.
    """

    by: Literal["plaintext", "commitment"] = "plaintext"
    bits: int = 22
    clients: int = 9
    name: ClassVar[str] = "weak masks: short seed"
    threat: ClassVar[ThreatModel] = ThreatModel("curious server")

    @property
    def adaptive(self) -> str:
        """By what a seed is known."""
        if self.by == "plaintext":
            return "knows that updates are small: their high bits"
        return "compares with the commitment in the advert"

    def cases(self, suite: str) -> Iterator[Case]:
        """Return a seed as short as is searched, and the library's."""
        for bits in (self.bits, 256):
            name = f"double masks, {bits}-bit seed"
            protection = Defense(name, "double", seed_bits=bits, confirm=False)
            setting = SessionsSetting(self.clients, trials=1, late=True)
            yield Case(setting, protection, {"seed bits": bits})

    def run(self, view: SessionsView, rng: np.random.Generator) -> Guess:
        """Take off the pair masks, and search for the self mask."""
        opened, notes = [], []
        for (seen,) in view.trials or ():
            vector, note = self._searched(seen)
            opened.append(vector)
            notes.append(note)
        return Guess({"updates": np.stack(opened)}, "; ".join([*notes, flower_hours(rng)]))

    def _searched(self, seen: Transcript) -> tuple[np.ndarray, str]:
        secrets = secrets_of(seen)
        if "mask" not in secrets:
            return np.zeros_like(masked_vector(seen)), "the mask key was not recovered"
        vector = without_pair_masks(seen, secrets["mask"])
        how = by_plaintext if self.by == "plaintext" else by_commitment
        found = how(seen, vector, self.bits)
        seed = found.seed
        opened = np.zeros_like(vector) if seed is None else without_self_mask(seen, vector, seed)
        return opened, extrapolated(found)


ATTACKS = (SeedSearch(by="plaintext"), SeedSearch(by="commitment"))
"""As the table has them."""
