"""Shells complete commands, options, and values where they are known."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer
from click.shell_completion import CompletionItem, ShellComplete

from zerosum.server.config import ConfigError, all_keys
from zerosum.simulations.commands.main import app
from zerosum.simulations.config import load_experiment
from zerosum.simulations.terminal import shell_completion
from zerosum.simulations.terminal.shell_completion import (
    PROGRAM,
    SHELLS,
    VARIABLE,
    JoinedWords,
    install,
    script,
)

ROOT = typer.main.get_command(app)


def items(*words: str) -> "list[CompletionItem[str]]":
    """Return completions of the last word."""
    shell = ShellComplete(ROOT, {}, PROGRAM, VARIABLE)
    return shell.get_completions(list(words[:-1]), words[-1])


def values(*words: str) -> list[str]:
    return [item.value for item in items(*words) if item.type == "plain"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ru"], ["run"]),
        (["bench", "en"], ["engine"]),
        (["run", "--dr"], ["--dry-run"]),
        (["run", "mnist-d"], ["mnist-distributed", "mnist-dpsgd"]),
        (["sweep", "fed"], ["fedavg"]),
        (["plan", "cross-s"], ["cross-silo"]),
        (["attack", "--suite", ""], ["quick", "full"]),
        (["attack", "imp"], ["imprint", "imprint-on-one-client"]),
        (["attack", "min-max", "model-i"], ["model-inversion"]),
        (["attack", "--set", "sign"], ["sign-flip."]),
        (["run", "--set", "task=mnist"], ["task=mnist", "task=mnist5k"]),
        (["run", "--set", "engine=s"], ["engine=serial"]),
        (["run", "--set=engine=s"], ["engine=serial"]),
        (["run", "--set", "model.bias="], ["model.bias=true", "model.bias=false"]),
        (["run", "--set", "rounds"], ["rounds=", "rounds=40"]),
        (["sweep", "--set", "server.rule=mean,kr"], ["server.rule=mean,krum"]),
        (["list", "atta"], ["attacks"]),
        (["query", "hist"], ["histogram"]),
        (["query", "count", "--unit", ""], ["client", "record"]),
        (["rehearse", "app", "--server", "s"], ["semi-honest"]),
        (["--show-completion", ""], ["bash", "zsh", "fish"]),
        (["run", "--set", "no.such=x"], []),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else None,
)
def test_a_word_is_completed(words: list[str], expected: list[str]) -> None:
    assert sorted(values(*words)) == sorted(expected)


@pytest.mark.slow
def test_all_keys_are_completed_with_their_sections() -> None:
    bare = [value for value in values("run", "--set", "") if value.endswith("=")]
    assert bare == [f"{key}=" for key in all_keys()]
    assert all(item.help for item in items("run", "--set", "privacy.clip"))


def test_every_known_value_of_a_key_is_one_that_the_configuration_takes() -> None:
    offered = [v for key in all_keys() for v in values("run", "--set", f"{key}=")]
    assert len(offered) > 100
    refused = {setting: _refusal(setting) for setting in offered}
    # A value may need another key beside it, and is never one that the key does not know.
    assert not {each for each, why in refused.items() if "input should be" in why}
    assert "input should be" in _refusal("engine=seril")  # the control


def _refusal(setting: str) -> str:
    try:
        load_experiment("fedavg", [setting])
    except ConfigError as error:
        return str(error)
    return ""


def test_run_folders_are_completed_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for age, name in enumerate(["new", "old"]):
        (tmp_path / "runs" / name).mkdir(parents=True)
        os.utime(tmp_path / "runs" / name, (1000 - age, 1000 - age))
    expected = [str(Path("runs", name)) for name in ("new", "old")]
    for words in (["report"], ["run", "--resume"], ["compare"], ["budget"], ["audit", "--run"]):
        assert values(*words, "") == expected


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["run", "my-own/"], "file"),
        (["new", "app", "--data", "d"], "file"),
        (["query", "my-plan"], "file"),
        (["run", "--out", "r"], "dir"),
        (["report", "elsewhere/"], "dir"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else words,
)
def test_files_and_folders_are_left_to_the_shell(words: list[str], kind: str) -> None:
    assert [(item.type, item.value) for item in items(*words)] == [(kind, words[-1])]


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize(
    ("broken", "printed"),
    [
        (["run", "--set", "engine", "=", "se"], ["serial"]),
        (["run", "--set", "engine", "=", ""], ["auto", "serial", "processes", "ray"]),
        (["run", "--set", "engine", "="], ["auto", "serial", "processes", "ray"]),
        (["run", "--set", "=", "engine", "=", "se"], ["serial"]),
        (["run", "--set", "=", "engi"], ["engine=", "engine=auto"]),
        (["run", "--set", "'engine=se"], ["engine=serial"]),
        (["run", "two words.toml", "--set", "engine", "=", "se"], ["serial"]),
        (["ru"], ["run"]),
        ([""], None),
    ],
    ids=lambda words: " ".join(words or ["everything"]),
)
def test_words_that_bash_breaks_are_joined(
    broken: list[str], printed: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_WORDS", "\n".join(["zerosum", *broken]))
    monkeypatch.setenv("COMP_CWORD", str(len(broken)))
    lines = JoinedWords(ROOT, {}, PROGRAM, VARIABLE).complete().splitlines()
    assert all(line.startswith("plain,") for line in lines)
    words = [line.removeprefix("plain,") for line in lines]
    assert words == (values("") if printed is None else printed)


@pytest.mark.slow
def test_a_shell_is_answered_without_heavy_libraries() -> None:
    code = (
        "import sys; from zerosum.simulations.commands.entry import main\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code\n"
        "heavy = ('torch', 'scipy', 'dp_accounting', 'matplotlib', 'pandas', 'flwr', 'sklearn')\n"
        "print(*[name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    words = {"COMP_WORDS": "zerosum\nattack\ngrad", "COMP_CWORD": "2", VARIABLE: "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | words, capture_output=True, text=True
    )
    assert done.stdout.split() == ["plain,gradient-inversion"]
    assert done.stderr.split() == []


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_installed_once_where_the_shell_reads_it(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    start = tmp_path / f".{shell}rc"
    start.write_text("alias ll=ls")  # without an end of line
    written = install(ROOT, shell)
    assert written[0].read_text() == script(ROOT, shell)
    assert f"{VARIABLE}={shell}_complete" in written[0].read_text()
    if shell == "fish":
        assert written == [tmp_path / ".config/fish/completions/zerosum.fish"]
        return
    assert written[1] == start
    text = start.read_text()
    assert text == f"alias ll=ls\nsource {written[0]}  # completion of zerosum\n"
    assert install(ROOT, shell) == written[:1]
    assert start.read_text() == text


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="its environment is text")
def test_a_word_in_no_encoding_has_no_completion() -> None:
    code = "from zerosum.simulations.commands.entry import main; main()"
    words = {b"COMP_WORDS": b"zerosum\nrun\n\xff", b"COMP_CWORD": b"2"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environb, **words, VARIABLE.encode(): b"bash_complete"},
        capture_output=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (b"", b"", 1)


def test_an_unknown_shell_is_refused() -> None:
    with pytest.raises(click.UsageError, match="bash, zsh, fish"):
        script(ROOT, "tcsh")


def test_a_meaning_with_commas_reaches_fish_whole() -> None:
    assert 'split -m 1 ","' in script(ROOT, "fish")
    assert 'split ","' not in shell_completion.WholeMeanings.source_template
