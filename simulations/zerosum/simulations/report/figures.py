"""Draw the figures of a run's report."""

from collections.abc import Callable, Iterator

import numpy as np
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from zerosum.client.spec import MEANINGFUL_EPSILON
from zerosum.secagg.stages import Stage
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.observers import OBSERVERS
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.simulations.report import words
from zerosum.simulations.report.drawing import (
    Picture,
    colour,
    legend,
    line,
    log_scale,
    new_axes,
    plain_ticks,
    round_axis,
    shade,
    stack,
    to_svg,
)
from zerosum.simulations.report.record import RunRecord, Sight

_MARKERS = {"sum": "s", "local": "^", "release": "o"}
_METRICS_SHOWN = 6
_BINS = 32


def learning(run: RunRecord) -> list[Picture]:
    """Return accuracy, loss and any other metric against the rounds."""
    groups: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for name, points in run.metric_series().items():
        where, _, what = name.partition("_")
        groups.setdefault(what, {})[where] = points
    order = sorted(groups, key=lambda what: (what != "accuracy", what != "loss"))
    return [
        _metric(run, f"metric{index}", what, groups[what])
        for index, what in enumerate(order[:_METRICS_SHOWN])
    ]


def privacy(run: RunRecord) -> list[Picture]:
    """Return every epsilon against the rounds, and accuracy against every epsilon."""
    return _present(run, _epsilons, _utility)


def rounds(run: RunRecord) -> list[Picture]:
    """Return who took part, signal against noise, the clip where it moves, bytes and seconds."""
    return _present(run, _cohorts, _noise, _clips, _fractions, _traffic, _seconds)


def released(run: RunRecord) -> list[Picture]:
    """Return the clip where it moves: what rounds released beside the model."""
    return _present(run, _clips, _fractions)


def sight(run: RunRecord) -> list[Picture]:
    """Return one contribution as it arrived, beside the sum that was opened."""
    return [picture for picture in (_masked(run), _opened(run.sight)) if picture is not None]


def _present(run: RunRecord, *draw: Callable[[RunRecord], Picture | None]) -> list[Picture]:
    if not run.rounds:
        return []
    return [picture for picture in (one(run) for one in draw) if picture is not None]


def _numbers(run: RunRecord) -> list[int]:
    return [record.round for record in run.rounds]


def _abandoned(run: RunRecord) -> NDArray[np.bool_]:
    return np.array([not r.completed for r in run.rounds])


def _metric(
    run: RunRecord, name: str, what: str, series: dict[str, list[tuple[int, float]]]
) -> Picture:
    axes = new_axes("round", what.replace("_", " "))
    described = []
    for where, points in series.items():
        at, values = zip(*points, strict=True)
        finite = np.where(np.isfinite(values), values, np.nan)
        federated = where == "federated"
        label = "clients' own data" if federated else "test data"
        line(axes, at, finite, "part1" if federated else "accent", label, dashed=federated)
        described.append(
            f"{label}: {words.metric(what, values[0])} in round {at[0]}, "
            f"{words.metric(what, values[-1], run.noise_of(f'{where}_{what}'))} in round {at[-1]}"
        )
    shade(axes, _numbers(run), _abandoned(run), "abandoned round")
    round_axis(axes, _numbers(run))
    if what == "accuracy":
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    else:
        plain_ticks(axes.yaxis)
    legend(axes)
    alt = f"{words.title(what)} against rounds; {'; '.join(described)}."
    caption = "; ".join(described) + "."
    return Picture(words.title(what), to_svg(axes, name, alt), caption[0].upper() + caption[1:])


def _epsilon_series(run: RunRecord) -> Iterator[tuple[str, NDArray[np.float64]]]:
    for observer in OBSERVERS:
        values = run.nested("epsilon", observer)
        values = np.where(values > 0, values, np.nan)
        if np.isfinite(values).any():
            yield observer, values


def _epsilons(run: RunRecord) -> Picture | None:
    series = dict(_epsilon_series(run))
    if not series:
        return None
    axes = new_axes("round", "epsilon, log scale")
    for observer, values in series.items():
        line(
            axes, _numbers(run), values, observer, f"epsilon_{observer}", marker=_MARKERS[observer]
        )
    spread = np.concatenate(list(series.values()))
    log_scale(axes, "y", spread)
    if np.nanmax(spread) > MEANINGFUL_EPSILON / 2:
        label = f"{MEANINGFUL_EPSILON:g}: hardly meaningful above"
        axes.axhline(MEANINGFUL_EPSILON, color=colour("muted"), lw=1, ls=":", label=label)
    round_axis(axes, _numbers(run))
    legend(axes, columns=2)
    last = ", ".join(
        f"{observer} {epsilon_text(float(values[np.isfinite(values)][-1]))}"
        for observer, values in series.items()
    )
    return Picture(
        "Epsilon by observer",
        to_svg(axes, "epsilon", f"Epsilon against rounds; at the end: {last}."),
        "Privacy spent so far against each observer. The figures differ by orders of magnitude: "
        f"none of them stands for another. At the end: {last}.",
    )


