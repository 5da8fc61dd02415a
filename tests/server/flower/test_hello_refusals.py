"""Words for what a node answers at hello."""

import pytest

from zerosum.client.protocol.flower_messages import OWN_LOG
from zerosum.server.flower.hello_refusals import in_words


@pytest.mark.parametrize(
    ("kind", "cure"),
    [("train", "has no @app.train()"), ("query", "name one that it has")],
)
def test_an_app_without_the_function_is_told_so(kind, cure):
    assert cure in in_words(f"No {kind} function registered with name 'default'")


def test_a_loop_that_trains_is_sent_to_a_strategy_and_not_to_another_query():
    said = in_words("No query function registered with name 'default'")
    assert "a loop that trains is no query" in said
    assert "PrivateStrategy(FedAvg(), clip=1.0, noise_multiplier=2.0, delta=1e-3)" in said
    assert "is no query" not in in_words("No train function registered with name 'default'")


def test_the_control_an_app_without_the_mod_needs_that():
    raised = "<class 'X'>:<'\nException KeyError occurred. Message: 'arrays''>"
    said = in_words(raised)
    assert "lacks the line `from zerosum.client import private_mod; app = ClientApp(mods=" in said
    assert said.endswith("(Flower: KeyError 'arrays')")
    assert "PrivateClientApp names no module that is there" in in_words(OWN_LOG)
