"""What the server says of clients that refused a round."""

from types import SimpleNamespace
from typing import Any

import pytest

from zerosum.secagg.stages import Stage
from zerosum.server.flower.app_words import refused_in_words


@pytest.mark.parametrize("private", [True, False])
def test_refusals_name_policy_run_config_and_import_and_a_reply_where_it_can_be(private):
    privacy = SimpleNamespace(private=private)
    training = SimpleNamespace(weighting="uniform")
    question = SimpleNamespace(
        kind="train", privacy=privacy, training=training, metrics={}, weight_key="num-examples"
    )
    request: Any = SimpleNamespace(question=question)
    traffic: Any = SimpleNamespace(refused={Stage.CONTRIBUTE: 3})
    said = refused_in_words(traffic, request)
    assert said.startswith("3 refused; most often the node's policy (noise, clip, model, epsilon)")
    assert "the run config, an app that cannot be imported" in said
    # Under noise such a reply is no refusal.
    assert ("a reply to train needs one ArrayRecord" in said) != private
    traffic.refused = {}
    assert refused_in_words(traffic, request) == ""
