"""Write the report's sentences: the outcome, the observers, the cautions."""

import math
from collections.abc import Mapping
from typing import Final

from zerosum.client.spec import MEANINGFUL_EPSILON
from zerosum.client.spec.training import APP_TASK
from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.observers import OBSERVERS, SEES, ObserverName, observer_who
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.durations import duration as duration
from zerosum.server.runs.reference_words import not_better, worse_losses
from zerosum.server.runs.run_folder import BEST
from zerosum.server.runs.run_outcome import (
    ENDED_BY,
    OF_ALL_PLANNED,
    best_in_words,
    nothing_learnt,
)
from zerosum.simulations.report.record import RunRecord

COUNTS = "holds for readers of the public report; this one shows counts"
"""What stands beside epsilon_release wherever cohort sizes, survivors or participations do."""

PUBLIC = "holds for readers of this report, which has no cohort sizes, survivors or participations"
"""What stands beside it in a public report."""


_SHORT: Final = {"auc": "AUC", "f1": "F1", "mae": "MAE", "mse": "MSE", "rmse": "RMSE", "r2": "R²"}
"""Parts of a metric's name that are short for something."""


def number(value: float | None) -> str:
    """Write a number in about four digits."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def delta(value: float | None) -> str:
    """Write a delta exactly."""
    if value is None:
        return "–"
    text = f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return text.replace("e-0", "e-")


def percent(value: float) -> str:
    """Write a share with one decimal."""
    return f"{100 * value:.1f} %"


def size(count: float) -> str:
    """Write a number of bytes."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} GB"


def metric(name: str, value: float, noise: float | None = None) -> str:
    """Write a metric, with the deviation of its noise: accuracies as a share, others as numbers.

    Parameters
    ----------
    name : str
        As "test_accuracy".
    value : float
    noise : float, optional
        Standard deviation of the noise in it.

    Returns
    -------
    str
        An accuracy as a percentage.
    """
    if not (name.endswith("accuracy") and 0 <= value <= 1):
        return number(value) if noise is None else f"{number(value)} ± {number(noise)}"
    return percent(value) if noise is None else f"{100 * value:.1f} ± {100 * noise:.1f} %"


def title(name: str) -> str:
    """Write a key of metrics.jsonl as a person reads it."""
    text = " ".join(_SHORT.get(part, part) for part in name.split("_"))
    return text[:1].upper() + text[1:]


