"""The report of a small run, which the site shows as it is."""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

_SETTINGS = ("rounds=15", "workers=1")


def write(path: Path) -> None:
    """Run the experiment ``digits`` and write its report to a path.

    A process of its own: a run takes over generators and loggers, which are Sphinx's here.
    """
    arguments = [each for setting in _SETTINGS for each in ("--set", setting)]
    program = "from zerosum.simulations.commands.entry import main; main()"
    with TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-c", program, "run", "digits", *arguments, "--out", f"{folder}/run"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        shutil.copy(Path(folder, "run", "report.html"), path)
