"""Pages for an ethics board: what they say of every kind of run, on exactly two sheets of A4."""

import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from zerosum.server.privacy.epsilon_bound import EpsilonBound, no_bound
from zerosum.server.privacy.event_costs import Adjacency
from zerosum.server.privacy.observers import OBSERVERS
from zerosum.server.runs.run_folder import RunFolder
from zerosum.simulations import api
from zerosum.simulations.commands.main import app
from zerosum.simulations.commands.plan import plan
from zerosum.simulations.config import load_experiment
from zerosum.simulations.report.board import (
    BoardFacts,
    board_of_plan,
    board_of_run,
    board_page,
    write_board,
)
from zerosum.simulations.report.board_assumptions import conditions
from zerosum.simulations.report.board_words import one_in, percent_up, posterior

RECORDS = 735

JARGON = (
    *("epsilon", "delta", "dp-sgd", "differential", "privacy budget", "adjacency", "accountant"),
    *("gaussian", "skellam", "renyi", "gradient", "clip", "cohort", "quorum", "secagg", "hash"),
    *("noise multiplier", "top-up", "dropout", "poisson", "e^", "unit of privacy"),
)
"""What no page for a board may say before it is explained: on the first page nothing is."""


def bound(observer: str, value: float, unit: str = "example", delta: float = 1e-4) -> EpsilonBound:
    return EpsilonBound(value, delta, 0.0, "zero_out", unit, observer, "pld", 60, ("it holds",))  # type: ignore[arg-type]


def facts(*overrides: str, epsilons: tuple[float, ...] = (2.5, 3.0, 12.0), **other) -> BoardFacts:
    experiment = load_experiment("heart", ["privacy.noise_multiplier=3", *overrides])
    unit = experiment.privacy.unit
    bounds = {name: bound(name, e, unit) for name, e in zip(OBSERVERS, epsilons, strict=True)}
    given = BoardFacts(
        experiment=experiment, state="finished", rounds=60, population=4, dimension=60,
        bounds=bounds, simulated=True, public_records=184, outcome="The model is right on 80 %.",
        hopeless=False, source="the files of the run folder heart",
    )  # fmt: skip
    return replace(given, **other)


WITHOUT = facts(
    "privacy.model=none", "privacy.unit=client", "privacy.noise_multiplier=unset",
    bounds={n: no_bound(n, 1e-4, "no noise was added", unit="client") for n in OBSERVERS},
)  # fmt: skip

KINDS = {
    "finished": facts(),
    "client": facts("privacy.unit=client", population=10, hopeless=True),
    "infinite": facts(bounds={n: no_bound(n, 1e-4, "why " * 400, unit="example")
                              for n in OBSERVERS}),
    "ended early": facts(state="ended early", rounds=7),
    "unfinished": facts(state="unfinished", rounds=3, simulated=None, public_records=None),
    "deployed": facts(simulated=False),
    "everybody in each round": facts("privacy.lot=735", "privacy.examples=735"),
    "planned": facts(state="planned", simulated=None, outcome=""),
    "ideal, local": facts("secagg.protocol=ideal", "privacy.model=central"),
    "unmasked": facts("secagg.protocol=none", "secagg.corruption=0.2"),
    "unmasked, infinite": facts(
        "secagg.protocol=none",
        bounds={"release": bound("release", 2.5),
                "local": no_bound("local", 1e-4, "it is added later", unit="example")},
    ),
    "unseeded": facts(seeded=False),
    "without": WITHOUT,
    "wide": facts("name='" + "W" * 80 + "'", hopeless=True, outcome="The model is right. " * 11,
                  population=10**9, dimension=10**10, epsilons=(700.0, 1e6, 1e12)),
}  # fmt: skip


def pages(given: BoardFacts) -> list[str]:
    """Return the text of each sheet."""
    sheets = board_page(given).split('<article class="sheet">')[1:]
    return [" ".join(re.sub("<[^>]*>", " ", sheet).split()) for sheet in sheets]


def test_beliefs_follow_bayes_rule() -> None:
    for prior in (0.01, 0.1, 0.5):
        for epsilon in (0.0, 0.5, 3.0):
            # By hand, from the joint probabilities of the worst answer there can be.
            joined, apart = prior * math.exp(epsilon), 1 - prior
            assert posterior(prior, epsilon) == pytest.approx(joined / (joined + apart))
    assert posterior(0.1, 3.0) == pytest.approx(0.6906, abs=1e-4)
    assert posterior(0.1, 1e6) == posterior(0.1, math.inf) == 1.0


def test_a_mechanism_with_delta_is_bounded_as_the_page_says() -> None:
    """Randomised response that tells the truth with probability delta, every answer enumerated."""
    epsilon, delta, prior = 1.3, 0.05, 0.1
    right = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    inside = {"in, for sure": delta, "in": right, "out": 1 - delta - right}
    outside = {"out, for sure": delta, "in": 1 - delta - right, "out": right}
    answers = {*inside, *outside}
    claimed = [inside.get(a, 0) - math.exp(epsilon) * outside.get(a, 0) for a in answers]
    assert sum(c for c in claimed if c > 0) == pytest.approx(delta)
    beliefs = {
        a: prior * inside.get(a, 0) / (prior * inside.get(a, 0) + (1 - prior) * outside.get(a, 0))
        for a in answers
    }
    beyond = [a for a in answers if beliefs[a] > posterior(prior, epsilon) + 1e-12]
    assert beyond == ["in, for sure"]  # with probability delta, and else never
    assert beliefs["in"] == pytest.approx(posterior(prior, epsilon))


