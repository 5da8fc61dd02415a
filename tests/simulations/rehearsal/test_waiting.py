"""A run is waited for by looks at files, and Flower is asked seldom."""

from pathlib import Path

import pytest

from zerosum.simulations.rehearsal import waiting
from zerosum.simulations.rehearsal.waiting import wait_for_end


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.005)


def test_flower_is_asked_once_the_sign_is_written(tmp_path: Path) -> None:
    asked: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 5:
            (tmp_path / "sign").touch()

    def status() -> str:
        asked.append(len(looks))
        return "finished:completed"

    looks: list[int] = []
    assert wait_for_end(status, 30, sign=tmp_path / "sign", look=look) == "finished:completed"
    assert len(asked) == 1
    assert asked[0] >= 5


def test_without_a_sign_flower_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "ASK_SECONDS", 0.02)
    answers = iter(["starting", "running", "finished:failed"])
    assert wait_for_end(lambda: next(answers), 30) == "finished:failed"


def test_a_run_that_takes_longer_is_a_timeout() -> None:
    with pytest.raises(TimeoutError, match=r"did not end in 0\.02 s"):
        wait_for_end(lambda: "running", 0.02)


def test_what_the_question_or_a_look_raises_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "ASK_SECONDS", 0.0)

    def fail() -> str:
        raise OSError("flwr is gone")

    with pytest.raises(OSError, match="flwr is gone"):
        wait_for_end(fail, 30)
    with pytest.raises(OSError, match="flwr is gone"):
        wait_for_end(lambda: "running", 30, look=fail)  # type: ignore[arg-type]
