"""Fill HTML templates so that no value of a run is ever read as markup."""

from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

_SHARED = "zerosum.simulations.report"
"""The package whose templates every report may extend and import."""


@cache
def _environment(package: str) -> Environment:
    # Escaping does not go by a file's ending here, as Jinja2's default does: a template that is
    # renamed must not become a hole. The one markup that enters from Python is an SVG of ours.
    return Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(_SHARED)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )


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
