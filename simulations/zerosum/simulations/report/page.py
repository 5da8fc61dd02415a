"""The page: the outcome first, then whom it protects, then the pictures, then the details."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.server.privacy.epsilon_bound import EpsilonBound
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.observers import OBSERVERS, ObserverName
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.run_outcome import UNTRAINED
from zerosum.server.spec import Experiment
from zerosum.simulations.report import figures, words
from zerosum.simulations.report.bounds import audit_section
from zerosum.simulations.report.drawing import png_of
from zerosum.simulations.report.frame import details, framed, plots
from zerosum.simulations.report.html import Html, join, table, tag
from zerosum.simulations.report.record import RunRecord, Sight
from zerosum.simulations.terminal.printable import shell_command

_ROWS_SHOWN = 200
_IMAGES_SHOWN = 40
_IMAGE_SIDE = 64

_STAGES = {
    "advertise": "never answered the first message",
    "share": "left before sending its shares",
    "contribute": "left before sending its vector",
    "confirm": "left before confirming who survived; its vector counts",
    "unmask": "left before releasing its shares; its vector counts",
}


def render(run: RunRecord) -> Html:
    """Return the whole page."""
    return framed(
        run.experiment.name,
        _opening(run),
        _observers(run),
        plots("What was learnt", figures.learning(run), _federated(run)),
        plots("What it cost in privacy", figures.privacy(run)),
        audit_section(run.audited),
        _sight(run),
        plots("Round by round", figures.rounds(run)),
        _dropouts(run),
        _round_table(run),
        _configuration(run),
        _reproduce(run),
    )


def render_public(run: RunRecord) -> Html:
    """Return the page for outsiders, of a record that holds what is public and nothing else."""
    rows = [[key, _value(now)] for key, now in _flat(run.summary.settings)]
    return framed(
        run.experiment.name,
        tag(
            "header",
            tag("p", f"task {run.experiment.task} · public report", class_="muted"),
            tag("h1", run.experiment.name),
            *(tag("p", sentence, class_="lead") for sentence in words.outcome(run)),
        ),
        _observers(run, ("release",), words.PUBLIC),
        plots("What was learnt", figures.learning(run)),
        plots("Round by round", figures.released(run)),
        details("Settings", table(("Key", "This run"), rows, class_="keys stacked")),
    )


def _opening(run: RunRecord) -> Html:
    experiment, protocol = run.experiment, run.experiment.secagg.protocol
    kind = f"task {experiment.task} · protocol {protocol} · privacy {experiment.privacy.model}"
    return tag(
        "header",
        tag("p", f"{kind} · seed {experiment.seed}", class_="muted"),
        tag("h1", experiment.name),
        *(tag("p", sentence, class_="lead") for sentence in words.outcome(run)),
        tag("dl", *_tiles(run), class_="tiles"),
        _data(run),
    )


def _data(run: RunRecord) -> Html:
    """Say what was read of a user's file, and what was left out."""
    read = run.summary.data
    known = read is not None and isinstance(read.get("line"), str)
    return tag("p", f"Data: {read['line']}", class_="muted") if read and known else Html()


def _tiles(run: RunRecord) -> Iterator[Html]:
    accuracy_first = sorted(run.metrics.items(), key=lambda item: "accuracy" not in item[0])
    earlier = run.earlier_metrics
    for name, value in accuracy_first[:3]:
        noise = run.noise_of(name)
        notes = [UNTRAINED] if run.untrained else []
        notes += [f"of round {earlier[name]}"] if name in earlier else []
        notes += [] if noise is None else ["with the standard deviation of its noise"]
        said = ", ".join(notes)
        yield _tile(words.title(name), words.metric(name, value, noise), said)
    abandoned = f"{len(run.abandoned):,} abandoned" if run.rounds else ""
    yield _tile("Rounds", f"{len(run.rounds):,} of {run.experiment.rounds:,}", abandoned)
    for name in OBSERVERS:
        bound = run.bounds.get(name)
        if bound is not None:
            at = f"at delta {words.delta(bound.delta)}" if bound.finite else "no bound"
            if name == "release" and bound.finite:
                at += "; " + words.COUNTS
            yield _tile(f"Epsilon, {name}", epsilon_text(bound.value), at)
    failures = run.failures
    if failures is not None and failures.clients_failed:
        yield _tile("Failures", f"{failures.clients_failed:,}", "of clients in training")
    lost = sum(run.dropouts.values())
    yield _tile("Dropouts", f"{lost:,}", "clients that left a round")
    seconds = float(np.nansum(run.series("seconds"))) if run.rounds else 0.0
    memory = run.summary.peak_memory_mb
    yield _tile("Time", words.duration(seconds), f"{memory:,.0f} MiB at most" if memory else "")


