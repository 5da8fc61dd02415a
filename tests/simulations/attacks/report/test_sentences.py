"""The sentence of an attack, and its line of the matrix, against rows written by hand."""

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from attack_rows import (
    CLIP,
    MASKED,
    PLAIN,
    PSNR,
    SERVER,
    Named,
    Played,
    distributed,
    local,
    shown_of,
    suite,
)

from zerosum.simulations.attacks.harness.interface import Case, Defense, Metric
from zerosum.simulations.attacks.harness.metrics import Mean
from zerosum.simulations.attacks.harness.play import Cell, Outcome
from zerosum.simulations.attacks.report.forest import forests
from zerosum.simulations.attacks.report.matrix import matrix
from zerosum.simulations.attacks.report.protections import differences, judged, kind_of
from zerosum.simulations.attacks.report.sentences import findings, protection_in_words
from zerosum.simulations.attacks.report.table import figure_text

AT = 12.0
"""A figure at the baseline."""


def said(*played, **options):
    cells, outcomes = suite(*played, **options)
    (finding,) = findings(shown_of(cells, outcomes), cells)
    assert finding.threat == "curious server"
    return finding.text


def test_a_sentence_names_what_leaks_what_stops_it_and_the_weakest_noise():
    text = said(
        Played(PLAIN),
        Played(CLIP, figure=130.0),
        Played(MASKED, clients=2, figure=80.0),
        Played(MASKED, clients=10, figure=72.0),
        Played(MASKED, clients=50, figure=AT),
        Played(local(0.01), figure=26.0, epsilon=20_900),
        Played(local(0.1), figure=AT, epsilon=285),
        Played(local(1.0), figure=AT, epsilon=10),
        Played(distributed(0.01), clients=10, figure=17.0, epsilon=11_200),
    )
    assert text == (
        "Without protection: PSNR 112 dB, baseline 12 dB; a clip alone and masks of 2 and 10 "
        "clients do not stop it; masks of 50 clients do; the weakest noise that does is local "
        "noise of 0.1 C (epsilon 285); under masks with distributed noise of 0.01 C, 10 clients "
        "(epsilon 11,200): still PSNR 17 dB."
    )


def test_noise_stops_an_attack_only_if_all_stronger_noise_does():
    """At 0.01 C the attack is at its baseline by luck: at 0.1 C it is above."""
    lucky = Played(local(0.01), figure=AT, epsilon=2e4)
    ladder = (Played(PLAIN), lucky, Played(local(0.1), figure=15.0, epsilon=285))
    assert "still PSNR 15 dB" in said(*ladder)
    assert "weakest" not in said(*ladder)
    held = (*ladder, Played(local(1.0), figure=AT, epsilon=10))
    assert "the weakest noise that stops it is local noise of 1 C (epsilon 10)" in said(*held)


def test_noise_of_which_one_setting_leaks_stops_nothing():
    both = (
        Played(PLAIN),
        Played(local(0.1), clients=2, figure=AT, epsilon=285),
        Played(local(0.1), clients=5, figure=30.0, epsilon=285),
    )
    assert "under local noise of 0.1 C, 5 clients (epsilon 285): still PSNR 30 dB" in said(*both)


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        ({"status": "failed", "figure": None}, "1 cell says nothing (failed)."),
        ({"units": 2}, "1 cell says nothing (too few units)."),
        ({"status": "not played", "figure": None}, "1 cell says nothing (not played)."),
        ({"status": "not applicable", "figure": None}, "masks keep from it what it needs."),
    ],
)
def test_what_says_nothing_is_never_said_to_stop_an_attack(change, ends):
    text = said(Played(PLAIN), replace(Played(MASKED), **change))
    assert text == f"Without protection: PSNR 112 dB, baseline 12 dB; {ends}"


def test_an_attacker_that_failed_beside_one_at_baseline_leaves_the_cell_open():
    cells, outcomes = suite(Played(PLAIN), Played(MASKED, figure=AT))
    broken = [replace(cell, attack=Named("inversion", (PSNR,), "another")) for cell in cells]
    outcomes += [Outcome(3, seed, "failed", "a reason") for seed in (0, 1)]
    rows = shown_of([*cells, *broken], outcomes)
    (finding,) = findings(rows, [*cells, *broken])
    assert finding.text.endswith("baseline 12 dB; 1 cell says nothing (failed).")
    alone, of_one = suite(Played(PLAIN), Played(MASKED, figure=AT))  # the control
    assert findings(shown_of(alone, of_one), alone)[0].text.endswith("; masks stop it.")


