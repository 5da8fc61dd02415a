"""Write ``board.html``: two A4 pages by which an ethics board judges a run, or a plan of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zerosum.client.files.durable_append import replace_file
from zerosum.server.config import ConfigError
from zerosum.server.planning.plan import Outlook
from zerosum.server.planning.spent_budget import ledger_header, planned_figures
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.observers import ObserverName
from zerosum.server.runs.run_folder import LEDGER, RunFolder
from zerosum.server.runs.run_summary import DEPLOYED
from zerosum.server.spec import Experiment
from zerosum.simulations.report import board_assumptions, board_words
from zerosum.simulations.report.board_assumptions import shortened
from zerosum.simulations.report.hopeless_run import whole_run_of
from zerosum.simulations.report.html import fill
from zerosum.simulations.report.record import RunRecord, read_run
from zerosum.simulations.report.unprotected import public_of_run
from zerosum.simulations.report.words import outcome

BOARD = "board.html"

MOST_OF_NAME = 40
"""Letters of a name for which a sheet has room: two lines."""

MOST_OF_OUTCOME = 240
"""Letters of an outcome, likewise: of many metrics the first are shown."""


@dataclass(frozen=True)
class BoardFacts:
    """What the pages say, of a run or of a plan.

    Attributes
    ----------
    experiment : Experiment
        Its noise resolved.
    state : str
        "planned", "unfinished", "ended early" or "finished".
    rounds : int
        That were run.
    population, dimension : int or None
        Clients; trained numbers of the model; None where not recorded.
    bounds : mapping of str to EpsilonBound
        By observer; those of all planned rounds wherever not all were run.
    simulated : bool or None
        Whether noise came from a seed; None where that is not known yet.
    public_records : int or None
        Records that nothing protects; None where nobody counted them.
    outcome : str
        What the model can do, in a sentence; empty before a run.
    hopeless : bool
        Whether the noise leaves little to learn.
    source : str
        Where the figures come from.
    seeded : bool
        Whether that noise of a simulation can be drawn again.
    """

    experiment: Experiment
    state: str
    rounds: int
    population: int | None
    dimension: int | None
    bounds: Mapping[ObserverName, EpsilonBound]
    simulated: bool | None
    public_records: int | None
    outcome: str
    hopeless: bool
    source: str
    seeded: bool = True


def write_board(folder: RunFolder | Path) -> Path:
    """Write ``board.html`` into a run folder, from its files alone.

    Parameters
    ----------
    folder : RunFolder or Path
        Of a run, finished or not.

    Returns
    -------
    Path
        The pages.

    Raises
    ------
    ConfigError
        If the path holds no run, or its files cannot be read.
    """
    if isinstance(folder, Path):
        folder = RunFolder.open(folder)
    folder.write(BOARD, board_page(board_of_run(folder)).encode(errors="backslashreplace"))
    return folder.path / BOARD


def board_of_run(folder: RunFolder) -> BoardFacts:
    """Return what the pages say of a run.

    Raises
    ------
    ConfigError
        If its files cannot be read.
    """
    run = read_run(folder)
    whole = whole_run_of(run)
    return BoardFacts(
        experiment=run.experiment,
        state=_state(run),
        rounds=len(run.rounds),
        population=_population(run, folder),
        dimension=run.dimension,
        bounds=_bounds(run, folder),
        simulated=_simulated(run),
        public_records=public_of_run(run),
        outcome=shortened(outcome(run)[1], MOST_OF_OUTCOME) if run.rounds else "",
        hopeless=whole is not None and whole.hopeless,
        source=f"the files of the run folder {run.name}",
        seeded=bool(run.summary.noise_from_seed),
    )


def board_of_plan(planned: Outlook) -> BoardFacts:
    """Return what the pages say of a plan.

    Parameters
    ----------
    planned : Outlook
        With its experiment.

    Returns
    -------
    BoardFacts

    Raises
    ------
    ConfigError
        If the outlook has no experiment.
    """
    values, experiment = planned.values, planned.experiment
    if experiment is None:
        raise ConfigError("this outlook has no experiment: plan it again")
    return BoardFacts(
        experiment=experiment,
        state="planned",
        rounds=0,
        population=values["population"],
        dimension=values["dimension"],
        bounds=planned.epsilon,
        simulated=None,
        public_records=values.get("public_records"),
        outcome="",
        hopeless=bool(planned.hopeless),
        source="a plan: nothing has been run, and no figure depends on records",
    )


def write_planned_board(path: Path, planned: Outlook) -> None:
    """Write the pages of a plan into a file, whole or not at all.

    Parameters
    ----------
    path : Path
    planned : Outlook
        With its experiment.

    Raises
    ------
    ConfigError
        If the file cannot be written.
    """
    page = board_page(board_of_plan(planned)).encode(errors="backslashreplace")
    try:
        replace_file(path.resolve(), page)
    except OSError as error:
        raise ConfigError(f"--board {path}: {error.strerror or error}") from None


def board_page(facts: BoardFacts) -> str:
    """Fill the two pages."""
    return fill(
        "zerosum.simulations.report",
        "board.html",
        facts=facts,
        title=shortened(facts.experiment.name, MOST_OF_NAME),
        words=board_words,
        assumptions=board_assumptions,
    )


def _state(run: RunRecord) -> str:
    if not run.finished:
        return "unfinished"
    return "ended early" if run.summary.ended_by else "finished"


def _simulated(run: RunRecord) -> bool | None:
    if run.summary.noise_from_seed is None:
        return None
    return run.summary.noise_from_seed or run.summary.engine.get("name") != DEPLOYED["name"]


def _population(run: RunRecord, folder: RunFolder) -> int | None:
    """Return how many clients take part; while a run goes on its ledger alone may know."""
    if run.population is None and (folder.path / LEDGER).is_file():
        return ledger_header(folder).population
    return run.population


def _bounds(run: RunRecord, folder: RunFolder) -> Mapping[ObserverName, EpsilonBound]:
    """Return a run's bounds; of one that goes on those of its whole plan, or what is more.

    A board judges what was agreed to, and a run that a person ends for what it shows has spent it.
    Without a ledger nothing says what the whole plan costs; no figure of a part stands for it.
    """
    if run.finished or not run.experiment.privacy.private:
        return run.bounds
    if not (folder.path / LEDGER).is_file():
        return {}
    planned = planned_figures(run.experiment, ledger_header(folder))
    return {
        name: bound if _value(run.bounds.get(name)) <= bound.value else run.bounds[name]
        for name, bound in planned.items()
    }


def _value(bound: EpsilonBound | None) -> float:
    """Return a recorded figure, infinite too; nothing recorded is no more than what is planned."""
    return 0.0 if bound is None else bound.value
