"""Search short seeds: remove the one mask that is left on a late contribution.

Only its self mask hides a contribution that arrives late. The client seemed to have dropped, so the
server was given the shares of its mask key, and removes the masks that it shares with others
(Bonawitz et al., "Practical secure aggregation" (CCS 2017), section 4, "Double-masking"). The self
mask's seed is then searched: 22 bits here, longer ones extrapolated by the same rate.
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
    """Try all short seeds on a late contribution.

    Attributes
    ----------
    by : str
        How a seed is recognised: by a small "plaintext", or by the "commitment" to it.
    bits : int
        Length of the seeds that are searched, whatever the protection.
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
        """Return how a seed is recognised."""
        if self.by == "plaintext":
            return "knows that updates are small: their high bits"
        return "compares with the commitment in the advert"

    def units_of_seed(self, setting: object) -> int:
        """Return how many units a seed has: one update."""
        return 1

    def cases(self, suite: str) -> Iterator[Case]:
        """Yield a seed as short as the search, and the library's."""
        for bits in (self.bits, 256):
            name = f"double masks, {bits}-bit seed"
            protection = Defense(name, "double", seed_bits=bits, confirm=False)
            setting = SessionsSetting(self.clients, trials=1, late=True)
            yield Case(setting, protection, {"seed bits": bits})

    def run(self, view: SessionsView, rng: np.random.Generator) -> Guess:
        """Remove the pair masks, and search for the self mask."""
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
        outcome = how(seen, vector, self.bits)
        seed = outcome.seed
        opened = np.zeros_like(vector) if seed is None else without_self_mask(seen, vector, seed)
        return opened, extrapolated(outcome)


ATTACKS = (SeedSearch(by="plaintext"), SeedSearch(by="commitment"))
"""As the table lists them."""