def _utility(run: RunRecord) -> Picture | None:
    keys = [k for k in ("test_accuracy", "federated_accuracy") if k in run.metric_series()]
    series = dict(_epsilon_series(run))
    if not keys or not series:
        return None
    accuracy = run.series(keys[0])
    measured = {o: np.where(np.isfinite(accuracy), values, np.nan) for o, values in series.items()}
    spread = np.concatenate(list(measured.values()))
    if not np.isfinite(spread).any():
        return None
    axes = new_axes("epsilon, log scale", "accuracy")
    for observer, values in measured.items():
        known = np.isfinite(values)
        line(axes, values[known], accuracy[known], observer, f"epsilon_{observer}",
             marker=_MARKERS[observer])  # fmt: skip
    log_scale(axes, "x", spread)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    legend(axes)
    return Picture(
        "Accuracy bought with epsilon",
        to_svg(axes, "utility", "Accuracy against epsilon, round by round, for each observer."),
        "Each point is a round. Further right, more privacy is spent; further up, more is learnt.",
    )


def _cohorts(run: RunRecord) -> Picture | None:
    cohort = np.nan_to_num(run.series("cohort"))
    abandoned = _abandoned(run)
    lost = {stage: np.nan_to_num(run.nested("dropouts", stage)) for stage in Stage}
    stayed = np.maximum(cohort - sum(lost.values()), 0)
    late = lost[Stage.CONFIRM] + lost[Stage.UNMASK]
    layers = [
        ("kept", "stayed to the end", np.where(abandoned, 0, stayed)),
        ("late", "lost at confirm or unmask (in the sum)", late),
        ("lost3", "lost at contribute", lost[Stage.CONTRIBUTE]),
        ("lost2", "lost at share", lost[Stage.SHARE]),
        ("lost1", "lost at advertise", lost[Stage.ADVERTISE]),
        ("abandoned", "asked, round abandoned", np.where(abandoned, stayed, 0)),
    ]
    if not cohort.any():
        return None
    axes = new_axes("round", "clients")
    stack(axes, _numbers(run), [layer for layer in layers if layer[2].any()])
    round_axis(axes, _numbers(run))
    legend(axes, columns=2)
    survivors = run.series("survivors")[~abandoned]
    caption = f"{np.mean(cohort):.4g} clients asked a round on average"
    if len(survivors):
        caption += f"; {np.mean(survivors):.4g} in the sum of a completed round"
    alt = f"Cohort by round, with clients lost at each stage; {caption}."
    return Picture("Who took part", to_svg(axes, "cohort", alt), f"{caption}.")


def _noise(run: RunRecord) -> Picture | None:
    average, noise = run.series("average_norm"), run.series("noise_norm")
    known = np.isfinite(average)
    if not known.any():
        return None
    at = np.array(_numbers(run))[known]
    average, noise = average[known], np.nan_to_num(noise[known])
    axes = new_axes("round", "L2 norm")
    line(axes, at, average, "accent", "opened average")
    caption = f"In round {at[-1]} the average that was opened has norm {words.number(average[-1])}"
    if noise.any():
        signal = np.sqrt(np.maximum(average**2 - noise**2, 0))
        line(axes, at, noise, "local", "its noise, expected", marker="s")
        line(axes, at, signal, "release", "signal, estimated", marker="^", dashed=True)
        caption += (
            f", the noise in it {words.number(noise[-1])}; what is left, the root of the "
            f"difference of their squares, is about {words.number(signal[-1])}"
        )
    axes.set_ylim(bottom=0)
    plain_ticks(axes.yaxis)
    shade(axes, _numbers(run), _abandoned(run), "abandoned round")
    round_axis(axes, _numbers(run))
    legend(axes, columns=2)
    return Picture("Signal and noise", to_svg(axes, "noise", f"{caption}."), f"{caption}.")


def _clips(run: RunRecord) -> Picture | None:
    clip = run.series("clip")
    known = np.isfinite(clip) & (clip > 0)
    if not known.any():
        return None
    at, clip = np.array(_numbers(run))[known], clip[known]
    axes = new_axes("round", "clip, log scale")
    line(axes, at, clip, "accent", "clip")
    log_scale(axes, "y", clip)
    shade(axes, _numbers(run), _abandoned(run), "abandoned round")
    round_axis(axes, _numbers(run))
    legend(axes)
    caption = (
        f"The clip moved from {words.number(clip[0])} in round {at[0]} to "
        f"{words.number(clip[-1])} in round {at[-1]}, after the norms of the updates."
    )
    return Picture("Adaptive clip", to_svg(axes, "clip", caption), caption)


