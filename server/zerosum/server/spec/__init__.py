"""Define the keys that the server decides, a file a section, and the whole experiment.

Keys, types, defaults and meanings in ``docs/configuration.md`` are generated from their fields.
"""

from zerosum.server.spec.aggregation import RULE_KEYS, ServerSpec
from zerosum.server.spec.deployment import DeploymentSpec, FaultSpec
from zerosum.server.spec.evaluation import EvaluationSpec
from zerosum.server.spec.experiment import Experiment
from zerosum.server.spec.sampling import SamplingSpec

__all__ = [
    "RULE_KEYS",
    "DeploymentSpec",
    "EvaluationSpec",
    "Experiment",
    "FaultSpec",
    "SamplingSpec",
    "ServerSpec",
]