def test_nothing_stops_an_attack_that_shows_nothing_without_protection():
    text = said(Played(PLAIN, figure=AT), Played(MASKED, figure=AT))
    assert text == "It shows nothing even without protection: PSNR 12 dB, as its baseline."
    assert said(Played(MASKED, figure=AT)) == "It shows nothing in any cell that was played."
    assert said(Played(PLAIN, figure=AT), Played(CLIP), Played(MASKED, figure=AT)) == (
        "It shows nothing without protection: PSNR 12 dB, as its baseline; at worst, under a clip "
        "alone: PSNR 112 dB, baseline 12 dB."
    )


def test_without_an_unprotected_cell_the_worst_one_is_named():
    text = said(Played(local(0.1), figure=30.0, epsilon=285), Played(MASKED, figure=AT))
    assert text.startswith(
        "At worst, under local noise of 0.1 C: PSNR 30 dB, baseline 12 dB; masks"
    )


def two_metrics(second: Metric, figure: float) -> str:
    """Return the sentence of a protection under which the first metric is at its baseline."""
    attack = Named("differencing", (Metric("updates", whole=1.0), second))
    cells = [Cell(attack, Case(Named("a"), each)) for each in (PLAIN, MASKED)]
    apart = np.linspace(-0.1, 0.1, 4)
    blind = {"updates": Mean(-apart), second.name: Mean(12 - apart)}
    guessed = {second.name: Mean(figure + apart)}
    outcomes = [
        Outcome(n, s, "value", "", {"updates": Mean(of + apart), **guessed}, blind, threat=SERVER)
        for n, of in enumerate((1.0, 0.0))
        for s in range(3)
    ]
    return findings(shown_of(cells, outcomes), cells)[0].text


def test_a_blurred_update_whose_image_is_seen_is_not_stopped():
    assert two_metrics(PSNR, 38.0).endswith("; under masks: still PSNR 38 dB.")
    assert two_metrics(PSNR, 12.0).endswith("; masks stop it.")
    aside = Metric("accuracy", counts=False)
    assert two_metrics(aside, 38.0).endswith("; masks stop it.")


LADDER = (
    Played(PLAIN),
    Played(CLIP, figure=130.0),
    Played(MASKED, figure=AT),
    Played(local(0.1), figure=AT, epsilon=285),
)


@pytest.mark.parametrize(("seeds", "count"), [(1, "1 seed"), (2, "2 seeds")])
def test_fewer_than_three_seeds_do_not_say_what_stops_an_attack(seeds, count):
    text = said(*LADDER, seeds=seeds)
    assert text == (
        "Without protection: PSNR 112 dB, baseline 12 dB; a clip alone does not stop it; too few "
        "seeds to say which noise stops it."
    )
    assert said(*LADDER[:3], seeds=seeds).endswith("; too few seeds to say what stops it.")
    nothing = said(Played(PLAIN, figure=AT), seeds=seeds)
    assert nothing.startswith(f"In {count} it shows nothing even without protection")
    _, found = chips(*LADDER, seeds=seeds)
    assert found["local"] == [("0.1 C", f"at baseline in {count}", "few")]
    cells, outcomes = suite(*LADDER, seeds=seeds)
    assert f"at baseline in {count} (12 dB" in figure_text(shown_of(cells, outcomes)[-1])


def test_three_seeds_say_what_stops_an_attack():
    """The control of the test above."""
    text = said(*LADDER)
    assert text.endswith(
        "masks do; the weakest noise that does is local noise of 0.1 C (epsilon 285)."
    )
    _, found = chips(*LADDER)
    assert found["local"] == [("0.1 C", "at baseline", "held")]


def test_noise_of_too_few_units_is_not_said_to_stop_an_attack():
    few = replace(LADDER[-1], units=2)
    assert "; too few units to say which noise stops it; 1 cell says" in said(*LADDER[:3], few)
    more = Played(local(1.0), figure=AT, epsilon=10)
    assert "that does is local noise of 1 C" in said(*LADDER[:3], few, more)
    assert "too few units to say" not in said(*LADDER[:3], few, more)


def test_what_is_refused_with_one_seed_is_refused_with_all():
    refused = Played(MASKED, figure=AT, status="stopped")
    assert said(Played(PLAIN), refused, seeds=1).endswith("; masks stop it.")


@dataclass(frozen=True)
class Control:
    name: str
    control: bool = True
    released: str = ""


@pytest.mark.parametrize("figure", [AT, 112.0])
def test_of_a_run_the_released_model_and_the_control_are_said_by_name(figure):
    own = Defense("as in the run: masked + clip", masking="double", clip=1.0)
    cells, outcomes = suite(Played(own, epsilon=2.54), Played(own, figure=figure))
    models: Any = (
        Control("run mine, a:Task, released", False, "released model"),
        Control("run mine, a:Task, untrained control", True, "untrained control"),
    )
    cells = [
        replace(cell, case=replace(cell.case, setting=model))
        for cell, model in zip(cells, models, strict=True)
    ]
    control = "12 dB [11.4, 12.6]" if figure == AT else "112 dB [111, 113]"
    doubt = "" if figure == AT else ", above its baseline too: doubt all of these"
    assert findings(shown_of(cells, outcomes), cells)[0].text == (
        "The released model (epsilon 2.54): PSNR 112 dB [111, 113], a guess 12 dB, which it beats; "
        f"the untrained control {control}{doubt}."
    )
    (forest,) = forests(judged(shown_of(cells, outcomes), cells))
    assert [each.label for each in forest.branches] == ["released", "untrained control"]
    _, (line,) = matrix(judged(shown_of(cells, outcomes), cells))
    labels = [chip.label for chips in line.chips.values() for chip in chips]
    assert labels == ["clip, released", "clip, untrained control"]


