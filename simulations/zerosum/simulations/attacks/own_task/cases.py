"""Move an attack's cases to a user's task: the same defenses, or those of the user's run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zerosum.client.spec import PrivacySpec
from zerosum.server.config import ConfigError
from zerosum.server.privacy.protections import planned_protections
from zerosum.server.sampling import expected_cohort
from zerosum.simulations.attacks.harness.interface import OF_THE_RUN, Attack, Case, Defense
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.inference.trained import TrainedSetting
from zerosum.simulations.attacks.inversion.reconstruction import RECOGNISED
from zerosum.simulations.attacks.inversion.two_cohorts import TwoCohorts
from zerosum.simulations.attacks.own_task.facts import facts_of
from zerosum.simulations.attacks.own_task.needs import missing
from zerosum.simulations.attacks.own_task.released import pairs_of, release_of
from zerosum.simulations.attacks.own_task.run_target import RunTarget
from zerosum.simulations.attacks.own_task.scenes import OwnRounds, OwnTrained, OwnTwoCohorts
from zerosum.simulations.attacks.own_task.subject import Subject, loaded, pool_of
from zerosum.simulations.attacks.own_task.words import in_words_of
from zerosum.simulations.attacks.settings.rounds import RoundsSetting

MOST_IN_COHORT = 50
"""Clients of a scene of a run: with fewer than the run has, an attacker of one round has more."""

REFERENCES = {"quick": 16, "full": 64}
"""Reference models of a task, which are trained in seconds."""

RUN_REFERENCES = {"quick": 8, "full": 32}
"""Reference models of a run, each of which takes what the run took."""

FEWEST_CANDIDATES = 20
"""Of a seed: below it, whether a half was trained on is hardly a question."""


ELSEWHERE = "is played on records of its own alone: leave out --task and --run"
"""What is said of an attack on no task of a user's."""


class Unfit(Exception):
    """An attack that cannot be played on this task; the message says what it needs."""


@dataclass(frozen=True)
class Fitting:
    """Cells that can be played on a task, and of each other attack a line that says why not.

    Attributes
    ----------
    cells : sequence of Cell
    left_out : mapping of str to str
        By name of an attack: what it needs.
    counts : str
        Sentence that says from where on a record counts as recovered, where that is not as usual.
    """

    cells: Sequence[Cell]
    left_out: Mapping[str, str]
    counts: str = ""

    def lines(self, named: bool) -> list[str]:
        """Return a line for each attack that is left out; of those not asked for, one for some.

        Parameters
        ----------
        named : bool
            Whether the attacks were asked for by name.

        Returns
        -------
        list of str
        """
        elsewhere = [name for name, why in self.left_out.items() if why == ELSEWHERE and not named]
        lines = [
            f"not applicable: {name} {why}"
            for name, why in self.left_out.items()
            if name not in elsewhere
        ]
        if elsewhere:
            lines.append(f"on records of their own alone: {', '.join(elsewhere)}")
        return lines


def fitting(attacks: Sequence[Attack], subject: Subject, suite: str) -> Fitting:
    """Return what can be played on a task.

    Parameters
    ----------
    attacks : sequence of Attack
    subject : Subject
    suite : str
        "quick" or "full".

    Returns
    -------
    Fitting

    Raises
    ------
    ConfigError, TaskError
        If the task or the run cannot be had at all.
    """
    cells: list[Cell] = []
    reasons: dict[str, str] = {}
    for attack in attacks:
        try:
            cases = own_cases(attack, subject, suite)
            named = in_words_of(attack, facts_of(subject), pool_of(subject))
            cells += [Cell(named, case) for case in cases]
        except Unfit as unfit:
            reasons.setdefault(attack.name, str(unfit))
    played = {cell.attack.name for cell in cells}
    left_out = {name: why for name, why in reasons.items() if name not in played}
    return Fitting(cells, left_out, _counts(cells, subject))


def _counts(cells: Sequence[Cell], subject: Subject) -> str:
    """Return from where on a record counts as recovered, where records are scaled."""
    if not any(isinstance(cell.case.setting, OwnRounds) for cell in cells):
        return ""
    least = pool_of(subject).recognised
    if least == RECOGNISED:
        return ""
    return (
        f" A record counts as recovered above {least:.0f} dB: nearer than 99 of 100 public records "
        "have any other."
    )


def own_cases(attack: Attack, subject: Subject, suite: str) -> list[Case]:
    """Return the cases of an attack on a task.

    Parameters
    ----------
    attack : Attack
    subject : Subject
    suite : str

    Returns
    -------
    list of Case

    Raises
    ------
    Unfit
        If the task lacks what the attack needs.
    """
    cases = list(attack.cases(suite))
    if not any(isinstance(case.setting, RoundsSetting | TrainedSetting) for case in cases):
        raise Unfit(ELSEWHERE)
    reason = missing(attack, facts_of(subject), pool_of(subject))
    if reason:
        raise Unfit(reason)
    moved = _of_run(cases, subject, suite) if subject.run else _of_task(cases, subject, suite)
    once: dict[str, Case] = {}
    for case in moved:
        once.setdefault(repr((case.setting, case.protection)), case)
    return list(once.values())


