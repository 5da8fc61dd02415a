"""Charts: axes with round numbers, places on them, and values as a pointer reads them."""

import json
import math
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
from zerosum.simulations.report.chart_page import (
    END_LINE,
    HEIGHT,
    TOP,
    LineEnd,
    drawn,
    line_ends,
    values,
)

FINITE = st.floats(-1e9, 1e9, allow_nan=False)


def said(value: float) -> str:
    return f"<{value:g}>"


@pytest.mark.slow
@given(st.lists(FINITE, max_size=6))
@example([5e-324])
def test_linear_axis_holds_all_values_between_few_round_numbers(numbers: list[float]) -> None:
    axis = linear("y", numbers, said)
    assert axis.low < axis.high
    slack = 1e-8 * (axis.high - axis.low)
    assert all(axis.low - slack <= v <= axis.high + slack for v in numbers)
    assert 1 <= len(axis.ticks) <= 9
    assert all(0 <= axis.part(place) <= 1 for place, _ in axis.ticks)


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_axis_of_rounds_has_whole_numbers_of_which_a_phone_has_room(first: int, more: int) -> None:
    axis = round_axis([first, first + more])
    places = [place for place, _ in axis.ticks]
    assert 1 <= len(places) <= 8
    assert all(place == int(place) and first <= place <= first + more for place in places)


def test_log_axis_has_equal_ways_for_equal_ratios() -> None:
    axis = logarithmic("epsilon", [0.5, 2000.0], said)
    parts = axis.part([1.0, 10.0, 100.0])
    assert np.diff(parts)[0] == pytest.approx(np.diff(parts)[1])
    assert [text for _, text in axis.ticks] == ["1", "10", "100", "1,000"]
    assert axis.part(0.0) == 0  # as far as the axis goes
    straight = linear("epsilon", [0.5, 2000.0], said)
    assert np.ptp(np.diff(straight.part([1.0, 10.0, 100.0]))) > 0


def test_a_long_series_is_sampled_and_keeps_its_last_point() -> None:
    series = line("a", "accent", range(1001), range(1001))
    assert len(series.x) <= 300
    assert series.x[-1] == series.y[-1] == 1000
    assert len(line("a", "accent", [], []).x) == 0


def test_groups_are_means_and_lie_between_rounds() -> None:
    borders, (means,) = grouped(range(1, 601), np.arange(600.0))
    assert (borders[0], borders[-1]) == (0.5, 600.5)
    assert means[0] == pytest.approx(0.5)
    alone, _ = grouped([3], np.ones(1))
    assert alone.tolist() == [2.5, 3.5]


def chart(**changes) -> Chart:
    x = Axis("round", 0.5, 4.5, ((1.0, "1"), (4.0, "4")), lambda v: f"round {v:.0f}")
    y = Axis("share", 0.0, 1.0, ((0.0, "0"), (1.0, "1")), lambda v: f"{100 * v:.0f} %")
    return Chart(x, y, **changes)


def test_points_are_where_the_axes_say() -> None:
    series = Series("a", "sum", np.array([1.0, 3.0]), np.array([0.25, 1.0]), shape="s")
    page = drawn(chart(series=(series,)), "two points")
    marks = re.findall(r'<use href="#mark-square" x="([\d.]+)%" y="([\d.]+)"', page)
    places = [(100 * 0.5 / 4, TOP + 0.75 * HEIGHT), (100 * 2.5 / 4, TOP)]
    assert [(float(x), float(y)) for x, y in marks] == places
    assert 'd="M125 750L625 0"' in page
    assert 'aria-label="two points"' in page
    assert "<text" in page
    assert 'class="key"' not in page  # one series needs none


def test_a_gap_is_no_line() -> None:
    series = Series("a", "sum", np.array([1.0, 2.0, 3.0]), np.array([0.5, math.nan, 0.5]))
    assert 'd="M125 500M625 500"' in drawn(chart(series=(series,)), "a gap")
    assert values(chart(series=(series,)))["t"] == ["round 1", "round 3"]


