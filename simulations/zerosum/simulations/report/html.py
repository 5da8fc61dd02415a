"""Fill HTML templates so that no value of a run is ever read as markup."""

import base64
import hashlib
import re
from functools import cache
from importlib import resources
from typing import NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from zerosum.simulations.report.glossary import MEANINGS

_SHARED = "zerosum.simulations.report"
"""The package whose templates every report may extend and import."""


class Script(NamedTuple):
    """The script of every page: its text, and its hash as a content security policy has it."""

    text: Markup
    hash: str


class Contents(NamedTuple):
    """A page's main part, and of each section in it the identifier and the heading."""

    html: Markup
    contents: list[tuple[str, Markup]]


@cache
def script() -> Script:
    """Return the script with the hash by which a policy admits it alone."""
    path = resources.files(_SHARED) / "templates" / "page.js"
    text = path.read_bytes().replace(b"\r\n", b"\n").decode()
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Script(Markup(text), f"sha256-{digest}")


def with_contents(main: Markup) -> Contents:
    """Name the sections of a page, so that a list of contents can lead to them.

    Parameters
    ----------
    main : Markup
        With ``<section><h2>`` where a section begins: values of a run are escaped in it.

    Returns
    -------
    Contents
        In the order of the page.
    """
    found: list[tuple[str, Markup]] = []

    def named(match: re.Match[str]) -> str:
        plain = re.sub(r"<[^>]*>|&[^;]*;|[^\w\s-]", "", match[1]).strip().lower()
        name = re.sub(r"[\s_]+", "-", plain) or "section"
        taken = sum(other.rpartition(".")[0] == name or other == name for other, _ in found)
        found.append((f"{name}.{taken + 1}" if taken else name, Markup(match[1])))
        return f'<section id="{found[-1][0]}"><h2>{match[1]}</h2>'

    html = re.sub(r"<section>\s*<h2>(.*?)</h2>", named, str(main), flags=re.S)
    return Contents(Markup(html), found)


@cache
def _environment(package: str) -> Environment:
    # Escaping does not go by a file's ending here, as Jinja2's default does: a template that is
    # renamed must not become a hole. The one markup that enters from Python is an SVG of ours.
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(_SHARED)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    environment.filters["with_contents"] = with_contents
    environment.globals |= {"script": script(), "glossary": MEANINGS}
    return environment


def fill(package: str, template: str, **values: object) -> str:
    """Fill a template with values, escaped unless they are ``markupsafe.Markup``.

    Parameters
    ----------
    package : str
        Package with a folder ``templates``; those of the run report can be used beside its own.
    template : str
        File name of the template.
    **values : object
        What the template names. A name it uses and does not get is an error.

    Returns
    -------
    str
        The page.

    Raises
    ------
    jinja2.UndefinedError
        If the template uses a name that has no value.
    """
    return _environment(package).get_template(template).render(values)
