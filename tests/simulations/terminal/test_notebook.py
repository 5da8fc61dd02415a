"""Progress in a notebook is one line that changes; elsewhere there is none."""

import re
import sys
from types import SimpleNamespace

import pytest

from zerosum.server.runs.records import RoundRecord
from zerosum.simulations.terminal import notebook
from zerosum.simulations.terminal.notebook import LiveLine, in_notebook, rounds_shown


@pytest.fixture
def shown(monkeypatch):
    """Texts that a notebook shows: of each display, what is in its place."""
    texts = []

    def display(data, *, raw, display_id):
        assert raw
        assert display_id
        texts.append(data["text/plain"])
        place = len(texts) - 1
        return SimpleNamespace(
            update=lambda data, raw: texts.__setitem__(place, data["text/plain"])
        )

    ipython = SimpleNamespace(
        get_ipython=lambda: SimpleNamespace(kernel=object()),
        display=SimpleNamespace(display=display),
    )
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setattr(notebook, "PAUSE_SECONDS", 0.0)
    return texts


def play(rounds):
    with rounds_shown(rounds, lambda record: record.round == 2) as on_round:
        return [
            on_round(RoundRecord(round=number, status="completed", cohort=4, survivors=4))
            for number in range(1, rounds + 1)
        ]


def test_all_rounds_have_one_line_and_the_callback_its_answer(shown):
    assert play(200) == [False, True] + [False] * 198
    assert shown == ["round 200/200  dropouts 0/4"]


def test_the_time_left_is_shown_until_the_end(shown):
    with rounds_shown(100, lambda record: None) as on_round:
        on_round(RoundRecord(round=1, status="completed", cohort=4, survivors=4))
        assert re.fullmatch(r"round 1/100  dropouts 0/4  \d+ s left", shown[-1])


def test_updates_wait_for_each_other_and_the_last_text_stays(shown, monkeypatch):
    monkeypatch.setattr(notebook, "PAUSE_SECONDS", 3600.0)
    line = LiveLine()
    for number in range(5):
        line.show(f"{number}")
    assert shown == ["0"]
    line.flush()
    assert shown == ["4"]


def test_elsewhere_nothing_is_shown(monkeypatch, capsys):
    on_round = print
    for ipython in (None, SimpleNamespace(get_ipython=lambda: None)):
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        assert not in_notebook()
        with rounds_shown(3, on_round) as same:
            assert same is on_round
    LiveLine().show("text")
    assert capsys.readouterr() == ("", "")


def test_a_worker_of_a_notebook_is_none(shown, monkeypatch):
    assert in_notebook()
    monkeypatch.setattr(notebook.multiprocessing, "parent_process", object)
    assert not in_notebook()
