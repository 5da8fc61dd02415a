"""Writes docs/configuration.md: every key, type, default and meaning, from the specs.

``python -m zerosum.simulations.commands.configuration_page > docs/configuration.md``
"""

import sys
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from zerosum.client.spec import Choices, ClientPolicy
from zerosum.client.spec.app_query_policy import AppQueryPolicy
from zerosum.client.spec.own_table import OwnTable
from zerosum.client.spec.query_policy import QueryPolicy
from zerosum.client.spec.section import described
from zerosum.server.spec import Experiment

_PREAMBLE = """# Configuration

An experiment is a TOML file. Every key has a default; `zerosum run my.toml --set privacy.clip=1.0`
changes one on the command line, and a run folder's `config.toml` holds all of them as resolved.
`extends = "cross-silo"` at the top starts from an experiment that ships with the package
(`zerosum list` names them).

What another experiment sets can be taken out, so that the default holds again: by the bare word
`unset` on the command line, as `--set privacy.noise_multiplier=unset`, or beside `extends` by
`unset = ["privacy.noise_multiplier", "encoding"]`; a name without a dot may be a whole section.
`--set data.clients=none` does the same for what is not there by default ("absent" below); in quotes
it is a text, as in `--set 'data.path="none"'`. Where `none` would be taken for something else than
absence, as of noise, it is refused, and what to write is said.
One of two keys that exclude each other is taken out by itself where only the other is given:
`epochs` and `steps`, `epsilon` and `noise_multiplier`. So is what a new value leaves without a
meaning: noise under `privacy.model = "none"`, `examples` and `lot` under `privacy.unit = "client"`,
`clip_fractions` under another clipping, the keys of another `server.rule`.

An unknown key, a wrong type or a value out of range is refused before anything starts.

This page is generated: `python -m zerosum.simulations.commands.configuration_page >
docs/configuration.md`.
"""

_POLICY = """## A client's policy

In a deployment each node names a TOML file of its own in its node config (`policy`). What these
keys forbid, the client declines, whatever the server asks. Without a file, or one of the required
keys, it declines everything.
"""

_QUERIES = """### `[queries]`

The queries of its own table that a node answers; without this section it answers none.
"""

_APP_QUERIES = """### `[app_queries]`

The sums of a Flower app's own values that a node answers
([flower-apps.md](flower-apps.md#apps-that-ask-for-counts)); without this section it answers none.
"""

_OWN_TABLE = """### `[table]`

The table that queries are answered from, in the same file. All keys of the policy may stand in a
section `[policy]` beside it instead, and those of queries in `[policy.queries]`. A file that is not
there, or lacks a column of `queries.columns`, is found when the node says hello: it is no client
then.
"""


def keys_page() -> str:
    """Return the page as Markdown."""
    lines = [_PREAMBLE, *_section("Top level", Experiment, "")]
    for name, field in Experiment.model_fields.items():
        if _is_section(field):
            lines += _section(f"`[{name}]`", field.annotation, f"{name}.")
    lines += [_POLICY, *_table(ClientPolicy, ""), _QUERIES, *_table(QueryPolicy, "queries.")]
    lines += [_APP_QUERIES, *_table(AppQueryPolicy, "app_queries.")]
    lines += [_OWN_TABLE, *_table(OwnTable, "table.")]
    return "\n".join(lines).rstrip() + "\n"


def _is_section(field: FieldInfo) -> bool:
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)]
    kind = kinds[0] if len(kinds) == 1 else field.annotation
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _section(title: str, spec: Any, prefix: str) -> list[str]:
    return [
        f"## {title}",
        "",
        (spec.__doc__ or "").strip().splitlines()[0],
        "",
        *_table(spec, prefix),
    ]


def _table(spec: type[BaseModel], prefix: str) -> list[str]:
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in described(spec).items():
        if not _is_section(field):
            meaning = (field.description or "").replace("\n", " ")
            kind = _type(field.annotation, field.metadata)
            lines.append(f"| `{prefix}{name}` | {kind} | {_default(field)} | {meaning} |")
    return [*lines, ""]


def _type(annotation: Any, metadata: list[Any]) -> str:
    """Return a type in words, with its bounds."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    for choices in (item for item in metadata if isinstance(item, Choices)):
        return " or ".join(f"`{name}`" for name in choices.names())
    if origin is Annotated:
        return _type(arguments[0], list(arguments[1:]))
    if origin in (Union, types.UnionType):
        kinds = [_type(a, metadata) for a in arguments if a is not type(None)]
        return " or ".join(kinds)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is list:
        return f"list of {_type(arguments[0], [])}"
    if origin is dict:
        return "table"
    name = {"int": "integer", "float": "number", "str": "text", "bool": "true or false"}
    return " ".join([name[annotation.__name__], *_bounds(metadata)])


def _bounds(metadata: list[Any]) -> list[str]:
    signs: list[tuple[type[Any], str, str]] = [
        (annotated_types.Gt, "gt", ">"),
        (annotated_types.Ge, "ge", ">="),
        (annotated_types.Lt, "lt", "<"),
        (annotated_types.Le, "le", "<="),
    ]
    flat = [m for item in metadata for m in getattr(item, "metadata", [item])]
    return [
        f"{sign} {getattr(item, name):g}"
        for item in flat
        for kind, name, sign in signs
        if isinstance(item, kind)
    ]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(keys_page())
