"""Clients that vanish on purpose: decided before a round, by seed, round, client and stage."""

from collections.abc import Sequence

from zerosum.client.protocol.flower_messages import STAGE_TYPES
from zerosum.secagg.randomness import insecure_keystream
from zerosum.server.spec import FaultSpec


class FaultPlan:
    """Plan of who vanishes when: the same for every protocol and schedule.

    Parameters
    ----------
    spec : FaultSpec
        Probability of vanishing at each stage, for a client that got that far.
    seed : int
        The experiment's seed.

    Attributes
    ----------
    none : bool
        Whether nobody ever vanishes.
    """

    def __init__(self, spec: FaultSpec, seed: int) -> None:
        self._probabilities = [(kind, getattr(spec, stage)) for stage, kind in STAGE_TYPES.items()]
        self._seed = seed
        self.none = all(p == 0 for _, p in self._probabilities)

    def answering(self, stage: str, clients: Sequence[int], session_round: int) -> list[int]:
        """Return which of these clients answer at a stage, in their order.

        Parameters
        ----------
        stage : str
            Of the session.
        clients : sequence of int
            Who is asked.
        session_round : int
            Of the session.

        Returns
        -------
        list of int
            Those that do not vanish.
        """
        if self.none:
            return list(clients)
        kind = STAGE_TYPES[stage]
        return [index for index in clients if not self.vanishes(session_round, index, kind)]

    def vanishes(self, session_round: int, client: int, message_type: str) -> bool:
        """Return whether a client does not answer a stage's message.

        Parameters
        ----------
        session_round : int
            Of the session.
        client : int
            Index in the roster.
        message_type : str
            Of the stage.

        Returns
        -------
        bool
            Drawn from the seed: the same whenever it is asked.
        """
        if self.none:
            return False
        coins = insecure_keystream(self._seed, "fault", session_round, client).uniform(
            len(self._probabilities)
        )
        for coin, (kind, probability) in zip(coins, self._probabilities, strict=True):
            if kind == message_type:
                return bool(coin < probability)
        return False
