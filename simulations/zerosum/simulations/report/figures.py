"""Draw the figures of a run's report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from zerosum.client.spec import MEANINGFUL_EPSILON
from zerosum.secagg.stages import Stage
from zerosum.server.privacy.noised_ratio import NOISE_STD
from zerosum.server.privacy.observers import OBSERVERS, ObserverName
from zerosum.server.privacy.rounding import epsilon_text
from zerosum.server.runs.reference_words import reference_of
from zerosum.simulations.report import words
from zerosum.simulations.report.chart import (
    Axis,
    Chart,
    Layer,
    Level,
    Series,
    Shade,
    grouped,
    line,
    linear,
    logarithmic,
    round_axis,
)
from zerosum.simulations.report.chart_page import Picture, drawn
from zerosum.simulations.report.record import RunRecord, Sight
from zerosum.simulations.report.reference_rows import reference_in_words

_SHAPES: Final[Mapping[ObserverName, str]] = {"release": "o", "sum": "s", "local": "^"}
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
    lines, described = [], []
    for where, points in series.items():
        at, values = zip(*points, strict=True)
        finite = np.where(np.isfinite(values), values, np.nan)
        federated = where == "federated"
        label = "clients' own data" if federated else "test data"
        colour, shape, dash = ("part1", "s", "--") if federated else ("accent", "o", "-")
        lines.append(line(label, colour, at, finite, shape=shape, dash=dash))
        described.append(
            f"{label}: {words.metric(what, values[0])} in round {at[0]}, "
            f"{words.metric(what, values[-1], run.noise_of(f'{where}_{what}'))} in round {at[-1]}"
        )
    levels = _reference(run, what)
    if what == "accuracy":
        upward = _accuracy([each.y for each in lines], "")
    else:  # the title says what
        upward = linear("", [*_all(lines), *(level.y for level in levels)], words.number)
    described += [level.label for level in levels]
    alt = f"{words.title(what)} against rounds; {'; '.join(described)}."
    caption = "; ".join(described) + "."
    chart = _over_rounds(run, upward, *lines, levels=levels)
    return Picture(words.title(what), drawn(chart, alt), caption[0].upper() + caption[1:])


def _reference(run: RunRecord, what: str) -> list[Level]:
    """Return what a predictor that looks at nothing gives of a metric, where it is known."""
    found = reference_in_words(run, f"test_{what}")
    return [Level(found, reference_of(run.summary)[f"test_{what}"])] if found else []


def _all(lines: Sequence[Series]) -> NDArray[np.float64]:
    return np.concatenate([each.y for each in lines])


def _accuracy(values: Sequence[NDArray[np.float64]], label: str = "accuracy") -> Axis:
    """Return the axis of shares: from 0 to 1, or as far as a noised one is."""
    most = max(1.0, float(np.nanmax(np.concatenate([*values, np.ones(1)]))))
    axis = linear(label, [], words.percent, least=0.0, most=most)
    return replace(axis, ticks=tuple((k / 4, f"{25 * k} %") for k in range(int(4 * most) + 1)))


def _over_rounds(
    run: RunRecord, upward: Axis, *lines: Series, levels: Sequence[Level] = ()
) -> Chart:
    """Return lines against all rounds, of which the abandoned ones are shaded."""
    numbers, abandoned = _numbers(run), _abandoned(run)
    shade = None
    if abandoned.any():
        borders, (shares,) = grouped(numbers, abandoned.astype(np.float64))
        one = len(shares) == len(numbers)
        label = "abandoned round" if one else "part of the rounds abandoned"
        shade = Shade(label, borders, shares)
    return Chart(round_axis(numbers), upward, lines, levels=tuple(levels), shade=shade)


def _stacked(run: RunRecord, label: str, say: Callable[[float], str], *layers: Layer) -> Chart:
    """Return layers over all rounds, or over the means of groups of them."""
    shown = [layer for layer in layers if layer.heights.any()]
    borders, heights = grouped(_numbers(run), *(layer.heights for layer in shown))
    stack = tuple(replace(layer, heights=h) for layer, h in zip(shown, heights, strict=True))
    upward = linear(label, sum(heights), say, least=0.0)
    return Chart(round_axis(_numbers(run)), upward, layers=stack, borders=borders)


def _epsilon_series(run: RunRecord) -> Iterator[tuple[ObserverName, NDArray[np.float64]]]:
    for observer in OBSERVERS:
        values = run.nested("epsilon", observer)
        values = np.where(values > 0, values, np.nan)
        if np.isfinite(values).any():
            yield observer, values


def _epsilons(run: RunRecord) -> Picture | None:
    series = dict(_epsilon_series(run))
    if not series:
        return None
    lines = [
        line(f"epsilon_{name}", name, _numbers(run), values, shape=_SHAPES[name])
        for name, values in series.items()
    ]
    spread = np.concatenate(list(series.values()))
    levels = []
    if np.nanmax(spread) > MEANINGFUL_EPSILON / 2:
        levels.append(Level(f"{MEANINGFUL_EPSILON:g}: hardly meaningful above", MEANINGFUL_EPSILON))
        spread = np.append(spread, MEANINGFUL_EPSILON)
    last = ", ".join(
        f"{observer} {epsilon_text(float(values[np.isfinite(values)][-1]))}"
        for observer, values in series.items()
    )
    upward = logarithmic("epsilon, log scale", spread, epsilon_text)
    chart = _over_rounds(run, upward, *lines, levels=levels)
    return Picture(
        "Epsilon by observer",
        drawn(replace(chart, shade=None), f"Epsilon against rounds; at the end: {last}."),
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
    lines = [
        line(f"epsilon_{o}", o, values[np.isfinite(values)], accuracy[np.isfinite(values)],
             shape=_SHAPES[o])
        for o, values in measured.items()
    ]  # fmt: skip
    across = logarithmic("epsilon, log scale", spread, lambda v: f"epsilon {epsilon_text(v)}")
    alt = "Accuracy against epsilon, round by round, for each observer."
    return Picture(
        "Accuracy bought with epsilon",
        drawn(Chart(across, _accuracy([accuracy]), tuple(lines)), alt),
        "Each point is a round. Further right, more privacy is spent; further up, more is learnt.",
    )


def _cohorts(run: RunRecord) -> Picture | None:
    cohort = np.nan_to_num(run.series("cohort"))
    abandoned = _abandoned(run)
    lost = {stage: np.nan_to_num(run.nested("dropouts", stage)) for stage in Stage}
    stayed = np.maximum(cohort - sum(lost.values()), 0)
    late = lost[Stage.CONFIRM] + lost[Stage.UNMASK]
    layers = [
        Layer("stayed to the end", "kept", np.where(abandoned, 0, stayed)),
        Layer("lost at confirm or unmask (in the sum)", "late", late),
        Layer("lost at contribute", "lost3", lost[Stage.CONTRIBUTE]),
        Layer("lost at share", "lost2", lost[Stage.SHARE]),
        Layer("lost at advertise", "lost1", lost[Stage.ADVERTISE]),
        Layer("asked, round abandoned", "abandoned", np.where(abandoned, stayed, 0)),
    ]
    if not cohort.any():
        return None
    survivors = run.series("survivors")[~abandoned]
    caption = f"{np.mean(cohort):.4g} clients asked a round on average"
    if len(survivors):
        caption += f"; {np.mean(survivors):.4g} in the sum of a completed round"
    alt = f"Cohort by round, with clients lost at each stage; {caption}."
    chart = _stacked(run, "clients", words.number, *layers)
    return Picture("Who took part", drawn(chart, alt), f"{caption}.")


def _noise(run: RunRecord) -> Picture | None:
    average, noise = run.series("average_norm"), run.series("noise_norm")
    known = np.isfinite(average)
    if not known.any():
        return None
    at = np.array(_numbers(run))[known]
    average, noise = average[known], np.nan_to_num(noise[known])
    lines = [line("opened average", "accent", at, average)]
    caption = f"In round {at[-1]} the average that was opened has norm {words.number(average[-1])}"
    if noise.any():
        signal = np.sqrt(np.maximum(average**2 - noise**2, 0))
        lines.append(line("its noise, expected", "local", at, noise, shape="s"))
        lines.append(line("signal, estimated", "release", at, signal, shape="^", dash="--"))
        caption += (
            f", the noise in it {words.number(noise[-1])}; what is left, the root of the "
            f"difference of their squares, is about {words.number(signal[-1])}"
        )
    chart = _over_rounds(run, linear("L2 norm", _all(lines), words.number, least=0.0), *lines)
    return Picture("Signal and noise", drawn(chart, f"{caption}."), f"{caption}.")


def _clips(run: RunRecord) -> Picture | None:
    clip = run.series("clip")
    known = np.isfinite(clip) & (clip > 0)
    if not known.any():
        return None
    at, clip = np.array(_numbers(run))[known], clip[known]
    upward = logarithmic("clip, log scale", clip, words.number)
    caption = (
        f"The clip moved from {words.number(clip[0])} in round {at[0]} to "
        f"{words.number(clip[-1])} in round {at[-1]}, after the norms of the updates."
    )
    chart = _over_rounds(run, upward, line("clip", "accent", at, clip))
    return Picture("Adaptive clip", drawn(chart, caption), caption)


def _fractions(run: RunRecord) -> Picture | None:
    fraction = run.series("fraction_within_clip")
    known = np.isfinite(fraction)
    if not known.any():
        return None
    at, fraction = np.array(_numbers(run))[known], fraction[known]
    quantile = run.experiment.privacy.clip_quantile
    upward = linear(
        "fraction of updates", [*fraction, quantile], words.percent,
        mark=lambda v: f"{100 * v:.4g} %",
    )  # fmt: skip
    within = line("within the clip, noised", "accent", at, fraction)
    caption = (
        f"Of the updates, {words.percent(float(np.mean(fraction)))} were within the clip on "
        f"average, where {words.percent(quantile)} are wanted.{_noise_of_fractions(run)}"
    )
    chart = _over_rounds(run, upward, within, levels=[Level(f"{quantile:g}: wanted", quantile)])
    return Picture("Updates within the clip", drawn(chart, caption), caption)


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
    lines = [
        line("sent by a client", "accent", at, up),
        line("received by a client", "part1", at, down, shape="s"),
    ]
    upward = linear("a client", _all(lines), words.size, least=0.0, mark=words.size)
    caption = (
        f"A client sends {words.size(float(np.nanmean(up)))} and receives "
        f"{words.size(float(np.nanmean(down)))} a round, on average."
    )
    return Picture("Bytes", drawn(_over_rounds(run, upward, *lines), caption), caption)


def _seconds(run: RunRecord) -> Picture | None:
    total = run.series("seconds")
    if not np.nan_to_num(total).any():
        return None
    stages = {stage: np.nan_to_num(run.nested("stage_seconds", stage)) for stage in Stage}
    rest = np.maximum(np.nan_to_num(total) - sum(stages.values()), 0)
    layers = [Layer(str(stage), f"part{i}", stages[stage]) for i, stage in enumerate(Stage, 1)]
    chart = _stacked(run, "seconds", words.duration, *layers, Layer("server, tests", "rest", rest))
    said = f"A round takes {words.duration(float(np.nanmean(total)))} on average."
    alt = f"Seconds of each round by stage; {said}"
    return Picture("Seconds", drawn(chart, alt), f"{said} Local training is part of contribute.")


def _histogram(
    values: NDArray[np.float64], across: Axis, noun: str, colour: str, ends: tuple[float, float]
) -> Chart:
    """Return how many values are in each of 32 parts of an axis."""
    counts, borders = np.histogram(values, bins=_BINS, range=ends)
    layer = Layer(noun, colour, counts.astype(np.float64))
    levels = (Level("uniform", len(values) / _BINS, "ink"),) if ends == (0.0, 1.0) else ()
    upward = linear(noun, counts, words.number, least=0.0)
    return Chart(across, upward, layers=(layer,), levels=levels, borders=borders)


def _masked(run: RunRecord) -> Picture | None:
    words_seen = run.sight.masked
    if words_seen is None or not len(words_seen):
        return None
    hidden = run.experiment.secagg.protocol == "pairwise"
    across = linear(
        "value of a word, as a part of the ring", [], lambda v: f"about {v:.3f} of the ring",
        least=0.0, most=1.0,
    )  # fmt: skip
    colour = "accent" if hidden else "local"
    chart = _histogram(words_seen, across, "words", colour, (0.0, 1.0))
    caption = (
        "One client's vector as it reached the server: every value of the ring about equally "
        "often. By itself it carries no information."
        if hidden
        else "One client's vector as it reached the server. It was not masked."
    )
    caption += f" {len(words_seen):,} words are shown."
    title = "One masked contribution" if hidden else "One contribution, not masked"
    return Picture(title, drawn(chart, caption), caption)


def _opened(seen: Sight) -> Picture | None:
    if seen.total is None or not len(seen.total):
        return None
    low, high = float(seen.total.min()), float(seen.total.max())
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    across = linear("value of a coordinate", seen.total, lambda v: f"about {v:.3g}")
    chart = _histogram(seen.total, across, "coordinates", "release", (low, high))
    caption = (
        f"The average of the same round, opened: {len(seen.total):,} coordinates with "
        f"standard deviation {words.number(float(np.std(seen.total)))}."
    )
    return Picture("The opened sum", drawn(chart, caption), caption)
