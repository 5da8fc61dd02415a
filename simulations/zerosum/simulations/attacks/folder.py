"""The folder of one run of attacks: made for it, continued by it, or drawn again from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile

from zerosum.client.files.durable_append import replace_file
from zerosum.client.files.file_errors import reason
from zerosum.server.config import ConfigError
from zerosum.server.runs.run_folder import check_unused
from zerosum.simulations.attacks.harness.partial_results import AttackRequest, digest
from zerosum.simulations.attacks.harness.play import Cell

ROWS, TABLE, LOG = "results.csv", "table.md", "attacks.log"


@dataclass(frozen=True)
class AttackFolder:
    """A folder that belongs to one run of attacks."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> "AttackFolder":
        """Make a new folder.

        Parameters
        ----------
        path : Path

        Returns
        -------
        AttackFolder

        Raises
        ------
        ConfigError
            If the path is a file or a folder that is not empty, or cannot be written.
        """
        check_unused(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=path):  # fail now rather than when all is played
                pass
        except OSError as error:
            raise ConfigError(f"--out {path} cannot be written: {reason(path, error)}") from None
        return cls(path)

    @classmethod
    def of(
        cls, path: Path, asked: AttackRequest, cells: Sequence[Cell], *, resumed: bool
    ) -> "AttackFolder":
        """Make the folder of a new run, or check that of an earlier run which continues.

        Parameters
        ----------
        path : Path
        asked : AttackRequest
        cells : sequence of Cell
        resumed : bool
            Whether the folder is an earlier run's.

        Returns
        -------
        AttackFolder

        Raises
        ------
        ConfigError
            If it cannot be made, or the earlier run was of other cells.
        """
        if resumed:
            asked.check_cells(cells, path)
            return cls(path)
        made = cls.create(path)
        replace(asked, cells=digest(cells)).write(path)
        return made

    def write(self, name: str, text: str) -> None:
        """Write a file whole, or not at all.

        Parameters
        ----------
        name, text : str
        """
        replace_file(self.path / name, text.encode(errors="backslashreplace"))
