"""Find out whether Flower would pack a run folder into an app, and so send it to every node.

``flwr build`` and ``flwr run`` take along every TOML, JSON and JSON Lines file under the app's
folder, but what the ``.gitignore`` in that folder itself, or ``fab-exclude``, names. A
``.gitignore`` further down is not read, so that a run folder cannot protect itself.
"""

import warnings
from pathlib import Path
from typing import Any

from zerosum.client.files.toml_file import TomlError, read_toml
from zerosum.server.runs.run_folder import LEDGER


def app_that_packs(folder: Path) -> Path | None:
    """Return the Flower app whose bundle would have a folder's ledger.

    Parameters
    ----------
    folder : Path
        Of a run; it need not exist.

    Returns
    -------
    Path or None
        The app's folder; None where the run's lies in none, or is excluded.
    """
    folder = folder.resolve()
    for app in (folder, *folder.parents):
        try:
            section = read_toml(app / "pyproject.toml")["tool"]["flwr"]["app"]
        except (TomlError, OSError, KeyError, TypeError):
            continue
        if _packs(app, section, (folder / LEDGER).relative_to(app).as_posix()):
            return app
    return None


def packing_words(folder: Path, elsewhere: str) -> str | None:
    """Say that a run folder would be sent to every node, and what keeps it back.

    Parameters
    ----------
    folder : Path
        Of a run; it need not exist.
    elsewhere : str
        What names another folder, as ``--out``.

    Returns
    -------
    str or None
        One line; None where no app would have it.
    """
    app = app_that_packs(folder)
    if app is None:
        return None
    inside = folder.resolve().relative_to(app).parts
    line = f"write a line /{inside[0]}/ into {app / '.gitignore'}, or " if inside else ""
    return (
        f"the run folder lies in the Flower app {app}: the next `flwr run` or `flwr build` packs "
        "its ledger (who took part) and settings, and every node gets them; "
        f"{line}name a folder elsewhere by {elsewhere}"
    )


def _packs(app: Path, section: Any, file: str) -> bool:
    from pathspec import PathSpec  # what flwr, which needs it, matches with

    def matches(lines: Any) -> bool:
        with warnings.catch_warnings():  # Flower's own kind of pattern is an old one
            warnings.simplefilter("ignore", DeprecationWarning)
            return PathSpec.from_lines("gitwildmatch", lines).match_file(file)

    try:
        ignored = (app / ".gitignore").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):  # Flower takes it for an empty one
        ignored = []
    wanted = section.get("fab-include")
    return (
        not matches(line.strip() for line in ignored)
        and not matches(section.get("fab-exclude") or ())
        and (wanted is None or matches(wanted))
    )
