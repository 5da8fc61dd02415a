"""Define sections `faults` of a simulation and `deployment` of a federation."""

from typing import Annotated

from pydantic import (
    Field,
)

from zerosum.client.spec import (
    Fraction,
    PositiveFloat,
    PositiveInt,
    Spec,
)
from zerosum.secagg.stages import Stage


class FaultSpec(Spec):
    """Clients that vanish on purpose: probability at each stage. Simulations only."""

    advertise: Fraction = 0.0
    """Never answers the session's first message."""
    share: Fraction = 0.0
    """Vanishes before sending its shares."""
    contribute: Fraction = 0.0
    """Vanishes before sending its masked vector."""
    confirm: Fraction = 0.0
    """Vanishes before it confirms who survived; sessions of a malicious server only."""
    unmask: Fraction = 0.0
    """Vanishes before it releases its shares: its contribution counts."""


class DeploymentSpec(Spec):
    """Time limits of a deployed server. Deployments only."""

    min_nodes: PositiveInt = 2
    """Nodes to wait for before the first round; with a roster, all of its clients are waited \
for."""
    start_timeout: PositiveFloat = 600.0
    """Seconds to wait for them, before the run ends with an error that names who is missing."""
    stage_timeout: PositiveFloat = 60.0
    """Seconds to wait for the answers of a protocol stage."""
    train_timeout: PositiveFloat = 600.0
    """Seconds to wait for the answers of the stage that trains."""
    timeouts: dict[Annotated[Stage, Field(strict=False)], PositiveFloat] = Field(
        default_factory=dict
    )
    """Seconds to wait at single stages, as `confirm = 20.0`, in place of the two above."""
    pipeline: bool = True
    """Send the keys and shares of a round along with the messages of the round before: two \
exchanges a round instead of four, or three instead of five against a malicious server."""
    roster: str | None = None
    """File of the signed roster, as every node has it; required against a malicious server. Where \
it is absent, the SuperLink's environment may name it: `ZEROSUM_ROSTER`."""
    authority: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")] | None = None
    """Public key of who signed the roster, 64 hexadecimal digits; or `ZEROSUM_AUTHORITY` of that \
environment."""
    left_out: str | None = None
    """File of clients that are not asked, a JSON line for each. Who is proved to have given or \
dealt wrong shares is added; delete a line, and the client is asked again from the next start on. \
One file for all runs of a roster keeps a liar out of all. Default: `left-out.jsonl` in the run \
folder, for this run alone."""

    def seconds(self, stage: str) -> float:
        """Return how long the answers of a stage are waited for."""
        usual = self.train_timeout if stage == Stage.CONTRIBUTE else self.stage_timeout
        return self.timeouts.get(Stage(stage), usual)
