"""A deployment rehearsed on one machine: real SuperLink, real SuperNodes, certificates and keys."""

from zerosum.simulations.rehearsal.federation import DeploymentError, Federation, federation
from zerosum.simulations.rehearsal.namespaces import can_make_namespaces

__all__ = ["DeploymentError", "Federation", "can_make_namespaces", "federation"]