def _tile(name: str, value: str, note: str = "") -> Html:
    return tag("div", tag("dt", name), tag("dd", value, tag("small", note) if note else ""))


def _observers(
    run: RunRecord, names: Sequence[ObserverName] = OBSERVERS, readers: str = words.COUNTS
) -> Html:
    """Return the table of observers.

    Parameters
    ----------
    names : sequence of str
        Which of them.
    readers : str
        What epsilon_release means to readers of this page.
    """
    rows = [_observer_row(run, name, run.bounds.get(name), readers) for name in names]
    headers = ("Observer", "Epsilon", "Delta", "Adjacency, unit", "Participations", "Accountant",
               "Holds if")  # fmt: skip
    cautions = words.cautions(run)
    boxed = tag(
        "div",
        tag("h3", "Before you rely on these figures"),
        tag("ul", *(tag("li", caution) for caution in cautions)),
        class_="cautions",
    )
    return tag(
        "section",
        tag("h2", "Who is protected against whom"),
        tag("p", "An epsilon speaks of one observer. Epsilons are rounded up.", class_="muted"),
        table(headers, rows, class_="who stacked"),
        boxed if cautions else "",
    )


def _observer_row(
    run: RunRecord, name: ObserverName, bound: EpsilonBound | None, readers: str
) -> list[Html]:
    who, sees = words.observer(run, name)
    named = join([who, tag("small", f"epsilon_{name}"), tag("small", sees)])
    if bound is None:
        return [named, join(["not recorded"]), *[join(["–"])] * 5]
    means = bound.reason or words.meaning(bound.value)
    holds = [tag("li", text) for text in bound.assumptions]
    if name == "release" and bound.finite:
        holds.insert(0, tag("li", tag("strong", readers)))
    unit = ", ".join(part for part in (bound.adjacency, bound.unit) if part)
    return [
        named,
        join([tag("div", epsilon_text(bound.value), class_=f"value {name}"), tag("small", means)]),
        join([words.delta(bound.delta)]),
        join([unit]),
        join(["–" if bound.participations is None else str(bound.participations)]),
        join([bound.accountant or "–"]),
        tag("ul", *holds) if holds else join(["–"]),
    ]


def _federated(run: RunRecord) -> str:
    """Say how the evaluations on the clients' own data went."""
    outcomes = [r.federated_status for r in run.rounds if r.federated_status is not None]
    if not outcomes:
        return ""
    counts = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in dict.fromkeys(outcomes))
    charged = " and charged as such" if run.experiment.privacy.private else ""
    return (
        f"{words.count(len(outcomes), 'evaluation')} on the clients' own data, each a private sum "
        f"of its own{charged}: {counts}."
    )


def _sight(run: RunRecord) -> Html:
    seen = figures.sight(run)
    return join([plots("What the server sees", seen), _digits(run.sight)])


def _digits(sight: Sight) -> Html:
    images, labels, predictions = sight.images, sight.labels, sight.predictions
    if images is None or labels is None or predictions is None or not len(images):
        return Html()
    shown = list(zip(images, labels.tolist(), predictions.tolist(), strict=True))[:_IMAGES_SHOWN]
    wrong = sum(label != prediction for _, label, prediction in shown)
    return tag(
        "section",
        tag("h2", "What the model says"),
        tag("p", f"{len(shown)} test images, {wrong} of them wrong (marked ✗).", class_="muted"),
        tag("div", *(_digit(*each) for each in shown), class_="digits"),
    )


def _digit(image: NDArray[np.uint8], label: object, prediction: object) -> Html:
    right = label == prediction
    alt = f"a {label}, " + ("recognised" if right else f"taken for a {prediction}")
    return tag(
        "figure",
        tag("img", src=png_of(image, _IMAGE_SIDE), alt=alt),
        tag("figcaption", f"{prediction} ✓" if right else f"{prediction} ✗ is {label}"),
        class_="digit" if right else "digit wrong",
    )


