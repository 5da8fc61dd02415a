"""Print which tests did not run, and fail where one of them had to, or where one failed.

Usage: ``not_run.py FOLDER``, with the files that ``ran_tests.py`` wrote.
"""

import sys
from collections import Counter
from pathlib import Path

from ran_tests import patterns, required

OTHER_MACHINES = ("gpu",)
"""Marks of tests that need what this machine may lack: printed, never required."""

MOST_NAMED = 40
"""Tests whose ids are printed where many are missing: all of them are in a file."""


def account(collected: list[str], ran: list[str], must: list[str]) -> tuple[list[str], bool]:
    """Compare the tests there are with those that ran.

    Parameters
    ----------
    collected : list of str
        Lines ``test id, tab, marks with commas``.
    ran : list of str
        Lines ``test id, tab, outcome``; a test that ran twice has two.
    must : list of str
        Patterns of tests that have to run.

    Returns
    -------
    lines : list of str
        What to print.
    good : bool
        Whether all that had to run did, nothing failed, and every pattern names a test.
    """
    marks = {test: set(m.split(",")) for test, m in (line.split("\t") for line in collected)}
    outcomes: dict[str, str] = {}
    for test, outcome in (line.split("\t") for line in ran):
        outcomes[test] = outcome if outcomes.get(test) != "failed" else "failed"
    skipped = [test for test in marks if outcomes.get(test) == "skipped"]
    missed = [test for test in marks if test not in outcomes]
    lines = [f"{len(marks)} tests; {len(outcomes) - len(skipped)} ran, {len(skipped)} skipped, "
             f"{len(missed)} not run"]  # fmt: skip
    for title, tests in (("skipped", skipped), ("not run", missed)):
        by_file = Counter(test.split("::")[0] for test in tests)
        lines += [f"  {title}: {count:4} of {name}" for name, count in sorted(by_file.items())]
    lacking = [
        test
        for test in missed
        if required(must, test, marks[test]) and not marks[test].intersection(OTHER_MACHINES)
    ]
    lines += [f"  MUST RUN, and did not: {test}" for test in lacking[:MOST_NAMED]]
    if len(lacking) > MOST_NAMED:
        lines.append(f"  MUST RUN, and did not: {len(lacking) - MOST_NAMED} more")
    # A stage that is cut ends as cut, whatever failed in it before.
    failed = [test for test, outcome in outcomes.items() if outcome == "failed"]
    lines += [f"  FAILED: {test}" for test in failed]
    unknown = [p for p in must if not any(required([p], test, m) for test, m in marks.items())]
    lines += [f"  must_run.txt names no test: {pattern}" for pattern in unknown]
    return lines, not (lacking or failed or unknown)


def main(folder: Path) -> None:
    """Print the account, write the ids that are missing beside it, and exit with 1 if it is bad."""
    collected, ran = (_lines(folder / name) for name in ("collected.txt", "ran.txt"))
    lines, good = account(collected, ran, patterns())
    print("\n".join(lines))
    done = {line.split("\t")[0] for line in ran}
    missing = [test for test in (line.split("\t")[0] for line in collected) if test not in done]
    (folder / "not_run.txt").write_text("".join(f"{test}\n" for test in missing), encoding="utf-8")
    print(f"all ids: {folder / 'not_run.txt'}")
    sys.exit(0 if good else 1)


def _lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line for line in lines if line.count("\t") == 1]  # the last may be torn: not run


if __name__ == "__main__":
    main(Path(sys.argv[1]))
