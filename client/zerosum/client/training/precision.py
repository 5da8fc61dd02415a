"""Say where ``training.precision = "bf16"`` cannot be had: nobody trains in float32 instead.

A user who asks for bfloat16 measures it, or relies on its speed. So each place that would train
otherwise refuses, and the plan of a run finds that out before anything starts.
"""

from zerosum.client.spec import TrainSpec
from zerosum.client.task import TaskError
from zerosum.client.training.torch_internals import has_native_bf16

_CURE = "write training.precision=float32"


def missing_bf16(device: str = "cpu") -> str | None:
    """Return why bfloat16 products cannot be had on a device of this machine; None where they can.

    Parameters
    ----------
    device : str
        ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    """
    if device != "cpu":
        return f'it is for device = "cpu", and clients train on "{device}"'
    if not has_native_bf16():
        return "this processor has no native bfloat16 products (x86: avx512_bf16 or amx_bf16)"
    return None


def refuse_bf16(spec: TrainSpec, why: str | None) -> None:
    """Raise TaskError where bfloat16 is asked for and there is a reason against it.

    Parameters
    ----------
    spec : TrainSpec
        What is asked.
    why : str or None
        Why it cannot be had; None where it can.

    Raises
    ------
    TaskError
        One line that names the key, the reason and the cure.
    """
    if spec.precision == "bf16" and why is not None:
        raise TaskError(f'training.precision = "bf16": {why}; {_CURE}')
