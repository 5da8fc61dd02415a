"""Provision nodes as a deployment does, and write a Flower app as a user might."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
    UserConfig,
)
from flwr.clientapp import ClientApp

from zerosum.client.files.private_files import write_private
from zerosum.client.flower.private_mod import answered, private_mod
from zerosum.secagg import IdentityKey, Roster, SignedRoster
from zerosum.simulations.attacks.protocol.unbound import UnboundApp

POLICY = """models = ["none", "central"]
min_noise_multiplier = 0.0
corruption = 0.0
min_cohort = 2
max_contributions = 10
max_epsilon = inf
"""

PIXELS, CLASSES = 64, 10


def app_of(inputs: np.ndarray, targets: np.ndarray, *, bound: bool) -> ClientApp:
    """Return a Flower app of softmax regression, as a user might write one.

    It reads arrays and settings by place, as ``to_numpy_ndarrays`` and ``values`` return them, and
    its learning rate falls with the round in the group id: all of that a request's digest has to
    cover.

    Parameters
    ----------
    inputs : ndarray of float64
        Shape (clients, records, 64).
    targets : ndarray of int64
        Shape (clients, records).
    bound : bool
        Whether it runs behind the library's mod, or behind the control.

    Returns
    -------
    flwr.clientapp.ClientApp
    """
    app = ClientApp(mods=[private_mod if bound else unbound_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        mine = int(context.node_config["partition-id"])
        record = message.content.array_records["arrays"]
        names, (centre, gain, weight) = list(record), record.to_numpy_ndarrays()
        lr, decay = map(float, message.content.config_records["config"].values())  # type: ignore[arg-type]
        lr /= 1.0 + float(message.metadata.group_id or 0)
        scaled = (inputs[mine] - centre) * gain
        powers = np.exp(scaled @ weight.T)
        errors = powers / powers.sum(axis=1, keepdims=True) - np.eye(CLASSES)[targets[mine]]
        slope = errors.T @ scaled / len(scaled) + decay * weight
        moved = (weight - lr * slope).astype(np.float32)
        arrays = dict(zip(names, (centre, gain, moved), strict=True))
        content = RecordDict({"metrics": MetricRecord({"num-examples": len(scaled)})})
        content["arrays"] = ArrayRecord({name: Array(value) for name, value in arrays.items()})
        return Message(content, reply_to=message)

    return app


def unbound_mod(message: Message, context: Context, call_next: Any) -> Message:
    """Answer as the library's mod would with masks bound to sorted names: the control.

    Parameters
    ----------
    message : flwr.app.Message
    context : flwr.app.Context
    call_next : callable
        The app.

    Returns
    -------
    flwr.app.Message
    """
    return answered(message, context, call_next, UnboundApp)


def provisioned(folder: Path, count: int) -> tuple[Roster, Callable[[int], UserConfig]]:
    """Write the keys, the signed roster and the policy of nodes.

    Parameters
    ----------
    folder : Path
        Of all nodes' files.
    count : int
        Nodes.

    Returns
    -------
    roster : Roster
        For the server.
    node_config : callable
        From a roster index to a node's config.
    """
    authority = IdentityKey.generate()
    keys = [IdentityKey.generate() for _ in range(count)]
    roster = Roster(1, {index: key.public for index, key in enumerate(keys)})
    write_private(folder / "roster", SignedRoster.sign(roster, authority).to_bytes())
    write_private(folder / "policy.toml", POLICY.encode())
    for index, key in enumerate(keys):
        write_private(folder / f"{index}.key", key.to_bytes())

    def node_config(index: int) -> UserConfig:
        return {
            "state-dir": str(folder / f"state-{index}"),
            "policy": str(folder / "policy.toml"),
            "identity": str(folder / f"{index}.key"),
            "roster": str(folder / "roster"),
            "authority": authority.public.hex(),
        }

    return roster, node_config
