"""What terminal, report and public report say of a run that its noise left nothing to learn."""

from pathlib import Path

import pytest

from zerosum.server.runs.results import Result
from zerosum.server.runs.run_folder import RunFolder
from zerosum.simulations import api
from zerosum.simulations.commands.summary import after_run
from zerosum.simulations.report.hopeless_run import hopeless_caution
from zerosum.simulations.report.page import write_report
from zerosum.simulations.report.public import write_public_report
from zerosum.simulations.report.record import read_run
from zerosum.simulations.report.unprotected import public_count, unprotected_in_words


def run(folder: Path, *settings: str) -> Result:
    given = ["rounds=2", "secagg.protocol=ideal", "sampling.kind=everyone", "sampling.cohort=unset"]
    return api.run("digits", overrides=[*given, *settings], out=folder, report=False)


@pytest.fixture(scope="module")
def hopeless(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("hopeless") / "run"
    return run(folder, "data.clients=10", "privacy.noise_multiplier=8")


def test_report_terminal_and_public_report_say_it(hopeless: Result, tmp_path: Path) -> None:
    words = "Hopeless: if every update of all 2 rounds pulled the same way"
    page = write_report(hopeless.folder).read_text(encoding="utf-8")
    public = write_public_report(hopeless.folder, tmp_path / "out").read_text(encoding="utf-8")
    assert words in page
    assert words in public
    assert any(said.startswith(words) for said in after_run(hopeless))


def test_so_many_clients_as_it_names_are_not_hopeless_and_one_less_is(
    hopeless: Result, tmp_path: Path
) -> None:
    [caution] = hopeless_caution(read_run(RunFolder.open(hopeless.folder)))
    needed = int(caution.split("At this noise ")[1].split(" clients")[0].replace(",", ""))
    read = read_run(RunFolder.open(hopeless.folder))
    for clients, said in ((needed, 0), (needed - 1, 1)):
        summary = read.summary | {"population": clients}
        changed = type(read)(**{**vars(read), "summary": summary})
        assert len(hopeless_caution(changed)) == said


@pytest.mark.slow
def test_a_run_with_little_noise_is_not_called_so(tmp_path: Path) -> None:
    done = run(tmp_path / "run", "data.clients=10", "privacy.noise_multiplier=0.1")
    assert not any("Hopeless" in said for said in after_run(done))


@pytest.mark.parametrize(
    ("data", "task", "tested", "count"),
    [
        ({"public_records": 37}, "table", None, 37),
        (None, "heart", 184, 184),
        ({"line": "x"}, "my.task:Task", 12, 12),
        (None, "digits", 359, None),
        (None, "heart", None, None),
    ],
)
def test_only_records_of_one_s_own_are_counted(data, task, tested, count) -> None:
    assert public_count(data, task, tested) == count


def test_the_sentence_says_that_nothing_protects_them() -> None:
    assert unprotected_in_words(1).startswith("1 record is public (data.test_fraction)")
    assert "nothing protects them" in unprotected_in_words(184)
    assert unprotected_in_words(None) == unprotected_in_words(0) == ""