def count(n: int, noun: str) -> str:
    """Write a number of things."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def outcome(run: RunRecord) -> list[str]:
    """Return the outcome in plain sentences: what was learnt, then what it cost in privacy."""
    return [_progress(run), _learnt(run), *_best(run), *_protected(run)]


def state(run: RunRecord) -> tuple[str, str]:
    """Return how a run stands, in a word or three, and how grave that is: "", "warn" or "bad"."""
    if run.untrained or nothing_learnt(run.rounds):
        return "Learnt nothing", "bad"
    return ("Finished", "") if run.finished else ("Not finished", "warn")


def _progress(run: RunRecord) -> str:
    done, planned = len(run.rounds), run.experiment.rounds
    clients = f" over {count(run.population, 'client')}" if run.population else ""
    if run.finished and run.summary.ended_by:
        sentence = f"{done:,} of {count(planned, 'planned round')} of federated training{clients}"
        sentence += f", ended by {ENDED_BY[run.summary.ended_by]}"
    elif run.finished:
        sentence = f"{count(done, 'round')} of federated training{clients}"
    else:
        sentence = f"This run has not finished: {done:,} of {count(planned, 'round')}{clients}"
        sentence += " are recorded" if done != 1 else " is recorded"
    if run.abandoned:
        sentence += f"; {len(run.abandoned):,} of them abandoned, which left the model as it was"
    return sentence + "."


def _learnt(run: RunRecord) -> str:
    if run.untrained:
        return f"No client's training is in the model. {_tested(run)}"
    return _tested(run)


def _best(run: RunRecord) -> list[str]:
    best = run.summary.best
    if best is None or not run.finished:
        return []
    value = metric(f"test_{best.metric}", best.value)
    return [f"The best model has {value}: it is {best_in_words(best)}, and kept as {BEST}."]


def _tested(run: RunRecord) -> str:
    lost = run.summary.lost_tests
    return f"{_figures(run)} Of the last test: {lost}." if lost else _figures(run)


def _figures(run: RunRecord) -> str:
    metrics, whose = run.metrics, "untrained model" if run.untrained else "model"
    if "test_accuracy" in metrics:
        right = metrics["test_accuracy"]
        if not math.isfinite(right):
            return "There is no accuracy: the model has diverged, or test_data() holds NaN."
        return f"The {whose} is right on {percent(right)} of the test examples."
    if "federated_accuracy" in metrics:
        name = "federated_accuracy"
        whose += f" of round {run.earlier_metrics[name]}" if name in run.earlier_metrics else ""
        accuracy, noise = metric(name, metrics[name], run.noise_of(name)), run.noise_of(name)
        remark = "" if noise is None else ", give or take the standard deviation of the noise"
        where = "of the clients' own examples, as they report"
        return f"The {whose} is right on {accuracy} {where}{remark}."
    if metrics:
        earlier = {name: f" (round {n})" for name, n in run.earlier_metrics.items()}
        metrics_text = (
            f"{title(name).lower()} {number(value)}{earlier.get(name, '')}"
            for name, value in metrics.items()
        )
        absent = run.summary.no_accuracy
        remark = f" There is {absent}." if absent else ""
        return f"The {whose} ends at {', '.join(metrics_text)}.{remark}"
    if run.experiment.task == APP_TASK:
        return "How good the model is, is not in this folder: an app keeps its own evaluation."
    return "The model was not tested: there is no test data, or no test has been reached."


def _protected(run: RunRecord) -> list[str]:
    if not run.experiment.privacy.private:
        return ["No noise was added: there is no differential privacy, whoever looks."]
    protocol = run.experiment.secagg.protocol
    bounds = [run.bounds[name] for name in OBSERVERS if name in run.bounds]
    if protocol == "none":  # nobody of this run sees sums alone: the server sees each contribution
        bounds = [bound for bound in bounds if bound.observer != "sum"]
    if not bounds:
        return ["No epsilon is recorded yet."]
    parts = [
        (f"epsilon {epsilon_text(bound.value)}" if bound.finite else "no bound")
        + f" against {observer_who(bound.observer, protocol)}"
        for bound in bounds
    ]
    figures = f"For each {bounds[0].unit}, at delta {delta(bounds[0].delta)}: {'; '.join(parts)}."
    if run.finished and run.summary.ended_by and any(bound.finite for bound in bounds):
        return [figures, f"These {OF_ALL_PLANNED}."]
    return [figures]


def meaning(value: float) -> str:
    """Write what an epsilon allows, as a ratio of odds."""
    if value > MEANINGFUL_EPSILON:
        return "No meaningful protection on its own."
    odds = math.exp(value)
    times = f"{math.ceil(odds * 10) / 10:,.1f}" if odds < 100 else f"{math.ceil(odds):,}"
    return (
        f"What it sees is at most {times} times as likely with one's data as without, plus delta."
    )


def observer(run: RunRecord, name: ObserverName) -> tuple[str, str]:
    """Return who the observer is in this run, and what it sees.

    Parameters
    ----------
    run : RunRecord
        Has the protocol, and the colluders that are assumed.
    name : str
        One of ``OBSERVERS``.

    Returns
    -------
    tuple of str
        Who, and what it sees.
    """
    secagg = run.experiment.secagg
    sees = SEES[name]
    if name == "sum" and secagg.corruption:
        sees += f"; and what up to {percent(secagg.corruption)} of the clients tell it"
    return observer_who(name, secagg.protocol), sees


def cautions(run: RunRecord) -> list[str]:
    """Return what a reader must know before believing a figure, in plain words."""
    sentences = [*_run_cautions(run), *_protocol_cautions(run), *_rule_cautions(run)]
    return [*sentences, *_privacy_cautions(run)]


def _run_cautions(run: RunRecord) -> list[str]:
    sentences = []
    if not run.finished:
        sentences.append(
            "The run has not finished. The figures are those of the last recorded round; a later "
            "round may be charged in ledger.jsonl already. Whoever ends it here for what its "
            "models show has spent what all planned rounds cost (zerosum budget)."
        )
    if run.finished:
        worse = [not_better(run.summary), *worse_losses(run.summary, run.rounds)]
        sentences += [f"{clause[:1].upper()}{clause[1:]}." for clause in worse if clause]
    # Not above: a plan loads torch, and reports of queries do without it.
    from zerosum.simulations.report.hopeless_run import hopeless_caution

    sentences += hopeless_caution(run)
    sentences += _failures(run) + _cuts(run) + _lies(run)
    slots = sum(r.cohort for r in run.rounds)
    lost = sum(run.dropouts.values())
    assumed = run.experiment.secagg.dropout
    if slots and lost / slots > assumed:
        sentences.append(
            f"{percent(lost / slots)} of the clients asked dropped out, more than the "
            f"{percent(assumed)} that secagg.dropout assumes: rounds are abandoned more often than "
            "planned."
        )
    return sentences


def _cuts(run: RunRecord) -> list[str]:
    """Return what the rounds counted of coordinates beyond the encoding's range."""
    lines = [r for r in run.rounds if any(r.cut)]
    if not lines:
        return []
    cut, of = sum(r.cut[0] for r in lines), sum(r.cut_of for r in lines)
    return [
        f"In {count(len(lines), 'round')} clients cut {cut:,} of {of:,} coordinates of their "
        "updates to encoding.range: these sums are not quite those of what was trained. A larger "
        "range cuts less."
    ]