def test_values_are_those_of_each_series_at_each_place() -> None:
    low, high = np.array([0.1, 0.3]), np.array([0.3, 0.5])
    one = Series("one", "sum", np.array([1.0, 2.0]), np.array([0.2, 0.4]), low, high)
    other = Series("other", "local", np.array([2.0]), np.array([0.9]))
    ring = Series("ring", "ink", np.array([2.0]), np.array([0.9]), ring=True)
    read = values(chart(series=(one, other, ring)))
    assert read["x"] == [12.5, 37.5]
    assert read["s"] == [
        ["one", "sum", ["20 % ± 10 %", "40 % ± 10 %"]],
        ["other", "local", [None, "90 %"]],
    ]


def test_layers_stand_on_each_other_and_are_read_alone() -> None:
    layers = (Layer("low", "kept", np.array([0.25])), Layer("high", "late", np.array([0.5])))
    whole = chart(layers=layers, borders=np.array([0.5, 4.5]))
    page = drawn(whole, "two layers")
    paths = re.findall(r'<path d="([^"]+)" fill="var\(--(\w+)\)"', page)
    assert paths[0] == ("M0 750L1000 750L1000 1000L0 1000Z", "kept")
    assert paths[1] == ("M0 250L1000 250L1000 750L0 750Z", "late")
    assert values(whole)["t"] == ["rounds 1 to 4, mean"]
    assert [row[2] for row in values(whole)["s"]] == [["25 %"], ["50 %"]]


def test_levels_and_shades_are_in_the_key_and_hostile_labels_are_text() -> None:
    shade = Shade('"><script>', np.array([0.5, 2.5, 4.5]), np.array([0.0, 1.0]))
    level = Level("<b>", 0.5)
    page = drawn(chart(levels=(level,), shade=shade, series=()), '"onload="x')
    assert page.count('<rect x="50%"') == 1
    assert f'y1="{TOP + HEIGHT / 2}"' in page
    assert "<script" not in page
    assert "<b>" not in page
    assert 'onload="x' not in page
    found = re.search(r'data-values="([^"]*)"', page)
    assert found is not None
    expected = {"x": [], "t": [], "y": [TOP, TOP + HEIGHT], "s": []}
    assert json.loads(unescape(found[1])) == expected


def test_an_axis_of_the_largest_floats_has_ends():
    axis = linear("y", [1.7e308, -1.7e308, math.inf, 0.0], said)
    assert math.isfinite(axis.high - axis.low)
    assert axis.low < 0 < axis.high


def ended(*ends: tuple[float, float], names: tuple[str, ...] = ()) -> list[LineEnd]:
    lines = tuple(
        Series(name, "accent", np.array([0.0, x]), np.array([0.0, y]))
        for name, (x, y) in zip(names or "abcdefgh", ends, strict=False)
    )
    axis = Axis("", 0.0, 1.0, (), str)
    return line_ends(Chart(axis, axis, lines, ends=True))


def test_names_at_the_ends_of_lines_do_not_overlap() -> None:
    found = ended((1, 0.5), (1, 0.51), (1, 0.0), (1, 0.01))
    assert [each.lines for each in found] == [["b"], ["a"], ["d"], ["c"]]  # from top to bottom
    places = [each.to_y for each in found]
    assert min(np.diff(places)) >= END_LINE
    assert places[0] >= TOP
    assert places[-1] <= TOP + HEIGHT + END_LINE / 2
    (alone,) = ended((1, 0.5))  # the control: one name stands where its line ends
    assert alone.to_y == alone.from_y == TOP + HEIGHT / 2


def test_a_long_name_takes_the_room_of_its_lines() -> None:
    long = "a name that does not fit into one line of a key"
    low, high = ended((1, 0.5), (1, 0.49), names=(long, "b"))
    assert len(low.lines) == 2
    assert high.to_y - low.to_y >= 1.5 * END_LINE


def test_a_line_leads_to_a_name_only_from_nearby_and_alone() -> None:
    assert [each.near for each in ended((1, 0.9), (0.5, 0.1))] == [True, False]
    assert [each.near for each in ended((1, 0.5), (1, 0.5))] == [False, False]


def test_a_chart_without_names_at_its_ends_has_a_key_alone() -> None:
    axis = Axis("", 0.0, 1.0, (), str)
    one = Series("a", "accent", np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    plain = Chart(axis, axis, (one, one))
    assert 'class="ends"' not in drawn(plain, "")
    assert 'class="ends"' in drawn(replace(plain, ends=True), "")
