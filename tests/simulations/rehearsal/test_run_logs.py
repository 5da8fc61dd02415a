"""Reasons of a failure, read in the logs that Flower's programs leave."""

from zerosum.simulations.rehearsal.run_logs import (
    DECLINED,
    first_failures,
    last_error,
    log_lines,
    server_error,
)

SERVERAPP = """\x1b[92mINFO \x1b[0m:      Start `flwr-serverapp` process
\x1b[91mERROR \x1b[0m:     ServerApp raised an exception
Traceback (most recent call last):
  File "flwr/run_serverapp.py", line 221, in run_serverapp
    context = run_(
              ^^^^^
  File "own/server_app.py", line 20, in main
    raise ConfigError('no model file: weights.bin')
zerosum.server.config.ConfigError: no model file: weights.bin
\x1b[91mERROR \x1b[0m:     Exit Code: 201

An unhandled exception occurred in the ServerApp.
"""

CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in f
    raise ValueError(
        "b"
ValueError: b: c.d.e
"""

NODE = """INFO: well
\x1b[93mERROR\x1b[0m client 0: its answer to round 1 failed
Traceback (most recent call last):
  File "own/client_app.py", line 19, in train
    open('/nonexistent')
FileNotFoundError: [Errno 2] No such file: '/nonexistent'
WARNING client 0 declined to advertise: the policy's max_clip
WARNING client 0 declined to advertise: the policy's max_clip
"""


def test_the_last_error_is_the_outer_one_without_its_module():
    assert last_error(SERVERAPP) == "ConfigError: no model file: weights.bin"
    assert last_error(CHAINED) == "ValueError: b: c.d.e"
    assert last_error("Traceback (most recent call last):\n  File\nKeyboardInterrupt\n") == (
        "KeyboardInterrupt"
    )


def test_without_a_traceback_there_is_no_error():
    assert last_error("INFO: all is well\nValueError: said by the app\n") is None
    assert last_error("Traceback (most recent call last):\n  File") is None


def test_the_servers_error_is_that_of_its_log(tmp_path):
    assert server_error(tmp_path) is None
    (tmp_path / "serverapp.log").write_text(SERVERAPP)
    assert server_error(tmp_path) == "ConfigError: no model file: weights.bin"


def test_nodes_failures_come_with_their_errors_and_each_once(tmp_path):
    for index, text in enumerate((NODE, NODE.replace("client 0", "client 1"), "INFO: well\n")):
        (tmp_path / f"supernode{index}.log").write_text(text)
    failed = "its answer to round 1 failed: FileNotFoundError: [Errno 2] No such file"
    found = first_failures(tmp_path)
    assert [failed in line for line in found] == [True, False, True, False]
    assert "declined to advertise" in found[1]
    by_node = log_lines(tmp_path, DECLINED)
    assert [len(lines) for lines in by_node] == [2, 2, 0]
