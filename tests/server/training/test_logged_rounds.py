"""The line that a ServerApp logs of each round."""

import pytest

from zerosum.server.flower.server_app import _measured
from zerosum.server.runs.records import RoundRecord


@pytest.mark.parametrize("metric", ["test_accuracy", "test_loss", "federated_accuracy"])
def test_a_figure_of_the_untrained_model_is_logged_as_such(metric):
    assert _measured(RoundRecord(round=1, untrained=True, metrics={metric: 0.5})).endswith(
        "0.5 of the untrained model"
    )
    assert _measured(RoundRecord(round=1, metrics={metric: 0.5})).endswith("0.5")


def test_a_round_without_figures_was_not_tested_whatever_was_trained():
    assert _measured(RoundRecord(round=1, untrained=True)) == "not tested"