@pytest.mark.parametrize(
    ("delta", "text"),
    [(1e-4, "1 in 10,000"), (3e-4, "1 in 3,333"), (1e-300, "less than 1 in 1,000,000,000"),
     (0.9, "1 in 1")],
)  # fmt: skip
def test_delta_is_said_as_one_in_so_many_never_smaller_than_it_is(delta: float, text: str) -> None:
    assert one_in(delta) == text


def test_percentages_are_rounded_up() -> None:
    assert percent_up(0.69061) == "69.1 %"
    assert percent_up(0.1) == "10 %"
    assert percent_up(0.9999) == percent_up(1.0) == "nearly 100 %"


def test_first_page_says_the_odds_of_each_observer_in_the_house_s_order() -> None:
    first, second = pages(KINDS["finished"])
    assert "raise a belief of 10 % that a given record was used to at most 57.6 %" in first
    assert "The server, or another client, can raise it to at most 69.1 %" in first
    places = [first.index(who) for who in ("Anybody who gets", "The server, and", "masks were")]
    assert places == sorted(places)
    assert "nearly 100 % nothing to rely on" in first
    assert "1 in 10,000" in first
    assert "184 records are public" in first
    assert "p e^epsilon / (1 - p + p e^epsilon)" in second


@pytest.mark.parametrize("kind", KINDS)
def test_first_page_has_no_formula_and_no_word_of_the_trade(kind: str) -> None:
    first = pages(KINDS[kind])[0].lower()
    assert [word for word in JARGON if word in first] == []


@pytest.mark.parametrize("kind", KINDS)
def test_second_page_has_boxes_to_tick_and_places_to_sign(kind: str) -> None:
    page = board_page(KINDS[kind])
    assert page.count('class="box"') >= 3
    for who in ("For the ethics board: name", "Data protection officer", "Responsible"):
        assert who in page


