"""The cost of one contribution to a client, against every observer of its budget."""

from fractions import Fraction

import numpy as np
import pytest

from zerosum.client.protocol import own_budget
from zerosum.client.protocol.protection import Protection
from zerosum.client.request import ModelQuestion, ModelRequest, model_payload
from zerosum.client.spec import (
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PrivacySpec,
    TrainSpec,
)


def protection(cohort, fraction, **privacy):
    spec = PrivacySpec(clip=1.0, noise_multiplier=2.0, honest_fraction=fraction, **privacy)
    return Protection.build(
        spec, EncodingSpec(), cohort=cohort, dimension=5, rotation_seed=bytes(32)
    )


def request(**privacy):
    question = ModelQuestion(
        kind="train",
        round=1,
        seed=0,
        population=10,
        task="digits",
        data=DataSpec(),
        model=ModelSpec(),
        training=TrainSpec(),
        privacy=PrivacySpec(clip=1.0, noise_multiplier=2.0, **privacy),
        encoding=EncodingSpec(),
        noise_draw="per_client",
        max_loss=1.0,
    )
    return ModelRequest(question, model_payload(np.zeros(5, dtype=np.float32)))


@pytest.mark.parametrize(
    ("cohort", "fraction", "top_up", "colluders", "shares"),
    [
        (4, 1.0, True, 0, 3),  # heart: a fellow hospital knows one of four shares
        (4, 1.0, True, 1, 4),  # the colluder is the observer, and its share is not among the four
        (10, 0.8, True, 0, 8),  # f <= 1 - 1/n: the server's figure is the larger one
        (5, 0.9, True, 0, 4),
        (1000, 0.9995, True, 0, 999),
        (10, 0.8, False, 0, 7),  # nothing replaces the fellow's own share
        (10, 0.75, False, 0, 7),  # ceil(7.5) - 1
        (2, 0.5, False, 0, 1),  # both in the sum, or the fellow's share is not
        (10, 0.8, False, 2, 8),
        (1, 1.0, True, 0, 1),  # no fellow
    ],
)
def test_charged_shares_exclude_those_an_observer_drew(cohort, fraction, top_up, colluders, shares):
    found = own_budget.unknown_shares(protection(cohort, fraction, top_up=top_up), colluders)
    assert found == Fraction(shares)


def test_a_fellow_client_in_four_raises_the_cost_by_a_third():
    """Counted at f n = 4 shares, as once, the node's figure is below what its fellow learns."""
    whole = protection(4, 1.0)
    alone, fellow = (own_budget.cost(request(honest_fraction=1.0), whole, c) for c in (1, 0))
    assert alone is not None
    assert fellow is not None
    assert fellow[:50] == pytest.approx(alone[:50] * 4 / 3, rel=0.01)