def _failures(run: RunRecord) -> list[str]:
    """Return what the rounds count of clients that could not train."""
    sentences = []
    if reason := nothing_learnt(run.rounds):
        sentences.append(f"{reason[:1].upper()}{reason[1:]}.")
    failures = run.failures
    if failures is not None and failures.evaluations_failed:
        sentences.append(
            f"{count(failures.evaluations_failed, 'evaluation')} by clients failed; the first in "
            f"{failures.first_failed_evaluation}. Federated figures are those of the others."
        )
    if failures is None or failures.first_failure is None:
        return sentences
    failed = failures.clients_failed
    answers = failed + failures.clients_trained + failures.clients_idle
    sentence = f"{failed:,} of {answers:,} answers failed in training"
    if failures.examples_failed:
        sentence += f", and {count(failures.examples_failed, 'single example')} in others"
    sentences.append(
        f"{sentence}; the first in {failures.first_failure}. Nothing of their records is in the "
        "model. clients.log has each reason. Only a simulation counts failures: a deployed client "
        "tells its own operator alone."
    )
    return sentences


def _lies(run: RunRecord) -> list[str]:
    """Return what the rounds found of wrong shares."""
    sentences = []
    named = [(index, r.round) for r in run.rounds for index in r.liars]
    if named:
        liars = ", ".join(f"client {index} (round {number})" for index, number in named)
        sentences.append(
            f"Proved to have given or dealt wrong shares, and left out of later cohorts: {liars}. "
            "The sums are right all the same. left-out.jsonl says how long, and readmits."
        )
    rounds = [r.round for r in run.rounds if r.wrong_pairs]
    if rounds:
        sentences.append(
            f"In {len(rounds):,} rounds wrong shares were found of which nobody can tell whether "
            "their dealers or their holders are at fault: metrics.jsonl has the pairs "
            "(wrong_pairs)."
        )
    return sentences


def _protocol_cautions(run: RunRecord) -> list[str]:
    secagg, private = run.experiment.secagg, run.experiment.privacy.private
    if secagg.protocol == "none":
        seen = "noised contribution" if private else "contribution, without noise"
        return [
            f'secagg.protocol = "none": the server saw every single {seen}. Nothing was masked.'
        ]
    if secagg.protocol == "ideal":
        return [
            'secagg.protocol = "ideal": no cryptography ran. The figures against an observer of '
            "sums hold only where someone trusted really computes the sum."
        ]
    return [_withstood(run), *_group_cautions(run), *_sharing_cautions(run)]