@pytest.mark.parametrize("kind", KINDS)
def test_each_box_is_one_condition(kind: str) -> None:
    """One sentence, without a second part after a colon, of which only one could be true."""
    for condition in conditions(KINDS[kind]):
        assert condition.endswith(".")
        assert ". " not in condition
        assert ": " not in condition
    assert len(set(conditions(KINDS[kind]))) == len(conditions(KINDS[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_code_at_the_clients_is_a_condition_wherever_there_are_any(kind: str) -> None:
    box = "The programs that run at the clients are those that were reviewed."
    assert (box in conditions(KINDS[kind])) is (KINDS[kind].simulated is not True)


def test_second_page_names_its_observers_and_no_code_of_the_accounting() -> None:
    for kind in ("finished", "unmasked", "infinite"):
        page = pages(KINDS[kind])[1]
        for word in ("pld", "rdp", "coupled", "zero_out", "epsilon_"):
            assert word not in page, kind
    second = pages(KINDS["finished"])[1]
    assert "The server, if the masks were broken" in second
    assert "compared with sending nothing but noise" in second


@pytest.mark.parametrize(
    ("delta", "said"),
    [
        (
            1e-4,
            f"of all {RECORDS:,}, it fails for any with at most 1 in {int(1 / (1e-4 * RECORDS))}.",
        ),
        (1e-2, f"Of {RECORDS:,} that may be {1e-2 * RECORDS:.2g} on average, which is not little."),
    ],
)
def test_delta_is_told_for_all_records_together(delta: float, said: str) -> None:
    given = facts("privacy.examples=735", "privacy.lot=100")
    bounds = {name: replace(one, delta=delta) for name, one in given.bounds.items()}
    assert said in pages(replace(given, bounds=bounds))[0]


@pytest.mark.parametrize("adjacency", get_args(Adjacency))
def test_second_page_says_what_presence_is_compared_with(adjacency: str) -> None:
    given = facts()
    bounds = {name: replace(one, adjacency=adjacency) for name, one in given.bounds.items()}
    assert "; compared with " in pages(replace(given, bounds=bounds))[1]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("finished", "This was a simulation"),
        ("finished", "It protects nobody"),
        ("unfinished", "Not finished: 3 of 60 rounds. The risks below are those of all 60"),
        ("unfinished", "If this is run as a simulation"),
        ("unfinished", "stands on the page of the plan, and here when the run is over"),
        ("everybody in each round", "All records, 735 at most, take part in each round."),
        ("finished", "with a probability of 1 in 10,000, and then nothing is promised for it"),
        ("ended early", "Ended after 7 of 60 rounds. When it ended tells of its models, so all 60"),
        ("infinite", "no limit nothing can be promised"),
        ("without", "nothing limits what sums and models tell of one client"),
        ("without", "Nothing limits how sure an observer can become"),
        ("client", "all patients of a site, together"),
        ("client", "The noise leaves little to learn"),
        ("unmasked", "The server what each client sends, by itself: nothing is masked"),
        (
            "unmasked",
            "which reads what each client sends, can raise it to nearly 100 %",
        ),
        ("unmasked, infinite", "nothing limits how sure it can become"),
        ("unseeded", "records lay on one machine. It protects nobody"),
        ("wide", "which is no protection to rely on"),
    ],
)
def test_every_kind_of_run_says_what_it_is(kind: str, words: str) -> None:
    assert words in pages(KINDS[kind])[0]


@pytest.mark.parametrize("kind", ["deployed", "without"])
def test_only_a_simulation_says_that_it_protects_nobody(kind: str) -> None:
    assert "simulation" not in pages(KINDS[kind])[0]


def test_values_of_a_run_are_never_markup() -> None:
    page = board_page(facts(outcome="<script>alert(1)</script>"))
    assert "<script" not in page


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium prints the pages")
@pytest.mark.parametrize("kind", KINDS)
def test_pages_print_on_exactly_two_sheets(kind: str, tmp_path: Path) -> None:
    file, pdf = tmp_path / "board.html", tmp_path / "board.pdf"
    page = board_page(KINDS[kind])

    def printed(text: str) -> int:
        file.write_text(text, encoding="utf-8")
        command = ["chromium", "--headless", "--no-sandbox", "--no-pdf-header-footer"]
        subprocess.run([*command, f"--print-to-pdf={pdf}", file.as_uri()], check=True,
                       capture_output=True, timeout=120)  # fmt: skip
        return len(re.findall(rb"/Type\s*/Page[^s]", pdf.read_bytes()))

    assert printed(page) == 2
    if kind == "finished":  # the count counts: a sheet that is too long is seen
        longer = "<p>more</p>" * 60 + "</article>"
        first, rest = page.split("</article>", 1)
        assert printed(first + longer + rest) > 2
        assert printed(page[: page.rindex("</article>")] + longer + "</main></body></html>") > 2


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    folder = tmp_path_factory.mktemp("board") / "run"
    settings = ["rounds=2", "data.clients=6", "sampling.cohort=unset", "sampling.kind=everyone",
                "secagg.protocol=ideal"]  # fmt: skip
    api.run("digits", overrides=settings, out=folder, report=False)
    return RunFolder.open(folder)


@pytest.mark.slow
def test_a_run_s_pages_have_the_figures_of_its_summary(run: RunFolder) -> None:
    given = board_of_run(run)
    summary = run.read_summary()
    assert given.bounds == summary.epsilon
    assert (given.population, given.dimension) == (6, summary.dimension)
    assert given.simulated
    assert given.hopeless
    text = write_board(run.path).read_text(encoding="utf-8")
    assert percent_up(posterior(0.1, summary.epsilon["release"].value)) in text


@pytest.mark.slow
def test_a_run_that_goes_on_is_charged_all_of_its_plan(run: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder)
    (folder / "summary.json").unlink()
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text(lines[0])
    given = board_of_run(RunFolder.open(folder))
    assert given.state == "unfinished"
    assert given.simulated is None
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(config.replace("clients = 6\n", ""))
    assert "clients = 6" not in (folder / "config.toml").read_text()
    assert board_of_run(RunFolder.open(folder)).population == 6, "as its ledger knows"
    whole = run.read_summary().epsilon
    for name in OBSERVERS:
        assert given.bounds[name].value == pytest.approx(whole[name].value, rel=1e-6)


def test_a_run_that_goes_on_never_hides_what_nothing_bounds(run: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder)
    (folder / "summary.json").unlink()
    first = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    first["epsilon"]["release"] = None  # as JSON has infinity
    (folder / "metrics.jsonl").write_text(json.dumps(first) + "\n")
    given = board_of_run(RunFolder.open(folder))
    assert not given.bounds["release"].finite
    assert given.bounds["sum"].finite
    (folder / "ledger.jsonl").unlink()
    assert not board_of_run(RunFolder.open(folder)).bounds


def test_files_of_ones_own_are_not_called_published() -> None:
    own = facts("data.path=mine.npz")
    given = replace(own, experiment=own.experiment.model_copy(update={"task": "mnist"}),
                    public_records=None)  # fmt: skip
    first = pages(given)[0]
    assert "a published collection" not in first
    assert "Unless these are published" in first


def test_a_plan_has_pages_before_anything_runs(tmp_path: Path) -> None:
    out = tmp_path / "board.html"
    words = ["plan", "mnist-local", "--population", "6000", "--dimension", "600"]
    result = CliRunner().invoke(app, [*words, "--board", str(out)])
    assert result.exit_code == 0, result.output
    assert "nothing has been computed yet" in out.read_text(encoding="utf-8")
    found = plan("mnist-local", population=6000, dimension=600)
    assert board_of_plan(found).bounds == found.epsilon


def test_board_and_public_are_two_commands(run: RunFolder) -> None:
    result = CliRunner().invoke(app, ["report", str(run.path), "--board", "--public", "x"])
    assert result.exit_code == 2
    assert "give one of them" in result.output
