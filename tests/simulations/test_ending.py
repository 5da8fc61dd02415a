"""Signals that end a command: what they raise, what is said, and how it exits."""

import os
import signal
import sys
import threading
import time

import pytest
import typer

from zerosum.simulations.ending import Terminated, ended_in_order, interruptible, terminable
from zerosum.simulations.printable import printable, printable_lines


def send(sign):
    os.kill(os.getpid(), sign)
    time.sleep(1)  # until the handler runs


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_says_what_is_left_and_exits_as_shells_expect(sign, code, capsys):
    with pytest.raises(typer.Exit) as ended, interruptible(lambda: "There is [a] file."):
        send(sign)
    assert ended.value.exit_code == code
    assert capsys.readouterr().err == "\nInterrupted. There is [a] file.\n"


def test_nothing_is_said_where_nothing_interrupts(capsys):
    with interruptible(lambda: "never"):
        pass
    assert capsys.readouterr().err == ""


def test_code_that_takes_exits_for_failures_does_not_swallow_the_end():
    def careful():
        try:
            send(signal.SIGTERM)
        except (Exception, SystemExit):
            pytest.fail("it was taken for a failure")

    with pytest.raises(Terminated), terminable():
        careful()


def test_a_context_may_be_ended_without_a_word():
    with pytest.raises(SystemExit) as ended, ended_in_order():
        send(signal.SIGTERM)
    assert ended.value.code == 143


def test_what_a_signal_did_before_it_does_again():
    before = signal.getsignal(signal.SIGTERM)
    with terminable():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_in_another_thread_signals_are_left_as_they_are():
    found = []

    def look():
        with terminable():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]


HOSTILE = "two\nlines,\tone \x1b[31mred\r\x00 \u202e\udce9 ünï ∞"


def test_what_steers_a_terminal_is_seen_and_letters_of_all_languages_stay():
    assert printable(HOSTILE) == r"two lines, one \x1b[31mred \x00 \u202e\udce9 ünï ∞"
    assert printable(HOSTILE).isprintable()
    printable(HOSTILE).encode(sys.getdefaultencoding())


def test_lines_stay_lines_where_they_may():
    first, second, *rest = printable_lines(HOSTILE).split("\n")
    assert (first, second) == ("two", r"lines, one \x1b[31mred")
    assert all(line.isprintable() for line in rest)