def _dropouts(run: RunRecord) -> Html:
    dropouts = run.dropouts
    slots = sum(r.cohort for r in run.rounds)
    if not dropouts or not slots:
        return Html()
    rows = [
        [stage, _STAGES.get(stage, ""), f"{lost:,}", words.percent(lost / slots),
         words.percent(getattr(run.experiment.faults, stage, 0.0))]
        for stage, lost in dropouts.items()
    ]  # fmt: skip
    total = sum(dropouts.values())
    rows.append(["all stages", "", f"{total:,}", words.percent(total / slots), ""])
    reasons = [tag("li", f"Round {r.round}: {r.reason}") for r in run.abandoned]
    return tag(
        "section",
        tag("h2", "Dropouts by stage"),
        table(
            ("Stage", "A client that", "Clients", "Of those asked", "Injected, of those left"),
            rows,
            class_="stacked",
        ),
        details("Why rounds were abandoned", tag("ul", *reasons[:_ROWS_SHOWN])) if reasons else "",
    )


def _round_table(run: RunRecord) -> Html:
    if not run.rounds:
        return Html()
    names = list(run.metrics)[:4]
    failing = any("clients_failed" in record for record in run.rounds)
    headers = [
        *("Round", "Status", "Cohort", *["Failed"] * failing, "In the sum"),
        *map(words.title, names),
        *(*(f"Epsilon, {o}" for o in OBSERVERS), "Seconds"),
    ]
    rows = [_round_row(record, names, failing=failing) for record in run.rounds[-_ROWS_SHOWN:]]
    hidden = len(run.rounds) - len(rows)
    note = f"The last {len(rows)}; metrics.jsonl has all {len(run.rounds):,}." if hidden else ""
    content = tag("div", table(headers, rows), class_="scroll")
    return details("Every round in numbers", tag("p", note) if note else "", content)


def _round_row(record: Mapping[str, Any], names: list[str], *, failing: bool) -> list[str]:
    spent = record.get("epsilon") or {}
    return [
        str(record["round"]),
        str(record.get("status", "")),
        words.number(record.get("cohort")),
        *[words.number(record.get("clients_failed", 0))] * failing,
        words.number(record.get("survivors")),
        *(words.metric(n, record[n], record.get(n + NOISE_STD)) if n in record else "–"
          for n in names),
        *(epsilon_text(spent[o]) if o in spent else "–" for o in OBSERVERS),
        words.number(record.get("seconds")),
    ]  # fmt: skip


def _configuration(run: RunRecord) -> Html:
    changed = _changed(run.experiment)
    if changed:
        rows = [[key, _value(now), _value(usual)] for key, (now, usual) in changed.items()]
        shown = table(("Key", "This run", "Default"), rows, class_="keys stacked")
    else:
        shown = tag("p", "Every key has its default value.")
    return tag(
        "section",
        tag("h2", "Configuration"),
        tag("p", "What differs from the defaults:", class_="muted") if changed else "",
        shown,
        details("The whole configuration (config.toml)", tag("pre", run.toml)),
    )


def _changed(experiment: Experiment) -> dict[str, tuple[Any, Any]]:
    """Return (value, default) of the dotted keys that differ from their defaults."""
    usual = dict(_flat(Experiment().model_dump(mode="json")))
    now = dict(_flat(experiment.model_dump(mode="json")))
    keys = dict.fromkeys([*now, *usual])
    return {k: (now.get(k), usual.get(k)) for k in keys if now.get(k) != usual.get(k)}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _value(value: object) -> str:
    return "not set" if value is None else str(value)


def _reproduce(run: RunRecord) -> Html:
    words = ["zerosum", "run", f"{run.name}/config.toml", "--out", f"{run.name}-again"]
    command = shell_command(words)
    seeded = run.summary.noise_from_seed
    if seeded or (seeded is not None and not run.experiment.privacy.private):
        promise = "With these versions it gives the same model, bit for bit, on a CPU."
        if run.experiment.device != "cpu":
            promise = (
                "With these versions it gives the same model to float rounding: it was trained on "
                f"{_device(run)}."
            )
    elif seeded is None:
        promise = (
            "The run has not finished: --resume continues it to the model it would have given."
        )
    else:
        promise = (
            "Noise and sampling came from the operating system: another run gives another model "
            "of the same quality."
        )
    versions = run.summary.versions
    listed = [[name, str(version)] for name, version in versions.items()]
    return tag(
        "section",
        tag("h2", "Run it again"),
        tag("pre", tag("code", command)),
        tag("p", promise),
        tag("p", "Made from the files of the run folder; ",
            tag("code", shell_command(["zerosum", "report", run.name])), " makes it anew."),
        table(("Package", "Version"), listed, class_="keys") if listed else "",
    )  # fmt: skip


def _device(run: RunRecord) -> str:
    """Return the device of a run, with the name of the card where the summary has it."""
    named = run.summary.engine.get("device")
    return named if isinstance(named, str) else run.experiment.device
