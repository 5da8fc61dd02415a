"""The report says what the run folder says: all of it, nothing else, whatever is missing."""

import json
import math
import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from report_pages import Page

from zerosum.server.config import ConfigError, parse_experiment
from zerosum.server.runs.records import RoundRecord
from zerosum.server.runs.run_folder import METRICS, REPORT, SUMMARY, RunFolder
from zerosum.simulations.report import write_report
from zerosum.simulations.terminal.round_lines import describe

LOCAL_REASON = "the noise of a sum was drawn once: no contribution carries any"


def record(number: int, **changes: Any) -> dict[str, Any]:
    """Make up one line of metrics.jsonl."""
    return {
        "round": number,
        "cohort": 100,
        "status": "completed",
        "survivors": 92,
        "average_norm": 0.5,
        "noise_norm": 0.3,
        "dropouts": {"advertise": 2, "share": 3, "contribute": 3, "unmask": 1},
        "bytes_up_per_client": 38_000.0,
        "bytes_down_per_client": 81_000.0,
        "stage_seconds": {"advertise": 0.02, "share": 0.2, "contribute": 0.7, "unmask": 0.1},
        "test_accuracy": 0.847 - 0.5 * math.exp(-number),
        "test_loss": 0.5 + math.exp(-number),
        "epsilon": {"sum": 2.1 * number, "local": 90.0 * number, "release": 0.4 * number},
        "seconds": 1.1,
    } | changes


ABANDONED = {
    "status": "abandoned",
    "reason": "77 survivors, 80 needed",
    "survivors": 0,
    "dropouts": {},
    "bytes_up_per_client": 0.0,
    "bytes_down_per_client": 0.0,
    "stage_seconds": {},
}


def figure(value: float | None, reason: str | None = None) -> dict[str, Any]:
    """Make up one epsilon of summary.json."""
    return {
        "value": value,
        "delta": 1e-3,
        "slack": 0.0,
        "adjacency": "zero_out",
        "unit": "client",
        "accountant": "RDP of Skellam",
        "participations": 19,
        "assumptions": ["80 % of a cohort is honest"],
        "reason": reason,
    }


