"""Say of a run that its noise leaves little to learn, and from how many clients on it would not."""

from zerosum.server.config import ConfigError
from zerosum.server.planning.nearest_setting import HopelessPlan, clients_needed
from zerosum.server.planning.signal import WholeRun, planned_whole_run
from zerosum.simulations.report.record import RunRecord


def hopeless_caution(run: RunRecord) -> list[str]:
    """Return what a plan of the same settings warns of.

    Parameters
    ----------
    run : RunRecord
        Full or public: settings, clients and parameters are enough.

    Returns
    -------
    list of str
        A sentence or two; none where the run is not hopeless, or its size is not recorded.
    """
    whole = whole_run_of(run)
    if whole is None or not whole.hopeless or run.population is None or run.dimension is None:
        return []
    needed = clients_needed(HopelessPlan(run.experiment, run.population, run.dimension))
    nearest = (
        "zerosum plan, given the folder's config.toml, names the nearest settings that are not."
        if needed is None
        else f"At this noise {needed:,} clients a round would be enough; zerosum plan, given the "
        "folder's config.toml, names other settings."
    )
    return [f"{whole.why_hopeless[:1].upper()}{whole.why_hopeless[1:]}. {nearest}"]


def whole_run_of(run: RunRecord) -> WholeRun | None:
    """Judge a run by its settings; None without noise, or where its size is not recorded.

    Parameters
    ----------
    run : RunRecord
        Full or public.
    """
    resolved = run.experiment.privacy.noise_multiplier is not None
    if not resolved or run.population is None or run.dimension is None:
        return None
    try:
        return planned_whole_run(run.experiment, run.population, run.dimension)
    except (ConfigError, ValueError):  # settings of another version, or a summary by hand
        return None