def _fractions(run: RunRecord) -> Picture | None:
    fraction = run.series("fraction_within_clip")
    known = np.isfinite(fraction)
    if not known.any():
        return None
    at, fraction = np.array(_numbers(run))[known], fraction[known]
    quantile = run.experiment.privacy.clip_quantile
    axes = new_axes("round", "fraction of updates")
    line(axes, at, fraction, "accent", "within the clip, noised")
    axes.axhline(quantile, color=colour("muted"), lw=1, ls=":", label=f"{quantile:g}: wanted")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    shade(axes, _numbers(run), _abandoned(run), "abandoned round")
    round_axis(axes, _numbers(run))
    legend(axes)
    caption = (
        f"Of the updates, {words.percent(float(np.mean(fraction)))} were within the clip on "
        f"average, where {words.percent(quantile)} are wanted.{_noise_of_fractions(run)}"
    )
    return Picture("Updates within the clip", to_svg(axes, "fraction", caption), caption)


def _noise_of_fractions(run: RunRecord) -> str:
    noise = run.series("fraction_within_clip" + NOISE_STD)
    if not np.isfinite(noise).any():
        return ""
    share = words.percent(float(np.nanmean(noise)))
    return f" Noise moves a round's share by {share} (standard deviation), within 0 and 100 %."


def _traffic(run: RunRecord) -> Picture | None:
    done = ~_abandoned(run)
    up, down = run.series("bytes_up_per_client")[done], run.series("bytes_down_per_client")[done]
    if not (np.isfinite(up).any() and np.isfinite(down).any()):
        return None
    at = np.array(_numbers(run))[done]
    axes = new_axes("round", "bytes a client")
    line(axes, at, up, "accent", "sent by a client")
    line(axes, at, down, "part1", "received by a client", marker="s")
    axes.set_ylim(bottom=0)
    plain_ticks(axes.yaxis, lambda v, _: words.size(v))
    round_axis(axes, _numbers(run))
    legend(axes)
    caption = (
        f"A client sends {words.size(float(np.nanmean(up)))} and receives "
        f"{words.size(float(np.nanmean(down)))} a round, on average."
    )
    return Picture("Bytes", to_svg(axes, "bytes", caption), caption)


def _seconds(run: RunRecord) -> Picture | None:
    total = run.series("seconds")
    if not np.nan_to_num(total).any():
        return None
    stages = {stage: np.nan_to_num(run.nested("stage_seconds", stage)) for stage in Stage}
    rest = np.maximum(np.nan_to_num(total) - sum(stages.values()), 0)
    layers = [(f"part{i}", str(stage), stages[stage]) for i, stage in enumerate(Stage, 1)]
    layers.append(("rest", "server, tests", rest))
    axes = new_axes("round", "seconds")
    stack(axes, _numbers(run), [layer for layer in layers if layer[2].any()])
    plain_ticks(axes.yaxis)
    round_axis(axes, _numbers(run))
    legend(axes)
    said = f"A round takes {words.duration(float(np.nanmean(total)))} on average."
    alt = f"Seconds of each round by stage; {said}"
    caption = f"{said} Local training is part of contribute."
    return Picture("Seconds", to_svg(axes, "seconds", alt), caption)


def _masked(run: RunRecord) -> Picture | None:
    words_seen = run.sight.masked
    if words_seen is None or not len(words_seen):
        return None
    hidden = run.experiment.secagg.protocol == "pairwise"
    axes = new_axes("value of a word, as a part of the ring", "words")
    counts, borders = np.histogram(words_seen, bins=_BINS, range=(0.0, 1.0))
    axes.stairs(counts, borders, fill=True, color=colour("local" if not hidden else "accent"))
    axes.axhline(len(words_seen) / _BINS, color=colour("ink"), lw=0.9, ls="--", label="uniform")
    axes.set_xlim(0, 1)
    plain_ticks(axes.yaxis)
    legend(axes)
    caption = (
        "One client's vector as it reached the server: every value of the ring about equally "
        "often. By itself it carries no information."
        if hidden
        else "One client's vector as it reached the server. It was not masked."
    )
    caption += f" {len(words_seen):,} words are shown."
    title = "One masked contribution" if hidden else "One contribution, not masked"
    return Picture(title, to_svg(axes, "masked", caption), caption)


def _opened(seen: Sight) -> Picture | None:
    if seen.total is None or not len(seen.total):
        return None
    axes = new_axes("value of a coordinate", "coordinates")
    counts, borders = np.histogram(seen.total, bins=_BINS)
    axes.stairs(counts, borders, fill=True, color=colour("release"))
    plain_ticks(axes.yaxis)
    plain_ticks(axes.xaxis, lambda v, _: f"{v:.3g}")
    caption = (
        f"The average of the same round, opened: {len(seen.total):,} coordinates with "
        f"standard deviation {words.number(float(np.std(seen.total)))}."
    )
    return Picture("The opened sum", to_svg(axes, "opened", caption), caption)
