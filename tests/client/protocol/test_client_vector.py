"""A request changes nothing of the protection that its session was opened for."""

import pytest
from proposed_sessions import N, asked, session

from zerosum.client.protocol import client_vector
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.protection import Protection
from zerosum.client.request import ModelRequest
from zerosum.secagg.randomness import derive_seed


def test_a_request_that_leaves_the_noise_to_others_than_its_session_says_is_declined():
    """Noise that a server adds is missing where it is not trusted with the vectors."""
    private = {"model": "distributed", "noise_multiplier": 1.0, "clip": 0.5}
    request = asked(N, **private)
    built = Protection.build(
        request.question.privacy, request.question.encoding, cohort=N, dimension=5,
        rotation_seed=derive_seed(0, "rotation", 1, 0),
    )  # fmt: skip
    fitting = {"bounds": built.bounds, "ring_bits": built.ring_bits, "vector_length": built.length}
    masked = session(**fitting)
    assert client_vector.protection_for(request, masked).private
    question = request.question.model_copy(update={"noise_draw": "summed"})
    with pytest.raises(Declined, match="noise_draw = 'summed' is not the session's 'per_client'"):
        client_vector.protection_for(ModelRequest(question, request.payload), masked)
