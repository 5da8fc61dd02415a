"""Signals that end a command: what they raise, what is said, and how it exits."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from io import StringIO

import pytest
import typer
from rich.console import Console

from zerosum.server.config import ConfigError
from zerosum.simulations.terminal import signals
from zerosum.simulations.terminal.printable import (
    printable,
    printable_lines,
    shell_command,
    whole_words,
)
from zerosum.simulations.terminal.signals import (
    Terminated,
    interruptible,
    terminable,
    typed,
    undisturbed,
)


def send(sign):
    os.kill(os.getpid(), sign)
    time.sleep(1)  # until the handler runs


SIGNS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.mark.parametrize(("sign", "code"), SIGNS)
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


@pytest.mark.slow
def test_a_hangup_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            send(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
@pytest.mark.parametrize("sign", [sign for sign, _ in SIGNS])
def test_nothing_disturbs_an_end_that_is_put_in_order(sign):
    before = signal.getsignal(sign)
    with terminable(), undisturbed():
        send(sign)
    assert signal.getsignal(sign) == before


def failing(error):
    with (
        pytest.raises(typer.Exit) as ended,
        interruptible(lambda: "Go on with:\ngo", (LookupError,)),
    ):
        raise error
    return ended.value.exit_code


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(28, "No space left on device", "a/metrics.jsonl"),
            "No space left on device: 'a/m",
        ),
        (MemoryError(), "error: MemoryError"),
        (LookupError("told\nwhole"), "error: told\nwhole"),
    ],
    ids=["disk", "memory", "ours"],
)
def test_a_failure_costs_a_line_and_the_command_that_goes_on_is_last(error, said, capsys):
    assert failing(error) == 1
    lines = capsys.readouterr().err
    assert said in lines
    assert "Traceback" not in lines
    assert lines.endswith("Go on with:\ngo\n")


def test_a_failure_that_nobody_expected_has_its_traceback_before_the_command(capsys):
    assert failing(ZeroDivisionError("a bug")) == 1
    lines = capsys.readouterr().err
    assert lines.startswith("Traceback")
    assert lines.endswith("error: ZeroDivisionError: a bug\nGo on with:\ngo\n")


def test_a_users_mistake_is_told_elsewhere(capsys):
    with pytest.raises(ConfigError), interruptible(lambda: "never", ()):
        raise ConfigError("rounds = 0")
    assert capsys.readouterr().err == ""


def test_where_nothing_can_be_read_any_more_that_is_said(capsys):
    def gone():
        raise OSError(5, "Input/output error")

    with pytest.raises(typer.Exit), interruptible(gone):
        raise KeyboardInterrupt
    assert "What is kept cannot be read: OSError: [Errno 5]" in capsys.readouterr().err


@pytest.mark.slow
def test_a_closed_pipe_ends_a_long_command_with_what_is_left():
    code = (
        "from rich.console import Console\n"
        "from zerosum.simulations.terminal.signals import interruptible\n"
        "with interruptible(lambda: 'Go on with:\\ngo', ()):\n"
        "    Console().print('round 2')\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-c", code], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert ended.returncode != 0
    assert "\nNobody reads the output any more. Go on with:\ngo\n" in ended.stderr


def test_code_that_exits_by_itself_is_left_alone(capsys):
    with pytest.raises(SystemExit) as ended, interruptible(lambda: "never", ()):
        raise SystemExit(3)
    assert ended.value.code == 3
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("given", [["--out", "a b"], ["--out=a b"], []])
def test_a_command_is_told_as_it_was_typed_but_for_a_folder_that_is_taken(given, monkeypatch):
    words = ["run", "mine.toml", *given, "--set", "name=a b"]
    monkeypatch.setattr(sys, "argv", ["/bin/zerosum", *words])
    assert shlex.split(typed()) == ["zerosum", *words]
    assert typed(without="--out") == "zerosum run mine.toml --set 'name=a b'"


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


@pytest.mark.parametrize(
    "name",
    ["a b", "it's", "two\nlines", "\x1b[31mred", "no\xa0break", "\u2028", "\udce9", "a\\'\n"],
)
def test_a_printed_command_is_one_line_that_a_shell_reads_back(name):
    said = printable_lines(shell_command(["printf", "%s", name, name]))
    assert "\n" not in said
    assert said.isprintable()
    shown = subprocess.run(["bash", "-c", said], capture_output=True, check=True).stdout
    assert os.fsdecode(shown) == name * 2


def test_a_terminal_breaks_no_path_and_no_command():
    said = "Interrupted. 8 of 60 cells are over, and the rounds of the others are kept in runs/s2."
    command = "zerosum sweep --resume " + "a-long-folder/" * 8
    text = f"\n{said}\nContinue with:\n{command}"
    terminal = Console(file=StringIO(), width=80, force_terminal=True)
    lines = whole_words(text, terminal).split("\n")
    assert [len(line) <= 80 for line in lines[:-1]] == [True] * 4
    assert lines == ["", said.removesuffix(" runs/s2."), "runs/s2.", "Continue with:", command]
    assert whole_words(text, Console(file=StringIO(), width=80)) == text


def test_an_interrupted_command_says_so_in_whole_words(monkeypatch):
    shown = StringIO()
    monkeypatch.setattr(
        signals, "Console", lambda **kept: Console(file=shown, width=80, force_terminal=True)
    )
    path = "runs/" + "x" * 30
    with pytest.raises(typer.Exit), interruptible(lambda: f"{'word ' * 10}{path}.", ()):
        raise KeyboardInterrupt
    assert f"\n{path}.\n" in shown.getvalue()
