"""What runs where the data is: local training, clipping, noise, masking.

Importing this imports no torch: a deployed client pays for it only where it trains.
"""

from zerosum.client.spec import (
    ClientPolicy,
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PrivacySpec,
    SecAggSpec,
    TrainSpec,
)
from zerosum.client.task import ClientInfo, Task, TaskError, resolve_task

__all__ = [
    "ClientInfo",
    "ClientPolicy",
    "DataSpec",
    "EncodingSpec",
    "ModelSpec",
    "PrivacySpec",
    "SecAggSpec",
    "Task",
    "TaskError",
    "TrainSpec",
    "resolve_task",
]
