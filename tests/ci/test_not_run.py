"""CI's account of tests that did not run."""

from pathlib import Path

import pytest

import not_run
import ran_tests

ROOT = Path(__file__).parents[2]

COLLECTED = [
    "tests/server/test_a.py::test_one\tslow",
    "tests/server/test_a.py::test_two\t",
    "tests/e2e/test_b.py::test_three\tnetwork,slow",
    "tests/e2e/test_c.py::test_four\tstatistical",
]
RAN = [f"{line.split(chr(9))[0]}\tpassed" for line in COLLECTED]
MUST = ["tests/server/", "mark:statistical"]


def test_a_run_of_all_tests_is_good() -> None:
    lines, good = not_run.account(COLLECTED, RAN, MUST)
    assert good
    assert lines == ["4 tests; 4 ran, 0 skipped, 0 not run"]


def test_a_test_that_may_be_left_out_is_printed_alone() -> None:
    lines, good = not_run.account(COLLECTED, RAN[:2] + RAN[3:], MUST)
    assert good
    assert lines[1:] == ["  not run:    1 of tests/e2e/test_b.py"]


@pytest.mark.parametrize("left_out", [0, 1, 3])
def test_a_test_that_must_run_and_did_not_fails(left_out: int) -> None:
    ran = [line for number, line in enumerate(RAN) if number != left_out]
    lines, good = not_run.account(COLLECTED, ran, MUST)
    assert not good
    assert lines[-1] == f"  MUST RUN, and did not: {COLLECTED[left_out].split(chr(9))[0]}"


def test_a_failure_in_a_stage_that_was_cut_fails() -> None:
    ran = [RAN[0].replace("passed", "failed"), *RAN]
    lines, good = not_run.account(COLLECTED, ran, MUST)
    assert not good
    assert lines[-1] == "  FAILED: tests/server/test_a.py::test_one"


def test_a_torn_line_is_no_test_that_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "collected.txt").write_text("".join(f"{line}\n" for line in COLLECTED))
    (tmp_path / "ran.txt").write_text(f"{RAN[0]}\n{COLLECTED[1].strip()}")
    with pytest.raises(SystemExit, match="1"):
        not_run.main(tmp_path)
    assert "4 tests; 1 ran, 0 skipped, 3 not run" in capsys.readouterr().out


@pytest.mark.parametrize(("when", "outcome"), [("teardown", "failed"), ("???", "failed")])
def test_a_failure_counts_whenever_it_comes(when, outcome, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ZEROSUM_CI_OUT", str(tmp_path))
    report = pytest.TestReport("t.py::t", ("t.py", 0, "t"), {}, outcome, None, when)
    ran_tests.Recorder().pytest_runtest_logreport(report)
    assert (tmp_path / "ran.txt").read_text() == "t.py::t\tfailed\n"


def test_a_skipped_test_is_printed_and_is_no_failure() -> None:
    ran = [*RAN[:3], RAN[3].replace("passed", "skipped")]
    lines, good = not_run.account(COLLECTED, ran, MUST)
    assert good
    assert lines == [
        "4 tests; 3 ran, 1 skipped, 0 not run",
        "  skipped:    1 of tests/e2e/test_c.py",
    ]


def test_a_pattern_that_names_no_test_fails() -> None:
    lines, good = not_run.account(COLLECTED, RAN, [*MUST, "tests/gone/"])
    assert not good
    assert lines[-1] == "  must_run.txt names no test: tests/gone/"


def test_a_gpu_test_is_never_required() -> None:
    gpu = ["tests/server/test_a.py::test_five\tgpu"]
    assert not_run.account(COLLECTED + gpu, RAN, MUST)[1]


def test_all_that_must_run_is_there() -> None:
    prefixes = [line for line in ran_tests.patterns() if not line.startswith("mark:")]
    assert prefixes
    for path, _, test in (prefix.partition("::") for prefix in prefixes):
        assert (ROOT / path).exists(), path
        assert not test or f"def {test}" in (ROOT / path).read_text(encoding="utf-8"), test


def test_of_many_missing_tests_the_first_are_named() -> None:
    many = [f"tests/server/test_a.py::test_{n}\tslow" for n in range(100)]
    lines, good = not_run.account(many, [], ["tests/server/"])
    assert not good
    assert len(lines) == 2 + not_run.MOST_NAMED + 1
    assert lines[-1] == f"  MUST RUN, and did not: {100 - not_run.MOST_NAMED} more"
