"""A client that releases wrong shares, in whole runs: found, named, left out; sums stay right."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from zerosum.secagg import ClientParty
from zerosum.server.config import ConfigError
from zerosum.server.private_sum.coordinator import Coordinator
from zerosum.server.runs.left_out import LEFT_OUT
from zerosum.server.runs.run_folder import METRICS, MODEL, SUMMARY
from zerosum.simulations import api
from zerosum.simulations.commands.summary import summary_table
from zerosum.simulations.report import write_report
from zerosum.simulations.terminal.round_lines import describe

CLIENTS, LIAR = 12, 3
SETTINGS = [
    "data.clients=12",
    "sampling.kind=everyone",
    "secagg.protocol=pairwise",
    "faults={}",
    "training.epochs=1",
    "secagg.dropout=0.1",
    "privacy.model=none",
]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def a_liar(monkeypatch):
    """Let client 3 give wrong shares of the six last dealers, whenever it is asked."""
    honest = ClientParty.unmask

    def unmask(party, request):
        step: Any = honest(party, request)  # it sends a stage's message, with fields of its own
        if step.send.index != LIAR:
            return step
        table = np.frombuffer(step.send.shares, "<u4").copy()
        table[-6 * 9 :] ^= 1
        return replace(step, send=replace(step.send, shares=table.tobytes()))

    monkeypatch.setattr(ClientParty, "unmask", unmask)


def run(folder, *more, rounds=3):
    overrides = [*SETTINGS, *more, f"rounds={rounds}"]
    return api.run("digits", overrides=overrides, out=folder, report=False)


def lines_of(folder):
    return [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("server", ["malicious", "semi-honest"])
def test_a_liar_is_named_in_its_round_and_left_out_of_those_after(tmp_path, a_liar, server):
    result = run(tmp_path / "run", f"secagg.server={server}")
    first, *later = lines_of(result.folder)
    assert first["status"] == "completed"
    assert (first["cohort"], first["survivors"], first["liars"]) == (CLIENTS, CLIENTS, [LIAR])
    assert first["wrong_shares"] == 6
    assert "wrong_pairs" not in first
    for line in later:
        assert (line["cohort"], line["left_out"], line["survivors"]) == (CLIENTS - 1, 1, 11)
        assert "liars" not in line
        assert "wrong_shares" not in line
    summary = json.loads((result.folder / SUMMARY).read_text())
    assert summary["left_out"] == [LIAR]
    assert summary["wrong_shares"] == 6


@pytest.mark.slow
def test_the_first_sum_is_that_of_an_honest_run(tmp_path, request):
    honest = run(tmp_path / "honest", rounds=1)
    request.getfixturevalue("a_liar")
    lying = run(tmp_path / "lying", rounds=1)
    assert lines_of(lying.folder)[0]["liars"] == [LIAR]
    assert (lying.folder / MODEL).read_bytes() == (honest.folder / MODEL).read_bytes()
    assert "liars" not in lines_of(honest.folder)[0]
    assert not (honest.folder / LEFT_OUT).exists()


@pytest.mark.slow
def test_a_resumed_run_leaves_the_liar_out_until_it_is_readmitted(tmp_path, a_liar):
    whole = run(tmp_path / "whole")
    part = run(tmp_path / "part", rounds=1)
    resumed = api.resume(part.folder, overrides=["rounds=3"], report=False)
    assert (resumed.folder / MODEL).read_bytes() == (whole.folder / MODEL).read_bytes()
    (resumed.folder / LEFT_OUT).write_text("")
    readmitted = api.resume(part.folder, overrides=["rounds=4"], report=False)
    assert [line["cohort"] for line in readmitted.rounds] == [12, 11, 11, 12]
    assert readmitted.rounds[-1]["liars"] == [LIAR]


NOISED = [
    "privacy.model=distributed", "privacy.clip=1.0", "privacy.noise_multiplier=1.0",
    "privacy.delta=1e-2", "privacy.honest_fraction=0.5",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "refused"),
    [
        ([0], None),
        ([0, 1], "a cohort of 11, and would be done again with 10, without client 1; "),
        ([], "a cohort of 11, and would be done again with 12; "),
        ([1], "a cohort of 11, and would be done again with 11, without client 1; "),
    ],
    ids=["as they were", "one more is out", "one is readmitted", "another is out"],
)
def test_a_sum_is_not_opened_again_among_others_with_the_noise_that_it_had(
    tmp_path, monkeypatch, after, refused
):
    """Two such sums differ by one client's vector less another's, and their shares of the noise."""
    shared, seen, honest = tmp_path / "left-out.jsonl", [], Coordinator.private_sum

    def leave_out(clients):
        entries = [{"client": c, "key": "", "run": "x", "round": 1, "since": 1} for c in clients]
        shared.write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    def private_sum(self, *asked, **how):
        aggregate = honest(self, *asked, **how)
        seen.append(aggregate.total)
        if len(seen) == 1:
            raise KeyboardInterrupt  # opened, and not written down
        return aggregate

    monkeypatch.setattr(Coordinator, "private_sum", private_sum)
    leave_out([0])
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", *NOISED, f"deployment.left_out={str(shared)!r}", rounds=1)
    leave_out(after)
    if refused is None:
        api.resume(tmp_path / "run", report=False)
        first, again = seen
        np.testing.assert_array_equal(first, again)
        return
    with pytest.raises(ConfigError, match=refused) as error:
        api.resume(tmp_path / "run", report=False)
    assert "\n" not in str(error.value)
    assert len(seen) == 1


@pytest.mark.slow
def test_a_noised_average_is_divided_by_the_cohort_that_was_expected(tmp_path, a_liar, monkeypatch):
    from zerosum.server.training.averaging import Averaging

    seen = []
    honest = Averaging.average

    def average(self, aggregate, model, number):
        found = honest(self, aggregate, model, number)
        seen.append((aggregate.total, found))
        return found

    monkeypatch.setattr(Averaging, "average", average)
    run(tmp_path / "run", *NOISED, rounds=2)
    for total, mean in seen:
        np.testing.assert_allclose(mean, total / CLIENTS, rtol=1e-5)


@pytest.mark.slow
def test_the_round_line_the_summary_and_the_report_name_the_liar(tmp_path, a_liar):
    result = run(tmp_path / "run", rounds=2)
    first, second = result.rounds
    assert describe(first, 2).endswith("proved to lie: 3")
    assert describe(second, 2).endswith("left out: 1")
    write_report(result.folder)
    page = (result.folder / "report.html").read_text()
    assert "wrong shares, and left out of later cohorts: client 3 (round 1)" in page
    cells = [str(cell) for column in summary_table(result.summary).columns for cell in column.cells]
    assert "left out, proved to lie" in cells


def test_a_dealer_who_commits_to_another_secret_costs_one_round(tmp_path, monkeypatch):
    honest = ClientParty._own_advert

    def advert(party):
        made = honest(party)
        return replace(made, commitment=bytes(32)) if made.index == LIAR else made

    monkeypatch.setattr(ClientParty, "_own_advert", advert)
    result = run(tmp_path / "run", "secagg.server=semi-honest", rounds=2)
    first, second = lines_of(result.folder)
    assert (first["status"], first["liars"]) == ("abandoned", [LIAR])
    assert "known to lie: 3" in first["reason"]
    assert (second["status"], second["cohort"], second["left_out"]) == ("completed", 11, 1)
