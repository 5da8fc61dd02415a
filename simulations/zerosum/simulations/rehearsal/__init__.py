"""A deployment rehearsed on one machine: real SuperLink, real SuperNodes, certificates and keys."""

from zerosum.simulations.rehearsal.federation import Federation, federation
from zerosum.simulations.rehearsal.namespaces import can_make_namespaces
from zerosum.simulations.rehearsal.processes import DeploymentError

__all__ = ["DeploymentError", "Federation", "can_make_namespaces", "federation"]
