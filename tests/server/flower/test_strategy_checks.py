"""The noise of a mean beside the clip, before a strategy is run."""

import logging

from flwr.serverapp.strategy import FedAvg

from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.server.flower.strategy_checks import nodes_asked, tell_noise


def told(caplog, nodes, noise_multiplier=2.0):
    """Return what is said of a small app, three rounds, 625 parameters."""
    caplog.set_level(logging.INFO, "flwr")
    privacy = {"honest_fraction": 0.8}
    strategy = PrivateStrategy(
        FedAvg(), clip=1.0, noise_multiplier=noise_multiplier, privacy=privacy
    )
    caplog.clear()
    tell_noise(strategy._experiment(3), nodes, 625)
    return caplog.records


def test_five_nodes_are_warned_that_the_noise_drowns_the_mean(caplog):
    norm, warned = told(caplog, 5)
    # z clip / sqrt(f) / nodes in each of 625 coordinates.
    assert "norm 11.2, and a clipped mean at most the clip, 1" in norm.getMessage()
    assert warned.levelno == logging.WARNING
    said = warned.getMessage()
    assert "hopeless: if every update" in said
    assert "masks alone" in said
    assert "\n" not in said
    proposed = int(said.partition("try about ")[2].partition(" ")[0])
    assert len(told(caplog, proposed + 1)) == 1
    assert len(told(caplog, proposed - 2)) == 2


def test_a_strategy_that_samples_asks_fewer_nodes_than_there_are():
    assert nodes_asked(FedAvg(), 50) == 50
    assert nodes_asked(FedAvg(fraction_train=0.1), 50) == 5
    assert nodes_asked(FedAvg(fraction_train=0.1, min_train_nodes=8), 50) == 8
    assert nodes_asked(FedAvg(fraction_train=0.0), 50) == 50


def test_the_control_fifty_nodes_are_not_warned(caplog):
    assert [record.levelno for record in told(caplog, 50)] == [logging.INFO]