def summarize(records: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """Make up summary.json."""
    last = records[-1]
    return {
        "name": "experiment",
        "metrics": {k: v for k, v in last.items() if k.startswith("test_")},
        "rounds": len(records),
        "rounds_abandoned": sum(r["status"] != "completed" for r in records),
        "epsilon": {observer: figure(value) for observer, value in last["epsilon"].items()},
        "population": 400,
        "peak_memory_mb": 812.0,
        "noise_from_seed": True,
        "noise_draw": "per_client",
        "versions": {"python": "3.11.2", "torch": "2.13.0"},
        "seed": 0,
    } | changes


def make_run(
    path: Path,
    records: list[dict[str, Any]],
    summary: dict[str, Any] | None,
    **config: Any,
) -> RunFolder:
    """Write a made-up run folder."""
    experiment = parse_experiment({"rounds": max(len(records), 1), **config})
    folder = RunFolder.create(path, experiment)
    folder.rewrite_lines(METRICS, records)
    if summary is not None:
        folder.write_json(SUMMARY, summary)
    return folder


def read(folder: RunFolder) -> Page:
    """Write the report and read it back; every page nests and stands alone."""
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert not page.open
    for _, attributes in page.tags:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/png;base64,"))
    assert not re.search(r"https?://|@import|<link", page.html)
    assert not page.foreign_scripts()
    assert len(page.html.encode()) < 1_000_000
    return page


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Page:
    records = [record(n) for n in range(1, 6)]
    records[2] |= ABANDONED
    for name in ("average_norm", "noise_norm"):
        del records[2][name]
    folder = make_run(
        tmp_path_factory.mktemp("run") / "first run",
        records,
        summarize(records),
        privacy={"clip": 0.25},
        faults={"share": 0.03},
    )
    return read(folder)


def test_the_outcome_comes_first_with_every_epsilon_and_its_delta(whole: Page) -> None:
    opening = whole.text[: whole.text.index("Who is protected against whom")]
    for said in ("84.4 %", "400 clients", "1 of them abandoned", "delta 0.001"):
        assert said in opening
    for figure_said in ("epsilon 2 against", "epsilon 10.5 against", "epsilon 450"):
        assert figure_said in opening


def test_the_observers_are_shown_with_all_that_their_figures_rest_on(whole: Page) -> None:
    for name in ("sum", "local", "release"):
        assert f"epsilon_{name}" in whole.text
    for said in ("zero_out", "RDP of Skellam", "80 % of a cohort is honest", "19"):
        assert whole.text.count(said) >= 3


def test_weak_figures_and_seeded_noise_are_called_so(whole: Page) -> None:
    assert "assumes that the seed stays secret" in whole.text
    assert "epsilon_sum (10.5) and epsilon_local (450) are above 10" in whole.text
    assert "Delta 0.001 is large for 400 clients" in whole.text
    assert "epsilon_release (" not in whole.text


def test_every_picture_is_there_and_described(whole: Page) -> None:
    titles = whole.headings()
    for title in ("Accuracy", "Loss", "Epsilon by observer", "Accuracy bought with epsilon",
                  "Who took part", "Signal and noise", "Bytes", "Seconds"):  # fmt: skip
        assert title in titles
    assert all(len(alt) > 20 for alt in whole.alts())
    assert len(whole.alts()) == 8


def test_a_clip_that_adapts_is_drawn_over_the_rounds_beside_what_it_follows(tmp_path: Path) -> None:
    records = [
        record(n, clip=0.5 * 1.1 ** (n - 1), fraction_within_clip=0.1 * n) for n in range(1, 6)
    ]
    records[2] |= ABANDONED
    del records[2]["clip"], records[2]["fraction_within_clip"]
    privacy = {"clipping": "adaptive", "clip_quantile": 0.7}
    page = read(make_run(tmp_path / "run", records, summarize(records), privacy=privacy))
    assert {"Adaptive clip", "Updates within the clip"} <= set(page.headings())
    assert "moved from 0.5 in round 1 to 0.7321 in round 5" in page.text
    assert "30.0 % were within the clip on average, where 70.0 % are wanted" in page.text
    assert len(page.alts()) == 10


def test_a_constant_predictor_stands_beside_the_accuracy_and_in_its_chart(tmp_path: Path) -> None:
    records = [record(1), record(2)]
    reference = {
        "predictor": "majority class",
        "label": 3,
        "metrics": {"test_accuracy": 0.125, "test_something": 1.0},
    }
    page = read(make_run(tmp_path / "run", records, summarize(records, reference=reference)))
    assert re.search(r"Test accuracy</dt><dd>[\d.]+ %<small>majority class: 12.5 %<", page.html)
    assert "majority class: 12.5 %" in page.alts()[0]
    assert page.html.count("</svg>majority class: 12.5 %") == 1
    # The control: of a run that goes on it is not said, as its figures are not the last.
    going = read(make_run(tmp_path / "on", records, None, rounds=9))
    assert "majority" not in going.text


def test_a_clip_that_stays_is_not_drawn(whole: Page) -> None:
    assert not {"Adaptive clip", "Updates within the clip"} & set(whole.headings())


def test_pictures_take_their_colours_from_the_page(whole: Page) -> None:
    drawn = "".join(re.findall(r"<svg.*?</svg>", whole.html, flags=re.S))
    assert "var(--release)" in drawn
    assert not re.search(r"(fill|stroke): ?#", drawn)


def test_identifiers_are_unique_in_the_page_and_references_resolve(whole: Page) -> None:
    ids = [a["id"] for _, a in whole.tags if "id" in a]
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', whole.html)
    assert used
    assert set(used) <= set(ids)


def test_dropouts_are_counted_by_stage_and_abandoned_rounds_give_their_reason(whole: Page) -> None:
    assert "share left before sending its shares 12 2.4 % 3.0 %" in whole.text
    assert "Round 3: 77 survivors, 80 needed" in whole.text


def test_the_configuration_shows_first_what_differs_then_all_of_it(whole: Page) -> None:
    differing = whole.text[whole.text.index("What differs") : whole.text.index("config.toml")]
    assert "privacy.clip 0.25 0.5" in differing
    assert "sampling.cohort" not in differing
    assert "honest_fraction = 0.8" in whole.text


def test_the_command_quotes_the_folder_and_the_versions_are_listed(whole: Page) -> None:
    assert "zerosum run 'first run/config.toml' --out 'first run-again'" in whole.text
    assert "torch 2.13.0" in whole.text


@pytest.mark.slow
def test_a_run_on_a_gpu_names_it_and_promises_no_bits(tmp_path: Path) -> None:
    engine = {"name": "serial", "trainer": "batched", "device": "cuda (a card <of> its own)"}
    summary = summarize([record(1)], engine=engine)
    page = read(make_run(tmp_path / "run", [record(1)], summary, device="cuda"))
    assert "to float rounding: it was trained on cuda (a card <of> its own)." in page.text
    assert "it gives the same model, bit for bit" not in page.text


def test_writing_again_gives_the_same_page_and_changes_no_setting_of_matplotlib(
    tmp_path: Path,
) -> None:
    records = [record(1), record(2)]
    folder = make_run(tmp_path / "run", records, summarize(records))
    before = dict(matplotlib.rcParams)
    first = write_report(folder).read_bytes()
    assert write_report(folder.path).read_bytes() == first
    assert dict(matplotlib.rcParams) == before
    assert [p.name for p in folder.path.iterdir() if p.name.startswith(REPORT)] == [REPORT]


def test_text_that_is_no_unicode_is_escaped(tmp_path: Path) -> None:
    """What a client's task raised may hold half of a surrogate pair: UTF-8 has no bytes for it."""
    records = [record(1, **ABANDONED), record(2)]
    records[0]["reason"] = "half a pair: \ud800"
    folder = make_run(tmp_path, records, summarize(records))
    assert "half a pair: \\ud800" in read(folder).text


@pytest.mark.slow
def test_hostile_text_is_shown_and_not_run(tmp_path: Path) -> None:
    evil = "<script>alert(1)<script> \"'&"
    records = [record(1, **ABANDONED), record(2)]
    records[0]["reason"] = evil
    summary = summarize(records)
    summary["epsilon"]["sum"] = figure(None, reason=evil) | {"assumptions": [evil]}
    page = read(make_run(tmp_path / "<b>", records, summary, name=evil, task="<i>:x"))
    assert page.text.count(evil) >= 4
    assert not {"b", "i"} & {tag for tag, _ in page.tags}


def test_a_figure_without_a_value_gives_its_reason(tmp_path: Path) -> None:
    records = [record(n) for n in (1, 2)]
    for r in records:
        r["epsilon"]["local"] = None
    summary = summarize(records, noise_draw="summed")
    summary["epsilon"]["local"] = figure(None, reason=LOCAL_REASON)
    page = read(make_run(tmp_path / "run", records, summary, secagg={"protocol": "ideal"}))
    assert LOCAL_REASON in page.text
    assert "∞" in page.text
    assert "no cryptography ran" in page.text
    assert "drawn once" in page.text


def test_without_privacy_nothing_is_promised(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("sum", "local", "release"))
    records = [record(n, epsilon=nothing, noise_norm=0.0) for n in (1, 2)]
    reason = "no noise is added"
    summary = summarize(records)
    summary["epsilon"] = {o: figure(None, reason) for o in nothing}
    page = read(
        make_run(
            tmp_path / "run",
            records,
            summary,
            privacy={"model": "none"},
            secagg={"protocol": "none"},
        )
    )
    assert "there is no differential privacy" in page.text
    assert page.text.count(reason) == 3
    assert "the server saw every single contribution, without noise" in page.text
    assert "Epsilon by observer" not in page.headings()
    assert "Signal and noise" in page.headings()


def test_no_test_data_and_a_federated_evaluation(tmp_path: Path) -> None:
    records = [record(n) for n in range(1, 5)]
    for r in records:
        del r["test_accuracy"], r["test_loss"]
    records[1] |= {"federated_status": "drowned in noise"}
    records[3] |= {
        "federated_status": "completed",
        "federated_loss": 0.7,
        "federated_accuracy": 0.71,
    }
    summary = summarize(records, metrics={"federated_accuracy": 0.71, "federated_loss": 0.7})
    page = read(make_run(tmp_path / "run", records, summary))
    assert "right on 71.0 % of the clients' own examples" in page.text
    assert "1 drowned in noise, 1 completed" in page.text
    assert "Accuracy" in page.headings()


def test_a_noised_metric_is_shown_with_its_noise(tmp_path: Path) -> None:
    """Its noise is no metric of its own: no tile, no picture, no column."""
    told = {
        "federated_accuracy": 0.71,
        "federated_accuracy_noise_std": 0.0312,
        "federated_status": "completed",
    }
    records = [record(n) for n in range(1, 4)]
    for r in records:
        del r["test_accuracy"], r["test_loss"]
    records[2] |= told
    metrics = {name: value for name, value in told.items() if isinstance(value, float)}
    page = read(make_run(tmp_path / "run", records, summarize(records, metrics=metrics)))
    assert "right on 71.0 ± 3.1 % of the clients' own examples" in page.text
    assert "give or take the standard deviation of the noise" in page.text
    assert "noise std" not in page.text.lower()
    assert "federated accuracy 0.710 ± 0.031" in describe(RoundRecord(**records[2]), 3)


def test_no_metric_at_all_is_said(tmp_path: Path) -> None:
    records = [record(1)]
    del records[0]["test_accuracy"], records[0]["test_loss"]
    page = read(make_run(tmp_path / "run", records, summarize(records)))
    assert "The model was not tested" in page.text
    assert "What was learnt" not in page.headings("h2")


def test_a_metric_that_is_not_a_number_does_not_stop_the_page(tmp_path: Path) -> None:
    records = [record(1, test_loss=math.inf), record(2, test_loss=math.nan, test_accuracy=0.1)]
    page = read(make_run(tmp_path / "run", records, summarize(records)))
    assert "not a number" in page.text


@pytest.mark.slow
def test_one_round_is_enough_even_if_it_was_abandoned(tmp_path: Path) -> None:
    for name, one in (("kept", record(1)), ("lost", record(1, cohort=0, **ABANDONED))):
        page = read(make_run(tmp_path / name, [one], summarize([one])))
        assert "1 round of federated training" in page.text


def test_an_interrupted_run_reports_what_is_there(tmp_path: Path) -> None:
    page = read(make_run(tmp_path / "run", [record(1), record(2)], None, rounds=40))
    assert "has not finished: 2 of 40 rounds" in page.text
    assert "epsilon 4.2 against the server and fellow clients, while masks hold" in page.text
    assert "delta 0.001" in page.text


def test_a_run_without_a_single_round_has_a_page(tmp_path: Path) -> None:
    page = read(make_run(tmp_path / "run", [], None))
    assert "0 of 1 round" in page.text
    assert "not recorded" in page.text


def test_a_summary_older_than_the_rounds_is_not_believed(tmp_path: Path) -> None:
    records = [record(1), record(2), record(3)]
    page = read(make_run(tmp_path / "run", records, summarize(records[:2]), rounds=5))
    assert "has not finished: 3 of 5 rounds" in page.text
    assert "epsilon 6.3" in page.text
    assert "epsilon 4.2 " not in page.text


def test_a_line_torn_by_a_crash_is_left_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", [record(1)], None, rounds=9)
    with (folder.path / METRICS).open("a") as file:
        file.write(json.dumps(record(2))[:40])
    assert "1 of 9 rounds" in read(folder).text


@pytest.mark.slow
def test_thousands_of_rounds_stay_under_a_megabyte(tmp_path: Path) -> None:
    records = [record(n) for n in range(1, 3001)]
    for r in records[::7]:
        r |= ABANDONED
    page = read(make_run(tmp_path / "run", records, summarize(records)))
    assert "metrics.jsonl has all 3,000" in page.text


def sight(path: Path, **arrays: Any) -> None:
    np.savez(path / "sight.npz", **arrays)


@pytest.mark.slow
def test_what_the_server_saw_is_drawn_where_it_was_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    folder = make_run(tmp_path / "run", [record(1)], summarize([record(1)]))
    sight(
        folder.path,
        masked=rng.integers(0, 2**23, 4096, dtype=np.uint32),
        ring_bits=23,
        sum=rng.normal(0, 0.01, 500),
        images=rng.integers(0, 256, (3, 14, 14), dtype=np.uint8),
        labels=np.array([1, 2, 3]),
        predictions=np.array([1, 2, 8]),
    )
    page = read(folder)
    assert {"One masked contribution", "The opened sum"} <= set(page.headings())
    pictures = [a["alt"] for tag, a in page.tags if tag == "img"]
    assert pictures == ["a 1, recognised", "a 2, recognised", "a 3, taken for a 8"]
    assert "3 test images, 1 of them wrong" in page.text


@pytest.mark.slow
def test_an_unmasked_contribution_is_not_called_masked(tmp_path: Path) -> None:
    folder = make_run(
        tmp_path / "run", [record(1)], summarize([record(1)]), secagg={"protocol": "none"}
    )
    sight(folder.path, masked=np.arange(50, dtype=np.uint64), ring_bits=20)
    page = read(folder)
    assert "One contribution, not masked" in page.headings()
    assert "One masked contribution" not in page.headings()
    assert "What the model says" not in page.headings("h2")


@pytest.mark.slow
def test_a_broken_sight_file_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = make_run(tmp_path / "run", [record(1)], summarize([record(1)]))
    (folder.path / "sight.npz").write_bytes(b"PK\x03\x04 torn")
    assert "What the server sees" not in read(folder).headings("h2")
    assert "sight.npz is left out" in caplog.text


def test_a_folder_that_holds_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.toml"):
        write_report(tmp_path)
