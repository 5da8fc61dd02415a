"""Attack request binding: a server asks one client something else, under the masks of all.

A mask is bound to its client's request (docs/secagg-wire.md, "Request digest"). Two clients with
one digest have masks that cancel, so the server may choose for each client whatever the digest
omits. It makes all others answer with nothing, and the sum is the answer of one: the attack of
Pasquini, Francati and Ateniese, "Eluding secure aggregation in federated learning via model
inconsistency" (CCS 2022), by a gap in the digest instead of by the model.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from zerosum.simulations.attacks.harness.interface import (
    Case,
    Defense,
    Guess,
    Metric,
    ThreatModel,
)
from zerosum.simulations.attacks.harness.metrics import Proportion
from zerosum.simulations.attacks.protocol.asked_sums import (
    AskedSumsSetting,
    AskedView,
    ContributeFields,
    Read,
)

BOUND = Defense("request bound", "double")
LOOSE = Defense("loosely bound", "double", request_hash=False)

HOW: Mapping[Read, str] = {
    "arrays": "turns the order of the arrays for one client",
    "settings": "turns the order of the settings for one client",
    "group id": "tells all clients but one that it is a late round",
    "numbers": "asks one client by infinity and the others by NaN",
}

NEVER = "1e300"
"""A round, as a group id, so late that a falling learning rate is zero."""


@dataclass(frozen=True)
class RequestBinding:
    """Ask the victim so that it answers, and all others so that they add nothing.

    Attributes
    ----------
    lie : str
        The field that differs between clients: "arrays", "settings", "group id" or "numbers".
    clients, trials : int
        Of each sum; sums.
    """

    lie: Read = "arrays"
    clients: int = 5
    trials: int = 3
    name: ClassVar[str] = "request binding"
    threat: ClassVar[ThreatModel] = ThreatModel("malicious server")
    requires: ClassVar[tuple[str, ...]] = ("totals",)
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("update recovered"),)

    @property
    def adaptive(self) -> str:
        """Return the field that differs between clients, and how."""
        return HOW[self.lie]

    def cases(self, suite: str) -> Iterator[Case]:
        """Yield bound masks, and the control's."""
        for protection in (LOOSE, BOUND):
            yield Case(AskedSumsSetting(self.lie, self.clients, self.trials), protection)

    def ask(self, honest: ContributeFields, wanted: bool) -> ContributeFields:
        """Choose what a client is asked.

        Parameters
        ----------
        honest : ContributeFields
            As an honest server writes them.
        wanted : bool
            Whether the client is the victim.

        Returns
        -------
        ContributeFields
        """
        if self.lie == "arrays" and wanted:
            first, second, *rest = honest.arrays
            return replace(honest, arrays=(second, first, *rest))
        if self.lie == "settings" and wanted:
            return replace(honest, settings=honest.settings[::-1])
        if self.lie == "group id":
            return replace(honest, group_id="0" if wanted else NEVER)
        if self.lie == "numbers":
            return replace(honest, max_loss="Infinity" if wanted else "NaN")
        return honest

    def baseline(self, view: AskedView, rng: np.random.Generator) -> Guess:
        """Guess zero for the client's answer."""
        return Guess({"updates": np.zeros(1)})

    def run(self, view: AskedView, rng: np.random.Generator) -> Guess:
        """Take the sum for the client's answer: all others added nothing."""
        if view.totals is None:
            raise ValueError("the view holds no totals: every sum was abandoned")
        return Guess({"updates": view.totals}, view.stopped)

    def score(self, guess: Guess, truth: Mapping[str, np.ndarray]) -> Mapping[str, Proportion]:
        """Return which answers are right in every coordinate, to one step of the encoding."""
        wrong = np.abs(guess["updates"] - truth["updates"]).max(axis=1)
        return {self.metrics[0].name: Proportion(wrong <= truth["steps"])}


ATTACKS = tuple(RequestBinding(lie=lie) for lie in HOW)
"""As the table lists them."""