def _of_task(cases: Sequence[Case], subject: Subject, suite: str) -> Iterator[Case]:
    for case in cases:
        if isinstance(case.setting, RoundsSetting):
            setting: Any = _rounds(case.setting, subject)
            cohort = {"cohort": setting.clients} if case.at.get("cohort", 1) > 1 else {}
            yield Case(setting, case.protection, {**case.at, **cohort})
        elif isinstance(case.setting, TrainedSetting):
            yield Case(_trained(case.setting, subject, suite), case.protection, case.at)


def _of_run(cases: Sequence[Case], subject: Subject, suite: str) -> Iterator[Case]:
    for case in cases:
        if isinstance(case.setting, RoundsSetting):
            setting, protection = _rounds_of_run(case.setting, subject)
            yield Case(setting, protection, {"cohort": setting.clients})
        elif isinstance(case.setting, TrainedSetting):
            protection = run_defense(subject)
            try:
                pairs_of(subject)
            except ConfigError as error:
                raise Unfit(str(error).partition("membership ")[2] or str(error)) from None
            for untrained in (False, True):
                target = RunTarget(subject, RUN_REFERENCES[suite], untrained)
                yield Case(target, protection, {})


def _rounds(setting: RoundsSetting, subject: Subject) -> OwnRounds:
    """Return a setting of as many clients and records as the task has, at most as many as asked."""
    sizes = pool_of(subject).sizes
    clients = min(setting.clients, len(sizes))
    if clients < 2:
        raise Unfit("needs two clients with records, and data(client) gives one any")
    records = min(setting.records, int(sizes[clients - 1]))
    kind = OwnTwoCohorts if isinstance(setting, TwoCohorts) else OwnRounds
    lr = subject.training.get("lr", setting.lr)
    return kind(
        clients=clients,
        records=records,
        rounds=setting.rounds,
        steps=setting.steps,
        lr=float(lr),
        model=loaded(subject).experiment.model,
        task=subject.label,
        auxiliary=setting.auxiliary,
        subject=subject,
    )


def _trained(setting: TrainedSetting, subject: Subject, suite: str) -> OwnTrained:
    """Return a setting that the task has records for, for each seed others."""
    pool = pool_of(subject)
    clients = min(setting.clients, max(2, loaded(subject).population))
    records = min(setting.records, len(pool.records) // (2 * clients * subject.seeds))
    if 2 * clients * records < FEWEST_CANDIDATES:
        raise Unfit(
            f"needs {FEWEST_CANDIDATES} records for each of {subject.seeds} seeds, half of them "
            f"members, and {clients} clients hold {len(pool.records)}"
        )
    given = {"epochs": setting.epochs, "batch_size": setting.batch_size, "lr": setting.lr}
    return OwnTrained(
        clients=clients,
        records=records,
        rounds=setting.rounds,
        task=subject.label,
        references=REFERENCES[suite],
        auxiliary=setting.auxiliary,
        subject=subject,
        **{**given, **subject.training},  # type: ignore[arg-type]
    )


def run_defense(subject: Subject) -> Defense:
    """Return a run's protection, as the table's columns say it.

    Parameters
    ----------
    subject : Subject
        With a run.

    Returns
    -------
    Defense
        What a server sees is masked or not, clipped and noised; noise that the server adds by
        itself hides nothing from it.
    """
    experiment = loaded(subject).experiment
    privacy, masked = experiment.privacy, experiment.secagg.protocol != "none"
    noise = "none" if privacy.model == "none" else privacy.model
    sigma = _sigma(subject) if privacy.clip is not None and noise != "none" else 0.0
    words = [
        *(["masked"] if masked else []),
        *(["clip"] if noise == "none" and privacy.clip is not None else []),
        *([f"{noise} noise {sigma:.3g} C"] if noise != "none" else []),
    ]
    return Defense(
        f"{OF_THE_RUN}{' + '.join(words) or 'plain'}",
        masking="double" if masked else "none",
        bits=experiment.encoding.bits,
        clip=privacy.clip,
        noise=noise,
        sigma=sigma,
    )


def _sigma(subject: Subject) -> float:
    """Return the noise of a run's sums, or of its contributions where it is local, in clips."""
    found = loaded(subject)
    dimension = len(release_of(subject).vector)
    built = planned_protections(found.experiment, found.population, dimension)["train"]
    local = found.experiment.privacy.model == "local"
    clip = found.experiment.privacy.clip or 1.0
    return (built.std_contribution if local else built.std_sum) / clip


def _rounds_of_run(setting: RoundsSetting, subject: Subject) -> tuple[OwnRounds, Defense]:
    """Return a round of the run's cohort, of one record a client, and what a server sees of it."""
    found = loaded(subject)
    privacy, training = found.experiment.privacy, found.experiment.training
    _check_flat(privacy)
    if training.optimizer != "SGD":
        raise Unfit(f"needs clients that train by SGD, and the run has {training.optimizer}")
    cohort = min(MOST_IN_COHORT, expected_cohort(found.experiment, found.population))
    asked = replace(setting, clients=max(2, cohort), steps=1)
    # Under DP-SGD gradients are clipped as they are, before any learning rate.
    lr = 1.0 if privacy.private and privacy.by_example else training.lr
    own = replace(_rounds(asked, subject), lr=lr)
    protection = run_defense(subject)
    if protection.noise == "central":  # the server adds it, to a sum that it has seen
        protection = replace(protection, noise="none", sigma=0.0)
    return own, protection


def _check_flat(privacy: PrivacySpec) -> None:
    if privacy.clipping != "flat":
        raise Unfit(f'needs one clip for all layers, and the run has "{privacy.clipping}"')