@pytest.mark.parametrize("figure", [12.0, 112.0])
def test_a_control_is_stopped_by_no_protection_and_doubted_where_it_shows_something(figure):
    own = Defense("as in the run: masked + clip", masking="double", clip=1.0)
    cells, outcomes = suite(Played(own), Played(own, clients=3, figure=figure))
    control: Any = Control("an untrained model")
    cells[1] = replace(cells[1], case=replace(cells[1].case, setting=control))
    text = findings(shown_of(cells, outcomes), cells)[0].text
    assert "the run's masks with a clip do not stop it" in text
    assert "untrained" not in text.partition("do not stop it")[0]
    assert ("doubt all of these" in text) == (figure > 12)


def test_many_protections_are_counted_after_six():
    rules = [Defense(f"rule {n}", rule="median") for n in range(9)]
    assert "rule 4, rule 5 and 3 more do not stop it" in said(
        Played(PLAIN), *(Played(each, figure=50.0) for each in rules)
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("masked", "masks"),
        ("clip", "a clip alone"),
        ("masked + clip", "masks with a clip"),
        ("masked + local noise 0.1 C", "masks with local noise of 0.1 C"),
        ("masked, no request hash", "“masked, no request hash”"),
        ("as in the run: masked", "the run's masks"),
        ("my noise", "my noise"),
    ],
)
def test_names_become_words(name, words):
    assert protection_in_words(name) == words


def test_protections_have_columns_of_their_own():
    kinds = [kind_of(each) for each in (PLAIN, CLIP, MASKED, local(1), distributed(1))]
    assert kinds == ["none", "clip", "masks", "local", "sum"]
    assert kind_of(Defense("Krum", rule="krum")) == "rule"
    assert kind_of(Defense("as in the run: plain")) == "none"
    # Rounding changes the setting, and no field of a defense: it is not taken for "plain".
    assert kind_of(Defense("rounded to 5 years")) == "other"


def chips(*played, **options):
    cells, outcomes = suite(*played, **options)
    kinds, (line,) = matrix(judged(shown_of(cells, outcomes), cells))
    return kinds, {
        kind: [(c.label, c.text, c.style) for c in of] for kind, of in line.chips.items()
    }


def test_a_line_of_the_matrix_is_that_of_the_rows():
    """A baseline of 12 dB, all of it at 40: shares 1, 0.5, 0.09 and 0."""
    kinds, found = chips(
        Played(local(1.0), figure=AT, epsilon=10),
        Played(local(0.1), figure=14.5, epsilon=285),
        Played(local(0.01), figure=26.0, epsilon=20_900),
        Played(PLAIN),
        Played(distributed(0.1), figure=None, status="not applicable"),
        Played(distributed(0.2), figure=None, status="failed"),
        Played(distributed(0.3), units=2, epsilon=5),
    )
    assert kinds == ["none", "local", "sum"]
    assert found["none"] == [("", "112 dB", "adv-4")]
    assert found["local"] == [
        ("0.01 C", "26 dB", "adv-3"),
        ("0.1 C", "14.5 dB", "adv-1"),
        ("1 C", "at baseline", "held"),
    ]
    assert {(text, style) for _, text, style in found["sum"]} == {
        ("not applicable", "na"),
        ("failed", "failed"),
        ("too few units", "few"),
    }


def test_without_a_figure_of_success_colours_go_by_the_best_of_the_attack():
    _, found = chips(
        Played(PLAIN), Played(MASKED, figure=32.0), Played(CLIP, figure=112.0),
        metric=Metric("PSNR", "dB"),
    )  # fmt: skip
    assert found["none"] == [("", "112 dB", "adv-4")]
    assert found["masks"] == [("", "32 dB", "adv-2")]  # 20 of 100 dB


def test_names_differ_by_the_parts_that_not_all_have():
    assert differences(["2 clients, 1 image", "5 clients, 1 image, cnn"]) == {
        "2 clients, 1 image": "2 clients",
        "5 clients, 1 image, cnn": "5 clients, cnn",
    }
    assert differences(["a, b"]) == {"a, b": ""}
    assert not re.search(",", "".join(differences([]).values()))
