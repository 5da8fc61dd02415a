"""Everything of Flower that is not public, here alone: what it is for, and what stands in for it.

Public are ``flwr.app``, ``flwr.clientapp`` with its ``mod``, ``flwr.serverapp`` with its
``strategy`` and ``flwr.simulation``: they are imported where they are used. What follows may move
or go with any release.

===============================  ==========================================  =====================
Internal                         For                                         Where it is missing
===============================  ==========================================  =====================
``Run``                          the run of an in-process grid               ``PlainRun``
``TaskIdentity``                 sender and run of a ``Message()``           nothing is set
``SUPERLINK_NODE_ID``            the server's node id                        1
``get_fused_config``             the run config that apps are handed         None: it has to be told
``InMemoryGrid``, by name        telling a simulation from a deployment      a deployment
``ClientAppActor``, by name      the same, at a node                         a deployed node
``ClientApp._registered_funcs``  declining what no function answers          any may be
``Message._metadata``            copies of messages, ids of those delivered  ``AttributeError``
``message_to_proto`` and back    messages as they travel, in a benchmark     ``ImportError``
===============================  ==========================================  =====================

Nothing that is missing makes a simulation of a deployment: a name that is not found is no
simulation, and there nodes insist on their own settings.
"""

import copy
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from flwr.app import Context, Message, Metadata, RecordDict, UserConfig

ClientAppCallable = Callable[[Message, Context], Message]
"""What a mod calls: the app, within its further mods."""

Mod = Callable[[Message, Context, ClientAppCallable], Message]
"""What an app's ``mods`` are."""

ClientFn = Callable[[Context], Any]
"""Makes a client of Flower's legacy API."""

_ACTORS, _ACTOR = "flwr.simulation.ray_transport.ray_actor", "ClientAppActor"
_SIMULATION_GRID: Final = "InMemoryGrid"


@dataclass
class PlainRun:
    """Run of an in-process grid, under a Flower without its own."""

    run_id: int
    fab_id: str = ""
    fab_version: str = ""
    fab_hash: str = ""
    override_config: UserConfig = field(default_factory=dict)


def _found(name: str, *modules: str) -> Any:
    """Return a member of the first of these modules that has it, or None."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


if TYPE_CHECKING:
    from flwr.serverapp import Grid
    from flwr.supercore.run import Run as Run
else:
    Run = _found("Run", "flwr.supercore.run", "flwr.common.typing") or PlainRun


def empty_run(run_id: int, override_config: UserConfig) -> Run:
    """Return a run without a FAB.

    Parameters
    ----------
    run_id : int
    override_config : dict
        Its run config, copied.

    Returns
    -------
    Run
        Flower's own, or :class:`PlainRun`.
    """
    run = Run.create_empty(run_id) if hasattr(Run, "create_empty") else PlainRun(run_id)
    run.override_config = dict(override_config)
    return run  # type: ignore[return-value]


def adopt_server_identity(run_id: int) -> None:
    """Set Flower's process-wide run and node, which ``Message()`` reads, to those of a server."""
    identity = _found("TaskIdentity", "flwr.supercore.task_identity")
    if identity is not None:
        identity.task_id = 1
        identity.run_id = run_id
        identity.node_id = _found("SUPERLINK_NODE_ID", "flwr.common.constant") or 1


def fused_config(run: Run) -> UserConfig | None:
    """Return the run config that Flower hands every app of a run.

    Parameters
    ----------
    run : Run

    Returns
    -------
    dict or None
        That of the run's FAB with the overrides; None if this Flower does not tell.
    """
    fused = _found("get_fused_config", "flwr.common.config", "flwr.supercore.config")
    if fused is None:
        return None
    return fused(run) or dict(run.override_config)  # {} without a FAB


def is_simulation_grid(grid: "Grid") -> bool:
    """Return whether a grid is that of Flower's simulation runtime: its class says so."""
    return any(
        made.__name__ == _SIMULATION_GRID and made.__module__.partition(".")[0] == "flwr"
        for made in type(grid).__mro__
    )


def in_simulation_runtime() -> bool:
    """Return whether this process is an actor of Flower's simulation runtime.

    A SuperNode's processes are no workers of Ray. Nothing is imported here: what is not loaded
    already does not run this process.
    """
    ray = sys.modules.get("ray")
    if ray is None or _ACTORS not in sys.modules or not ray.is_initialized():
        return False
    here = ray.get_runtime_context()
    return here.get_actor_id() is not None and _made_of(here.current_actor) == (_ACTORS, _ACTOR)


def _made_of(actor: Any) -> tuple[str | None, str | None]:
    """Return module and name of an actor's class, which Ray says in no public way."""
    made = getattr(actor, "_ray_actor_creation_function_descriptor", None)
    return getattr(made, "module_name", None), getattr(made, "class_name", None)


def has_function(app: ClientAppCallable, message_type: str) -> bool:
    """Return whether an app has a function for messages of a type; True where none can tell.

    Parameters
    ----------
    app : callable
        A ClientApp, or anything that answers messages.
    message_type : str
        "train", "evaluate" or "query", perhaps with an action.

    Returns
    -------
    bool
        False of a ClientApp alone that has functions, and not this one.
    """
    functions = getattr(app, "_registered_funcs", None)
    if not isinstance(functions, dict) or getattr(app, "_call", None) is not None:
        return True
    category, _, action = message_type.partition(".")
    return f"{category}.{action or 'default'}" in functions


def nodes_have_a_port_of_their_own() -> bool:
    """Return whether SuperNodes connect to another port than everybody else.

    Before Flower 1.40 they speak gRPC to ``--fleet-api-address`` of the SuperLink; since then they
    are served where ``flwr`` is, at ``--port``.
    """
    return tuple(map(int, version("flwr").split(".")[:2])) < (1, 40)


def received_message(metadata: Metadata, content: RecordDict) -> Message:
    """Return a message with metadata of its own, as Flower makes one of what it received.

    Parameters
    ----------
    metadata : flwr.app.Metadata
    content : flwr.app.RecordDict

    Returns
    -------
    flwr.app.Message
        Like one that came.
    """
    return Message(metadata=metadata, content=content)  # type: ignore[call-overload,no-any-return]


def changed_message(message: Message, message_type: str, content: RecordDict) -> Message:
    """Return a copy of a message with another type and content.

    Parameters
    ----------
    message : flwr.app.Message
        Stays as it is.
    message_type : str
    content : flwr.app.RecordDict

    Returns
    -------
    flwr.app.Message
        With metadata of its own.
    """
    changed = copy.copy(message)
    changed.__dict__["_metadata"] = copy.copy(message.metadata)
    changed.metadata.message_type = message_type
    changed.content = content
    return changed


def set_message_id(message: Message, message_id: str) -> None:
    """Give a message the id that its reply refers to, as Flower does when it is sent.

    Parameters
    ----------
    message : flwr.app.Message
    message_id : str
    """
    message.metadata.__dict__["_message_id"] = message_id


def as_sent(message: Message) -> bytes:
    """Return a message as it travels.

    Raises
    ------
    ImportError
        If this Flower writes messages otherwise.
    """
    from flwr.common.serde import message_to_proto

    written: bytes = message_to_proto(message).SerializeToString()
    return written


def as_received(sent: bytes) -> Message:
    """Return the message of :func:`as_sent`.

    Raises
    ------
    ImportError
        If this Flower reads messages otherwise.
    """
    from flwr.common.serde import message_from_proto
    from flwr.proto.message_pb2 import Message as Written

    return message_from_proto(Written.FromString(sent))
