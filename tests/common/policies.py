"""Policies for tests: what has to be written, at its most permissive, and what a test changes."""

import math
from typing import Any

from zerosum.client.spec import ClientPolicy

LEAST: dict[str, Any] = {"min_cohort": 2, "corruption": 0.0, "max_epsilon": math.inf}
LEAST_TOML = "min_cohort = 2\ncorruption = 0.0\nmax_epsilon = inf\n"


def policy_of(**changes):
    """The policy of a client that insists on nothing but what is given."""
    return ClientPolicy(**{**LEAST, **changes})
