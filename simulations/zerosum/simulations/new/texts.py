"""Parts of the written files that depend on who is protected, and on whose the data are."""

import math
from collections.abc import Mapping
from typing import Any

import tomli_w

from zerosum.simulations.new.recipes import Protected, Recipe

_HEADS = {
    Protected.NONE: """\
# Every client in every round, masked sums and no noise. `zerosum list` and docs/configuration.md
# of zerosum say what else there is.""",
    Protected.PATIENT: """\
# Distributed DP-SGD: every client in every round, each record hidden in noise. A person with two
# records is protected as two. `zerosum plan experiment.toml` says what it promises.""",
    Protected.CLIENT: """\
# Every client in every round, and all that is one client's hidden in noise: that takes many
# clients. `zerosum plan experiment.toml` says what it promises.""",
}

_DATA = """\
# All records in one place: a simulation {deals}, and test_fraction of them is the public
# test data. A node names a file of its own in its node config (data-path), and trains on all of it;
# with hold-out=true, on all but its public test records.
# Your task reads these keys: path, clients, partition, alpha, shards_per_client, test_fraction."""

_COMMENTS: Mapping[str, str] = {
    "privacy.model": "each client draws its share of the noise",
    "privacy.examples": "training records of all clients, no test records among them: public",
    "privacy.lot": "expected in a step: each is drawn with probability lot/examples",
    "privacy.epsilon": "of all rounds together; the noise is found",
    "privacy.epsilon_for": "against the server and fellow clients, while masks hold",
    "encoding.range": "largest coordinate of one client's sum",
}

_BEFORE: Mapping[str, str] = {
    "none.privacy": """\
# Masks alone protect a client here, and nothing protects a record from whoever sees the models.
# `zerosum new NAME --privacy patient --epsilon 3` writes what hides each record in noise.
""",
    "secagg": """\
# "semi-honest": the nodes trust the server to follow the protocol, and need no keys beforehand.
# "malicious" withstands a server that lies, and needs a signed roster: README.md says how.
""",
    "patient.secagg": """\
# Nobody may be missing: the noise of all is needed in each sum.
""",
}

_POLICY_HEAD = """\
# What a node accepts, whatever the server asks; every key is in docs/configuration.md of zerosum.
# The owner of the data keeps this file, and names it in the node config (policy).
"""

_POLICY_BEFORE: Mapping[str, str] = {
    "none.models": """\
# Without noise the masks alone protect this node: here its owner says that this is enough.
""",
    "none.min_cohort": """\
# Nothing permissive is assumed for these three: a pair as cohort (2), nobody who works for the
# server (0.0) and no bound on what all answers together cost (inf) have to be written.
""",
    "min_noise_multiplier": "# As the experiment has it; no weaker one is answered.\n",
    "min_cohort": """\
# Fewest nodes in a sum, this one included, and what part of them may work for the server.
""",
    "max_epsilon": """\
# What one run costs by this node's own count, which is a little above the run's epsilon_sum. Two
# runs cost twice that. A round that is asked again (resume=, or given up after this node answered)
# is charged again{repeated}.
""",
}

_NO_ROOM = """, and this leaves no room for it: {epsilon:g}, written before the first run,
# has room for one. That is then what this node promises"""

_NOISE = {
    Protected.NONE: """\
As written there is no noise (`privacy.model` in `experiment.toml`): sums and models
can still betray what a record says.""",
    Protected.PATIENT: """\
Each record is hidden in noise (`[privacy]` in `experiment.toml`): epsilon_sum is at most
{epsilon:g} at delta {delta:g}. A person with several records is protected as that many.""",
    Protected.CLIENT: """\
All that is one client's is hidden in noise (`[privacy]` in `experiment.toml`):
epsilon_sum is at most {epsilon:g} at delta {delta:g}.""",
}


def experiment_texts(recipe: Recipe, training: str) -> dict[str, str]:
    """Return what the templates of experiment and policy leave open.

    Parameters
    ----------
    recipe : Recipe
        Who is protected, and how.
    training : str
        Lines of ``[training]``, where clients train for themselves.

    Returns
    -------
    dict of str to str
        By placeholder.
    """
    who = recipe.protected
    description = recipe.description
    deals = "splits them"
    if description.clients is not None:
        deals = "has one client a file"
        if description.client_column is not None:
            deals = "has the clients that a column names"
    return {
        "head": _HEADS[who],
        "data_comment": _DATA.format(deals=deals),
        "rounds": str(recipe.rounds),
        "training": "" if who is Protected.PATIENT else f"\n[training]\n{training}\n",
        "sections": "\n\n".join(
            _section(who, name, values) for name, values in recipe.sections.items()
        ),
        "policy": _POLICY_HEAD + "".join(_policy_lines(recipe)),
    }


def _section(who: Protected, name: str, values: Mapping[str, Any]) -> str:
    before = _BEFORE.get(f"{who}.{name}", "")
    before += _BEFORE.get(name, "")
    lines = []
    for key, value in values.items():
        comment = _COMMENTS.get(f"{name}.{key}", "")
        line = _line(key, value)
        lines.append(f"{line:<24}# {comment}" if comment and who is not Protected.NONE else line)
    return f"[{name}]\n{before}" + "\n".join(lines)


