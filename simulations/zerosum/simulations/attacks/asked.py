"""Find the cells that a request asks for, and what is said of them before they are played."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from zerosum.client.task import TaskError
from zerosum.server.config import ConfigError
from zerosum.simulations.attacks.harness.beforehand import said_beforehand
from zerosum.simulations.attacks.harness.interface import Attack, Case
from zerosum.simulations.attacks.harness.only import only_with
from zerosum.simulations.attacks.harness.parameters import refusal
from zerosum.simulations.attacks.harness.partial_results import AttackRequest
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.registry import choose

SECTIONS = ("data", "model", "training")
"""First parts of a key that is a task's; every other key is an attack's parameter."""

SUITES = ("quick", "full")
"""The quick suite takes about eight minutes on two cores, the full one hours."""


@dataclass(frozen=True)
class Asked:
    """The answer to a request, before anything is played.

    Attributes
    ----------
    cells : sequence of Cell
    caption : str
        What of the user's is attacked; empty for the scenes that attacks bring.
    left_out : sequence of str
        A line for each attack that cannot be played on it.
    lines : sequence of str
        The same, and what else a table will lack.
    """

    cells: Sequence[Cell]
    caption: str
    left_out: Sequence[str]
    lines: Sequence[str]


def asked_of(request: AttackRequest) -> Asked:
    """Return what a request asks for, without playing it.

    Parameters
    ----------
    request : AttackRequest

    Returns
    -------
    Asked

    Raises
    ------
    ConfigError
        For names, settings, a suite or words that will not do.
    """
    if request.suite not in SUITES:
        raise ConfigError(f"--suite {request.suite}: write {' or '.join(SUITES)}")
    of_task = [text for text in request.settings if text.partition(".")[0] in SECTIONS]
    of_attacks = [text for text in request.settings if text not in of_task]
    if of_task and not (request.task or request.run):
        raise ConfigError(
            f"--set {of_task[0]}: that is a task's; give it by --task, or set ATTACK.PARAMETER"
        )
    attacks = choose(list(request.names), of_attacks)
    caption, left_out = "", list[str]()
    if request.task or request.run:
        cells, caption, left_out = _on_own(attacks, request, of_task)
    else:
        cells = [Cell(each, case) for each in attacks for case in _cases(each, request.suite)]
    chosen = only_with(cells, request.only)
    return Asked(chosen, caption, left_out, [*left_out, *said_beforehand(chosen, request.seeds)])


def _on_own(
    attacks: Sequence[Attack], request: AttackRequest, settings: Sequence[str]
) -> tuple[list[Cell], str, list[str]]:
    """Return the cells of a user's task or run, what was attacked, and what is left out."""
    from zerosum.simulations.attacks.own_task.cases import fitting
    from zerosum.simulations.attacks.own_task.subject import subject_of_run, subject_of_task

    try:
        if request.run:
            subject = subject_of_run(request.run, settings, request.seeds, request.task)
        else:
            subject = subject_of_task(request.task, settings, request.seeds)
        found = fitting(attacks, subject, request.suite)
    except TaskError as error:
        raise ConfigError(str(error)) from None
    lines = found.lines(named=bool(request.names))
    if not found.cells:
        raise ConfigError(f"nothing can be played on {subject.label}; {'; '.join(lines)}")
    return list(found.cells), subject.caption + found.counts, lines


def _cases(attack: Attack, suite: str) -> list[Case]:
    """Return an attack's cases, all of which are of a setting with a name."""
    try:
        cases = list(attack.cases(suite))
        fit = all(isinstance(case, Case) and isinstance(case.setting.name, str) for case in cases)
    except Exception as error:  # whatever an attack of the user's raises
        reason = refusal(error) if isinstance(error, ValidationError) else error
        raise ConfigError(f"{attack.name}: it has no cases as it is set: {reason}") from error
    if not cases or not attack.metrics:
        raise ConfigError(f"{attack.name}: it has no cases, or no metrics")
    if not fit:
        raise ConfigError(f"{attack.name}: its cases are no Case(setting, protection)")
    return cases
