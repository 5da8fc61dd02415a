"""``zerosum plan``: what a setting buys and costs, before anything runs, mostly without data."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from zerosum.client.spec import PrivacySpec
from zerosum.client.task import Task, resolve_task
from zerosum.client.task import population as population_of
from zerosum.server.config import ConfigError
from zerosum.server.planning.nearest_setting import HopelessPlan, Nearest, nearest_settings
from zerosum.server.planning.plan import Outlook, outlook
from zerosum.server.planning.preflight import prepare
from zerosum.server.privacy.observers import OBSERVERS, observer_title
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.run_summary import data_summary
from zerosum.server.spec import Experiment
from zerosum.simulations.config import DEFAULT_EXPERIMENT, attempt, with_task
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.engine.one_at_a_time import alone
from zerosum.simulations.report.unprotected import is_own, public_count, unprotected_in_words
from zerosum.simulations.report.words import count

LARGEST_POPULATION = 10**10
"""Everybody."""

LARGEST_DIMENSION = 10**10
"""Parameters of a planned model: beyond it a session's vector, padded, has no size on the wire."""


@dataclass(frozen=True)
class _Read:
    """What the task's data say: their summary, the records of all clients, and the public ones."""

    data: dict[str, Any] | None = None
    examples: Callable[[], int | None] = lambda: None
    public: int | None = None


@alone("plan")
def plan(
    source: str | Path | Mapping[str, Any] | Experiment | None = None,
    overrides: Iterable[str] = (),
    *,
    task: Task | type[Task] | Callable[[], Task] | str | None = None,
    population: int | None = None,
    dimension: int | None = None,
    epsilon: float | None = None,
) -> Outlook:
    """Return the outlook of an experiment.

    Parameters
    ----------
    source : str, Path, mapping or Experiment, optional
        A shipped experiment's name, a TOML file, plain values or a spec.
    overrides : iterable of str
        As ``--set`` takes them.
    task : Task, class, function or str, optional
        As for :func:`zerosum.simulations.api.run`.
    population, dimension : int, optional
        Clients and trainable parameters. With both, no data are read; what is missing is taken
        from the task.
    epsilon : float, optional
        Find the noise for this epsilon, in place of what the experiment says.

    Returns
    -------
    Outlook
        In numbers, and typed bounds.

    Raises
    ------
    ConfigError, TaskError
        One line that names the key, its value, what is allowed and the cure.
    """
    return attempt(
        with_task(DEFAULT_EXPERIMENT if source is None else source, task),
        overrides,
        lambda experiment: _planned(experiment, population, dimension, epsilon),
    )


def _planned(
    experiment: Experiment, population: int | None, dimension: int | None, epsilon: float | None
) -> Outlook:
    if epsilon is not None:
        experiment = _with_epsilon(experiment, epsilon)
    clients = _clients_word(experiment, population)
    if population is None:
        population = experiment.data.clients
    read = _Read()
    if population is None or dimension is None:
        population, dimension, read = _of_task(experiment, population, dimension)
    if population < 1 or dimension < 1:
        raise ConfigError(f"--population {population} --dimension {dimension}: at least 1 of each")
    if dimension > LARGEST_DIMENSION or population > LARGEST_POPULATION:
        raise ConfigError(
            f"--population {population} --dimension {dimension}: plans are for at most "
            f"{LARGEST_POPULATION:,} clients and {LARGEST_DIMENSION:,} parameters"
        )
    # A delta that is too large is shown and warned of, not refused: that is what a plan is for.
    lenient = experiment.privacy.model_copy(update={"allow_large_delta": True})
    experiment = experiment.model_copy(update={"privacy": lenient})
    resolved = prepare(experiment, population=population, dimension=dimension)
    planned = outlook(resolved, population=population, dimension=dimension)
    if planned.hopeless:
        plan = HopelessPlan(experiment, population, dimension, clients, read.examples())
        if epsilon is not None:
            plan = replace(plan, epsilon_word="--epsilon ")
        planned = _with_nearest(planned, nearest_settings(plan))
    read_values: dict[str, Any] = {} if read.data is None else {"data": read.data}
    read_values |= {"public_records": read.public} if read.public else {}
    return replace(planned, values=planned.values | read_values) if read_values else planned


def _with_nearest(planned: Outlook, found: tuple[Nearest, ...]) -> Outlook:
    listed = [{"line": near.line, "says": near.says} for near in found]
    return replace(planned, values=planned.values | {"nearest": listed}, nearest=found)


def plan_table(found: Outlook) -> Table:
    """Build an outlook's table of two columns."""
    name = found.values["name"]
    table = Table(title=f"{name}, planned", title_justify="left", show_header=False)
    for name, value in _rows(found):
        table.add_row(name, value)
    return table


def nearest_lines(found: Outlook) -> list[str]:
    """Return in lines the nearest settings that are not hopeless, to be pasted.

    Parameters
    ----------
    found : Outlook
        A hopeless one.

    Returns
    -------
    list of str
        A heading and a line each; one that says that there is none.
    """
    if not found.nearest:
        return ["  No change of clients, rounds or epsilon that protects leads out of it."]
    lines = [f"    {near.line}    ({near.says})" for near in found.nearest]
    return ["  The nearest settings that are not hopeless:", *lines]


