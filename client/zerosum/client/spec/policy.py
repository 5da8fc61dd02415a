"""Define a node's policy: what a client insists on, from its own configuration."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from zerosum.client.privacy import registry
from zerosum.client.renyi_filter import fixed_order
from zerosum.client.session_limits import Openings
from zerosum.client.spec.app_query_policy import AppQueryPolicy
from zerosum.client.spec.privacy import MechanismName, PrivacyModel
from zerosum.client.spec.query_policy import QueryPolicy
from zerosum.client.spec.secagg import DEFAULT_OPENINGS
from zerosum.client.spec.section import (
    Fraction,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Scale,
    Spec,
)
from zerosum.secagg import Policy, Protocol, ServerMode
from zerosum.secagg.graph.failure_bounds import security_of

BUDGET_DELTA = 1e-5
"""Delta of a node's own budget where its policy names none."""


class ClientPolicy(Spec):
    """Conditions of a client, from its own node configuration: never from the server."""

    models: list[PrivacyModel] = ["distributed", "local"]
    """Privacy models that this client takes part in."""
    mechanisms: list[MechanismName] | Literal["any"] = registry.proved_names()
    """Noise that this client trusts. Left out is `privunit`: no proof covers its float sampling. \
`any`: every mechanism that is registered here."""
    units: list[Literal["client", "example"]] = ["client", "example"]
    """Units of privacy that this client is content with."""
    min_noise_multiplier: NonNegativeFloat = 0.5
    """Smallest noise multiplier accepted, where noise is added at all (see `models`). All steps \
of a contribution whose noise is inside local training may not cost more than one vector at this \
multiplier: in epsilon at `budget_delta`."""
    max_clip: Scale | None = None
    """Largest clip norm accepted."""
    corruption: Fraction
    """Fraction of the roster that this client assumes to collude with the server."""
    min_cohort: Annotated[int, Field(ge=2, lt=2**63)]
    """Fewest clients, itself included, whose vectors are in a sum with its own."""
    servers: Annotated[list[Literal["malicious", "semi-honest"]], Field(min_length=1)] = [
        "malicious"
    ]
    """Servers that a session must withstand, any of these; `semi-honest` trusts the server to \
follow the protocol."""
    protocols: Annotated[list[Literal["pairwise", "ideal", "none"]], Field(min_length=1)] = [
        "pairwise"
    ]
    """Protocols that this client takes part in: the others show its vector to the server. A node \
of its own takes part in `pairwise` alone, whatever is listed: they are for simulations."""
    tasks: list[str] | Literal["built-in", "any"] = "built-in"
    """Tasks that this client runs: their code runs here. `built-in`: those that ship with \
zerosum."""
    max_vector_length: PositiveInt = 1 << 28
    """Longest vector this client will send."""
    max_contributions: PositiveInt = 1000
    """Contributions, of all runs together, after which this client declines every further \
request."""
    max_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=True)]
    """Largest epsilon that this client spends, of all runs together: its own epsilon_sum, what a \
server that sees masked sums, or a fellow client, learns of it at the guaranteed noise, at \
`budget_delta`. Declined is a request that would exceed it, and any whose cost has no bound: \
without noise, or with noise of a trusted server. The first finite value fixes the Renyi order at \
which costs add up; later ones move the limit at that order. `inf`: only counted."""
    budget_rule: Literal["renyi", "sum"] = "renyi"
    """How costs add up to `max_epsilon`, fixed in this node's record with the first finite value. \
`renyi`: as Renyi divergences at one order. `sum`: as pure epsilons, of geometric noise and local \
reports alone: training and Skellam noise are declined."""
    budget_delta: Annotated[float, Field(gt=0, lt=1)] = BUDGET_DELTA
    """Delta of `max_epsilon`, whatever delta a request names."""
    max_openings_per_run: PositiveInt = DEFAULT_OPENINGS
    """Sessions that begin here in one run. 2^-40 is divided by this or `max_openings_per_day`, \
whichever is larger: a session must be so much safer, as `secagg.openings` of the experiment \
makes it."""
    max_openings_per_day: PositiveInt = DEFAULT_OPENINGS
    """Sessions that begin here in a day, of all runs together; a day begins with its first."""
    run_timeout: PositiveFloat = 2_592_000.0
    """Seconds without a new session after which a run is over here: its records are deleted, and \
none of its sessions begins or goes on again."""
    queries: QueryPolicy | None = None
    """`[queries]`: which queries of its table this client answers; absent: none."""
    app_queries: AppQueryPolicy | None = None
    """`[app_queries]`: which sums of a Flower app's own values this client answers; absent: none.
    """
    session_timeout: PositiveFloat = 86_400.0
    """Seconds after which the secrets of a session that nobody ended are forgotten."""

    longest_wait: PositiveFloat = 3600.0
    """Seconds for which a message waits while the answer to another is computed; then it is \
declined."""

    @model_validator(mode="after")
    def _budget_admits_something(self) -> Self:
        if math.isfinite(self.max_epsilon) and self.budget_rule == "renyi":
            fixed_order(self.max_epsilon, self.budget_delta)
        return self

    @property
    def budget_unit(self) -> Literal["client", "record"]:
        """The unit that `max_epsilon` is of."""
        sections = (self.queries, self.app_queries)
        record = any("record" in own.units for own in sections if own is not None)
        return "record" if record else "client"

    def trusts(self, mechanism: str) -> bool:
        """Return whether this client takes part under noise of this name."""
        return self.mechanisms == "any" or mechanism in self.mechanisms

    def for_sessions(self) -> Policy:
        """Return the part that is judged by a session alone, before anything is asked."""
        return Policy(
            corruption=self.corruption,
            smallest_cohort=self.min_cohort,
            server_modes=frozenset(map(ServerMode, self.servers)),
            protocols=frozenset(map(Protocol, self.protocols)),
            longest_vector=self.max_vector_length,
            security=self.security,
        )

    @property
    def openings(self) -> Openings:
        """Return the limits on sessions that begin here."""
        return Openings(self.max_openings_per_run, self.max_openings_per_day, self.run_timeout)

    @property
    def security(self) -> float:
        """The most that secrecy or connectivity may fail with in one of all these sessions."""
        return security_of(max(self.max_openings_per_run, self.max_openings_per_day))
