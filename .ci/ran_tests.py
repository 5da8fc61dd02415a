"""A pytest plugin that writes down which tests there are and which of them ran.

Both are appended to files in ``$ZEROSUM_CI_OUT`` at once, so that a run that is ended by force
has said what it did. ``not_run.py`` compares the two.
"""

import os
from pathlib import Path

import pytest

MUST_RUN = Path(__file__).with_name("must_run.txt")


def required(patterns: list[str], test: str, marks: set[str]) -> bool:
    """Return whether a test has to run: by a prefix of its id, or as ``mark:NAME`` by a mark."""
    return any(
        pattern[5:] in marks if pattern.startswith("mark:") else test.startswith(pattern)
        for pattern in patterns
    )


def patterns() -> list[str]:
    """Read the lines of ``must_run.txt`` that are no comments."""
    lines = (
        line.split("#")[0].strip() for line in MUST_RUN.read_text(encoding="utf-8").splitlines()
    )
    return [line for line in lines if line]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options that split the slow suite."""
    parser.addoption("--must-run", action="store_true", help="only tests named in must_run.txt")
    parser.addoption("--not-must-run", action="store_true", help="only the other tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what another stage runs."""
    if not (config.getoption("must_run") or config.getoption("not_must_run")):
        return
    wanted, known = config.getoption("must_run"), patterns()
    chosen = {
        item: required(known, item.nodeid, {mark.name for mark in item.iter_markers()}) == wanted
        for item in items
    }
    config.hook.pytest_deselected(items=[item for item in items if not chosen[item]])
    items[:] = [item for item in items if chosen[item]]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write down all tests there are, with their marks: of ``--collect-only`` alone."""
    if not session.config.getoption("collectonly"):
        return
    lines = (
        f"{item.nodeid}\t{','.join(sorted({mark.name for mark in item.iter_markers()}))}\n"
        for item in session.items
    )
    (_out() / "collected.txt").write_text("".join(lines), encoding="utf-8")


class Recorder:
    """Appends each test that ran to ``ran.txt``, with its outcome."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of a test's call, or of the set-up that failed or skipped it.

        A failure counts whenever it comes: in the tear-down, or where a worker of pytest-xdist
        died of the test ("???").
        """
        if report.when == "call" or report.failed or (report.when == "setup" and report.skipped):
            with (_out() / "ran.txt").open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\t{report.outcome}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Note outcomes in the process that has all of them: no worker of pytest-xdist."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def _out() -> Path:
    return Path(os.environ["ZEROSUM_CI_OUT"])