def _with_epsilon(experiment: Experiment, epsilon: float) -> Experiment:
    if not experiment.privacy.private:
        raise ConfigError(f'--epsilon {epsilon}: privacy.model = "none" has no noise to find')
    values = experiment.privacy.model_dump() | {"epsilon": epsilon, "noise_multiplier": None}
    try:
        privacy = PrivacySpec.model_validate(values)
    except ValueError:
        raise ConfigError(f"--epsilon {epsilon}: an epsilon is a number above 0") from None
    return experiment.model_copy(update={"privacy": privacy})


def _of_task(
    experiment: Experiment, population: int | None, dimension: int | None
) -> tuple[int, int, _Read]:
    from zerosum.client.training.seeded_task import seeded_resolution
    from zerosum.client.training.threads import one_thread
    from zerosum.simulations.data.edited_modules import read_again

    try:
        with seeded_resolution(experiment.seed), read_again(experiment.task):
            task = resolve_task(experiment.task, experiment.data, experiment.model, experiment.seed)
    except DataError as error:
        raise DataError(f"{error}; or plan without data: --population N --dimension D") from None
    if population is None:
        population = population_of(task, experiment.data)
    from zerosum.simulations.api import count_examples
    from zerosum.simulations.engine.trial_client import take_trial_step

    # Tried among the task's own clients: its records may not go round more that are only planned.
    suggests = experiment.data.clients is not None or hasattr(task, "num_clients")
    own = population_of(task, experiment.data) if suggests else population
    with one_thread():
        trained = take_trial_step(task, own, experiment).layout.dimension
    dimension = trained if dimension is None else dimension
    examples = partial(count_examples, task, own, experiment.seed)
    summary = data_summary(task)
    public = public_count(summary, experiment.task, _tested(task, experiment))
    return population, dimension, _Read(summary, examples, public)


def _tested(task: Task, experiment: Experiment) -> int | None:
    """Count the test records of a task whose own they are."""
    if not is_own(experiment.task):
        return None
    import torch

    from zerosum.client.training.examples import as_examples
    from zerosum.client.training.seeded_task import public_records

    records = public_records(task, experiment.seed)
    if records is None:
        return None
    return len(as_examples(records, torch.float32, torch.device("cpu")))


def _clients_word(experiment: Experiment, population: int | None) -> str:
    """Return what sets the number of clients; empty where the data have as many as they have."""
    if population is not None:
        return "--population "
    natural = experiment.data.partition == "natural"
    return "" if natural or experiment.data.clients is None else "--set data.clients="


def _rows(found: Outlook) -> list[tuple[str, str]]:
    values = found.values
    times = values["participations"]
    rows = [
        ("population", f"{values['population']:,} clients, {values['dimension']:,} parameters"),
        (
            "rounds",
            f"{values['rounds']:,} of {values['cohort']:,} clients ({values['sampling']})"
            + (f" in {values['groups']} groups" if values["groups"] > 1 else ""),
        ),
        (
            "participations",
            f"{times['mean']:.3g} on average, {times['worst_typical']} of the unluckiest client "
            f"typically, {times['worst_planned']} at most but for one run in 1,000",
        ),
    ]
    rows += [(f"learning rate, {who}", rate) for who, rate in values["learning_rates"].items()]
    if found.epsilon:
        rows += _privacy_rows(found)
    rows += [("graph", _graph(values["graph"]))]
    if unprotected := unprotected_in_words(values.get("public_records")):
        rows.append(("protected by nothing", unprotected))
    sent = values["bytes_up_per_client"]
    rows += [
        ("ring", f"{values['ring_bits']} bits, wraps with probability below "
                 f"2^{values['wrap_probability_log2']:.0f}"),
        ("bytes up per client and round", "–" if sent is None else f"{sent:,}"),
    ]  # fmt: skip
    return rows


def _privacy_rows(found: Outlook) -> list[tuple[str, str]]:
    values = found.values
    noise = values["noise"]
    rows = [
        (
            "noise",
            f"z = {values['noise_multiplier']:.4g} ({values['model']}), clip {values['clip']:g}, "
            f"guaranteed fraction {values['honest_fraction']:g}",
        ),
        ("unit of privacy", f"{values['unit']}, of {values['units']:,}"),
        (
            "noise of a round's average",
            f"norm {noise['norm_average']:.3g}, {noise['norm_over_clip']:.3g} times the clip; "
            f"{noise['std_average']:.3g} a coordinate",
        ),
    ]
    for observer in OBSERVERS:
        bound, typical = found.epsilon[observer], values["epsilon_typical"][observer]
        if not bound.finite:
            text = f"none: {bound.reason}"
        else:
            text = f"{epsilon_text(bound.value)} at delta {bound.delta:g} ({bound.adjacency})"
            if typical is not None and typical < 0.99 * bound.value:
                text += f", typically {epsilon_text(typical)}"
        rows.append((observer_title(observer, values["protocol"]), text))
    return rows


def _graph(graph: dict[str, Any]) -> str:
    if "refused" in graph:
        return f"none: {graph['refused']}"
    kind = "complete" if graph["complete"] else "sparse"
    return (
        f"{kind}: {count(graph['degree'], 'neighbour')}, threshold {graph['threshold']}, "
        f"{graph['min_survivors']} survivors of {graph['clients']} needed"
        + (f", {count(graph['colluders'], 'colluder')} withstood" if graph["colluders"] else "")
    )
