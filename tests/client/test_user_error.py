"""A notebook shows a user's error with the user's own frames, not with this package's."""

import traceback

import pytest

from zerosum.client.queries.errors import QueryError
from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import TaskError, resolve_task
from zerosum.client.user_error import UserError
from zerosum.server.config import ConfigError, parse_experiment
from zerosum.server.runs.run_outcome import NothingLearntError
from zerosum.simulations.engine.one_at_a_time import BusyError, alone


def shown(error):
    return "\n".join(error._render_traceback_())


def test_a_wrong_key_is_shown_with_the_users_line_alone():
    with pytest.raises(ConfigError) as caught:
        parse_experiment({"rounds": 0})
    text = shown(caught.value)
    assert text.count('File "') == 1
    assert 'parse_experiment({"rounds": 0})' in text
    assert text.endswith("rounds = 0: input should be greater than 0 (see docs/configuration.md)")
    whole = "".join(traceback.format_exception(caught.value))
    assert whole.count('File "') > 1  # the control: Python shows where inside it was raised


def test_an_error_in_a_users_task_is_shown_where_it_happened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_by_user.py").write_text("def make():\n    return 1 / 0\n")
    with pytest.raises(TaskError) as caught:
        resolve_task("broken_by_user:make", DataSpec(), ModelSpec(), 0)
    text = shown(caught.value)
    assert f'{tmp_path / "broken_by_user.py"}", line 2, in make' in text
    assert text.index("ZeroDivisionError") < text.index("TaskError")
    assert "client/task.py" not in text
    assert "contextlib" not in text


def test_an_error_that_causes_itself_ends():
    error = UserError("first")
    error.__cause__ = UserError("second")
    error.__cause__.__cause__ = error
    assert shown(error).count("UserError") == 2


@pytest.mark.parametrize("kind", [ConfigError, TaskError, QueryError, BusyError])
def test_errors_keep_the_types_that_users_catch(kind):
    assert issubclass(kind, UserError)
    assert issubclass(kind, RuntimeError if kind is BusyError else ValueError)
    assert str(kind("one line")) == "one line"


def test_the_others_do_too():
    assert NothingLearntError("why", None).result is None
    with alone("run"), pytest.raises(BusyError, match="run goes on around this call"), alone("run"):
        pass
