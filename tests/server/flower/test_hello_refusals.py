"""Words for what a node answers at hello."""

import pytest

from zerosum.server.flower.hello_refusals import in_words


@pytest.mark.parametrize("kind", ["train", "query"])
def test_an_app_without_the_function_is_told_so(kind):
    said = in_words(f"No {kind} function registered with name 'default'")
    assert f"needs a function @app.{kind}()" in said


def test_the_control_an_app_without_the_mod_needs_that():
    assert "needs zerosum.client.flower.private_mod" in in_words("KeyError: 'arrays'")