def _rule_cautions(run: RunRecord) -> list[str]:
    spec = run.experiment.server
    if spec.rule == "mean":
        return []
    given = f" ({spec.rule_settings})" if spec.rule_settings else ""
    return [
        f'server.rule = "{spec.rule}"{given}: the average of a round is no mean. Such a rule needs '
        "to see each contribution: with masks in force this run is refused."
    ]


def _withstood(run: RunRecord) -> str:
    if run.experiment.secagg.server == "semi-honest":
        return (
            "Masking withstands a server that is curious but follows the protocol "
            "(secagg.server = semi-honest), not one that lies about who dropped out."
        )
    corruption = run.experiment.secagg.corruption
    share = f"at most {100 * corruption:.3g} % of the clients collude"
    colluding = share if corruption > 0 else "no client colludes"
    return (
        f"Masking withstands a server that lies about who dropped out, as long as {colluding} with "
        "it. Such a server still chooses who is asked, and sees the difference of two sums: only "
        "noise limits that."
    )


def _group_cautions(run: RunRecord) -> list[str]:
    groups = run.experiment.secagg.groups
    if groups == 1:
        return []
    failed = run.summary.groups_failed
    lost = f"; {count(failed, 'group')} failed" if failed else ""
    return [
        f"Each cohort was {groups} groups{lost}. The server saw the sum of each: a client is "
        "hidden among its group, not among the cohort, and a release carries the noise of all "
        f"{groups}."
    ]


def _sharing_cautions(run: RunRecord) -> list[str]:
    if not run.summary.shared_cache:
        return []
    return [
        "The clients of this process shared agreed keys, verified signatures and mask streams: the "
        "same bits as without, in a fraction of the time. Seconds of a round are not those of "
        "separate clients; zerosum bench secagg measures these."
    ]


def _privacy_cautions(run: RunRecord) -> list[str]:
    privacy = run.experiment.privacy
    if not privacy.private:
        return [
            'privacy.model = "none": no noise was added. Masking hides single contributions, but '
            "sums and models can still betray what a client holds."
        ]
    sentences = []
    if run.summary.noise_from_seed:
        sentences.append(
            "Noise and sampling coins came from the seed, as simulations do: every figure, and "
            "epsilon_release in particular, assumes that the seed stays secret. A deployment draws "
            "them from the operating system."
        )
    if run.summary.noise_draw == "summed":
        sentences.append(
            "The noise of each sum was drawn once, not by each client: the law of the sum is the "
            "same, but no client's own contribution carried noise."
        )
    if not privacy.top_up:
        sentences.append(
            "privacy.top_up is off: the noise of a sum betrays how many took part, so "
            "epsilon_release is refused."
        )
    return [*sentences, *_delta_caution(run), *weak_figures(run.bounds)]


def _delta_caution(run: RunRecord) -> list[str]:
    exposed = run.experiment.privacy.delta * (run.population or 0)
    if exposed < 0.1:
        return []
    return [
        f"Delta {delta(run.experiment.privacy.delta)} is large for "
        f"{count(run.population or 0, 'client')}: a mechanism with this delta may expose "
        f"{number(exposed)} clients outright, on average."
    ]


def weak_figures(bounds: Mapping[ObserverName, EpsilonBound], unit: str = "client") -> list[str]:
    """Return which epsilons are too large to protect by themselves.

    Parameters
    ----------
    bounds : mapping
        By observer.
    unit : str
        What is to be hidden.

    Returns
    -------
    list of str
        A sentence, or none.
    """
    weak = [
        f"epsilon_{name} ({epsilon_text(bound.value)})"
        for name in OBSERVERS
        if (bound := bounds.get(name)) and bound.finite and bound.value > MEANINGFUL_EPSILON
    ]
    if not weak:
        return []
    verb = "are" if len(weak) > 1 else "is"
    return [
        f"{' and '.join(weak)} {verb} above {MEANINGFUL_EPSILON:g}, which is not a meaningful "
        f"protection: against such an observer the noise alone does not hide a {unit}."
    ]