def _policy_lines(recipe: Recipe) -> list[str]:
    who, texts = recipe.protected, []
    for key, value in recipe.policy().items():
        before = _POLICY_BEFORE.get(f"{who}.{key}")
        if before is None and recipe.private:
            before = _POLICY_BEFORE.get(key)
        if before and key == "max_epsilon":
            before = before.format(repeated=_repeated(recipe, value))
        texts.append(f"{before or ''}{_line(key, value)}\n")
    return texts


def _repeated(recipe: Recipe, admitted: float) -> str:
    """Return whether the policy admits one round more, in words; it may, as it is rounded up."""
    more = recipe.node_epsilon(repeated=1)
    return ", and there is room for one" if more <= admitted else _NO_ROOM.format(epsilon=more)


def _line(key: str, value: Any) -> str:
    """Return one key as TOML, in one line."""
    if isinstance(value, dict):
        inside = ", ".join(_line(name, each) for name, each in value.items())
        return f"{key} = {{ {inside} }}"
    if isinstance(value, list):
        return f"{key} = [{', '.join(_line('', each).partition(' = ')[2] for each in value)}]"
    if isinstance(value, float) and math.isfinite(value) and 0 < value < 1e-3:
        return f"{key} = {value:.0e}".replace("e-0", "e-")
    if not key:
        return tomli_w.dumps({"x": value}).strip().replace("x", "", 1)
    return tomli_w.dumps({key: value}).strip()


def readme_texts(recipe: Recipe, data: str | list[str], several: bool) -> dict[str, str]:
    """Return what the template of README.md leaves open.

    Parameters
    ----------
    recipe : Recipe
        Who is protected, and how.
    data : str or list of str
        As ``data.path`` has it.
    several : bool
        Whether each file is a client.

    Returns
    -------
    dict of str to str
        By placeholder.
    """
    nodes = recipe.nodes
    clients = recipe.clients
    names = data if isinstance(data, str) else ", ".join(data)
    simulate = f"splits the records of `{names}` over {clients} clients."
    if several:
        simulate = f"takes each file of `{names}` for a client: {clients}."
    elif recipe.description.client_column is not None:
        column = recipe.description.client_column
        simulate = f"takes the {clients} clients that column `{column}` of `{names}` names."
    here = (
        f"Here all nodes read `{names}` (`server-paths`) and train on a part of it each, as "
        "simulated clients do."
    )
    if several:
        here = (
            "With `hold-out=true` a node does not train on the records that the server, which "
            "reads the\nsame files here, tests on. Name each node's own file in place of FILE."
        )
    shown = [_supernode(number, nodes, several) for number in range(min(2, nodes))]
    if nodes > 2:
        shown.append(f"    # and so on, up to partition-id={nodes - 1} and a --port of its own")
    epsilon, delta = recipe.epsilon or 0.0, recipe.delta
    dealt = recipe.description.clients is None
    return {
        "noise_words": _NOISE[recipe.protected].format(epsilon=epsilon, delta=delta),
        "simulate_words": simulate
        + (" `--set data.clients=20`\nchanges their number;" if dealt else "")
        + "\n`--set rounds=20` changes another key.",
        "supernodes": "\n\n".join(shown),
        "here_words": here,
        "hold_out": "true" if several else "false",
        "hold_out_words": _hold_out_words(recipe, several),
        "keys": "\n".join(
            f"    zerosum keys new node{number}.key" for number in range(min(2, nodes))
        )
        + ("\n    # and so on, each on its node" if nodes > 2 else ""),
        "publics": " ".join(f"{number}=PUBLIC_OF_NODE_{number}" for number in range(min(4, nodes)))
        + (" …" if nodes > 4 else ""),
    }


def _hold_out_words(recipe: Recipe, several: bool) -> str:
    """Return what a node with a file of its own trains on, and what has to fit that."""
    counted = recipe.protected is Protected.PATIENT
    every = "`examples` and `lot` in `experiment.toml` to the records of all nodes together"
    if several:
        return (
            "`hold-out=true` leaves out the public test records, which the server tests on"
            + (":\n`examples` counts without them" if counted else "")
            + ". Where the server tests on other people's records,\nor on none, write "
            "`hold-out=false` on every node" + (f", and set\n{every}" if counted else "") + "."
        )
    return (
        "`hold-out=false`: it trains on all of that. On a node whose file the server tests on, "
        "write `true`:\nthe public test records are then left out."
        + (f" Set {every};\ndocs/tables.md of zerosum has the other keys." if counted else "")
    )


def _supernode(number: int, nodes: int, several: bool) -> str:
    file = ' data-path="FILE" hold-out=true' if several else " server-paths=true"
    return (
        f"    flower-supernode --insecure --superlink 127.0.0.1:8000 --port {9094 + number} \\\n"
        f"        --node-config 'partition-id={number} num-partitions={nodes} "
        f'state-dir="state/{number}" policy="policy.toml"{file}\''
    )
