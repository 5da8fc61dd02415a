"""Words for what a node answers at hello."""

import pytest

from zerosum.server.flower.hello_refusals import in_words


@pytest.mark.parametrize(
    ("kind", "cure"),
    [("train", "has no @app.train()"), ("query", "name one that it has")],
)
def test_an_app_without_the_function_is_told_so(kind, cure):
    assert cure in in_words(f"No {kind} function registered with name 'default'")


def test_the_control_an_app_without_the_mod_needs_that():
    assert "needs zerosum.client.flower.private_mod" in in_words("KeyError: 'arrays'")
