"""The page of every command, from the command line's own definitions."""

from collections.abc import Iterator

import click
import typer

from zerosum.simulations.commands.main import app

_PREAMBLE = """# Commands

Every command, as `zerosum COMMAND --help` says it. `zerosum -h` lists them.
"""


def page() -> str:
    """Return the page as Markdown."""
    root = typer.main.get_command(app)
    context = click.Context(root, info_name="zerosum")
    return "\n".join([_PREAMBLE, *_described(root, context, 2)]).rstrip() + "\n"


def command_paths() -> list[str]:
    """Return every command as it is called: "zerosum keys", "zerosum keys new" and so on."""
    root = typer.main.get_command(app)
    return list(_below(root, "zerosum"))


def _below(command: click.Command, path: str) -> Iterator[str]:
    for name, child in _children(command):
        yield f"{path} {name}"
        yield from _below(child, f"{path} {name}")


def _children(command: click.Command) -> list[tuple[str, click.Command]]:
    children = getattr(command, "commands", {})
    return sorted((name, child) for name, child in children.items() if not child.hidden)


def _described(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    """Yield the lines of a command and, below it, of its own commands."""
    if level > 2:
        yield f"{'#' * min(level - 1, 3)} {context.command_path}\n"
    yield (command.help or "").strip().replace("\f", "") + "\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n"
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    for title, rows in (
        ("argument", [p for p in shown if isinstance(p, click.Argument)]),
        ("option", [p for p in shown if isinstance(p, click.Option)]),
    ):
        if rows:
            yield f"| {title} | meaning |\n|---|---|"
            yield "\n".join(_row(parameter, context) for parameter in rows) + "\n"
    for name, child in _children(command):
        below = click.Context(child, info_name=name, parent=context)
        yield from _described(child, below, level + 1)


def _row(parameter: click.Parameter, context: click.Context) -> str:
    value = parameter.make_metavar(context).replace(" RANGE", "")
    if isinstance(parameter, click.Argument):
        name = f"`{value}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        name = names if getattr(parameter, "is_flag", False) else f"{names} `{value}`"
    meaning = (getattr(parameter, "help", None) or "").replace("\n", " ")
    facts = [_bounds(parameter.type), _default(parameter)]
    said = " ".join([meaning, *(f"{fact}." for fact in facts if fact)])
    return f"| {_cell(name)} | {_cell(said.strip())} |"


def _bounds(kind: object) -> str:
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    if low is None and high is None:
        return ""
    above = "Above" if getattr(kind, "min_open", False) else "At least"
    below = "below" if getattr(kind, "max_open", False) else "at most"
    ends = [
        f"{above} {low:g}" if low is not None else "",
        f"{below} {high:g}" if high is not None else "",
    ]
    return ", ".join(filter(None, ends)).capitalize()


def _default(parameter: click.Parameter) -> str:
    """Return what holds where the parameter is not given, in words; flags are off."""
    if parameter.required:
        return "Required" if isinstance(parameter, click.Option) else ""
    value = getattr(parameter.default, "value", parameter.default)
    if not isinstance(value, str | int | float) or value is False or value == "":
        return ""
    return f"Default: `{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
