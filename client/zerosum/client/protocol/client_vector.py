"""Compute the vector that one client adds to a sum: its answer to a request, in its envelope.

The vector is computed after the client has admitted the request, and in one of two places: in this
process when it is collected, or at a simulation's engine among many others. Either is a
:class:`Future` to the stage that sends it.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from zerosum.client.privacy.local_dp_noise import train_on_noise
from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.noise_source import Entropy, RoundingCoins
from zerosum.client.protocol.protection import Protection, UnusableUpdateError
from zerosum.client.protocol.training_outcomes import ANSWER_FAILED, Notes, holds_anything
from zerosum.client.request import ModelRequest, Request, about_model
from zerosum.client.task import ClientInfo
from zerosum.client.task_errors import FAILURES
from zerosum.secagg import Session
from zerosum.secagg.randomness import Keystream, derive_seed
from zerosum.secagg.vectors.vector_sum import VectorSum

log = logging.getLogger("zerosum.client")


@dataclass(frozen=True)
class Work:
    """Request, and the session that its answers are for.

    Attributes
    ----------
    request : Request
        What is asked.
    session : Session
        Whose sum the answers enter.
    """

    request: Request
    session: Session

    @cached_property
    def protection(self) -> Protection:
        """Return the protection of answers.

        Raises
        ------
        Declined
            If request and session disagree.
        """
        return protection_for(self.request, self.session)


class Future(Protocol):
    """Client vector that is being computed, in this process or another."""

    def result(self) -> np.ndarray:
        """Wait for the vector.

        Returns
        -------
        numpy.ndarray
            int64 or int32, shape (protection.length,), before it is reduced to the ring.

        Raises
        ------
        Declined
            If it was computed elsewhere and failed. What fails in this process is raised itself.
        """
        ...


Compute = Callable[[Work, ClientInfo], Future]
"""Begins to compute a client's vector. It is called when the request is admitted and priced."""


class OnCollection:
    """Future that computes in this process when its result is asked for.

    Parameters
    ----------
    vector : callable
        Computes the vector. Called at each :meth:`result`, of which there is one a contribution.
    """

    def __init__(self, vector: Callable[[], np.ndarray]) -> None:
        self._vector = vector

    def result(self) -> np.ndarray:
        """Compute the vector."""
        return self._vector()


def protection_for(request: Request, session: Session) -> Protection:
    """Build the protection that the request asks for and the session was opened for.

    Noise, rounding and lengths are agreed before the first stage, under signatures. A request names
    them again, and can change none of them.

    Parameters
    ----------
    request : Request
    session : Session
        As it was admitted.

    Returns
    -------
    Protection
        Of one answer.

    Raises
    ------
    Declined
        If the two disagree.
    """
    question = request.question
    protection = Protection.build(
        question.privacy,
        request.encoding,
        cohort=len(session.cohort),
        dimension=request.dimension,
        rotation_seed=derive_seed(question.seed, "rotation", session.round, session.attempt),
    )
    if question.noise_draw != session.noise_draw:
        raise Declined(
            f"the request's noise_draw = {question.noise_draw!r} is not the session's "
            f"{str(session.noise_draw)!r}"
        )
    if protection.bounds != session.bounds:
        raise Declined(
            "the request's privacy or encoding is not the session's, or the server's version "
            "counts cut coordinates otherwise than this client's: update the older one"
        )
    if (protection.ring_bits, protection.length) != (session.ring_bits, session.vector_length):
        raise Declined("the session's ring or length does not fit the request")
    return protection


def client_of(request: Request, index: int, node_config: Mapping[str, Any]) -> ClientInfo:
    """Return the description of a client that its task is given.

    Parameters
    ----------
    request : Request
        Says how many clients there are, and the experiment's seed.
    index : int
        Of the client in the roster.
    node_config : mapping
        Of its node.

    Returns
    -------
    ClientInfo
        For the task.
    """
    question = request.question
    return ClientInfo(
        index=index, count=question.population, seed=question.seed, node_config=node_config
    )


def protected(
    work: Work,
    index: int,
    entropy: Entropy,
    answer: Callable[[], np.ndarray],
    notes: Notes | None = None,
) -> np.ndarray:
    """Compute a client's answer and put it into its envelope: clipped, noised, rounded.

    Parameters
    ----------
    work : Work
        What is asked, how answers are protected, and for which session.
    index : int
        The client's index in the roster.
    entropy : Entropy
        Rounding and noise.
    answer : callable
        Computes the float answer. Under privacy a failure is a zero, with the noise.
    notes : Notes, optional
        Where a simulation notes failures; a deployment notes them nowhere but in its own log.

    Returns
    -------
    numpy.ndarray
        int64 or int32, shape (protection.length,).

    Raises
    ------
    UnusableUpdateError
        If the answer holds NaN or infinity, and nothing may stand for it: without privacy.
    """
    alone = VectorSum(work.protection.length)
    notes = Notes() if notes is None else notes
    add_protected(work, index, entropy, answer, notes, alone, RoundingCoins(entropy))
    return alone.integers()


def _noise_inside(request: ModelRequest, noise: Keystream) -> np.ndarray:
    """Return the noise of all steps: zero alone would tell the server what a dropout does."""
    question = request.question
    return train_on_noise(
        request.model, question.training, question.privacy, noise, question.population
    )


def add_protected(
    work: Work,
    index: int,
    entropy: Entropy,
    answer: Callable[[], np.ndarray],
    notes: Notes,
    total: VectorSum,
    coins: RoundingCoins,
) -> None:
    """Add to a sum what :func:`protected` returns.

    Parameters
    ----------
    work, index, entropy, answer, notes
        As for :func:`protected`.
    total : VectorSum
        Of length ``protection.length``.
    coins : RoundingCoins
        Of this entropy.

    Raises
    ------
    UnusableUpdateError
        As :func:`protected` does; nothing is added then.
    """
    request, protection, session = work.request, work.protection, work.session
    question, key = request.question, (session.round, session.attempt, index)
    noise = None
    if question.privacy.private and question.noise_draw == "per_client":
        noise = entropy.keystream("noise", *key)
    try:
        update = answer()
        if protection.noise_inside:
            protection.check_usable(update)
    except Declined:
        raise  # before any record was looked at
    except FAILURES as error:
        notes.fail(error)
        what = "its evaluation in round" if question.kind == "evaluate" else ANSWER_FAILED
        log.exception("client %d: %s %d failed", index, what, question.round)
        if not question.privacy.private:
            raise
        if not protection.noise_inside:
            total.add(protection.zero(noise))
            return
        update = _noise_inside(about_model(request), entropy.keystream("noise", *key))
    else:
        # By examples the trainer knows: noise inside an answer is not zero, whatever it learnt.
        if not (request.trains and question.privacy.by_example):
            notes.learnt = holds_anything(update, weighted=request.weighted)
    whose = f"client {index}, round {question.round}"
    try:
        protection.add_protected(
            update, total, rounding=coins.of(*key), noise=noise, whose=whose, unusable=notes.spoil
        )
    except UnusableUpdateError as error:
        notes.spoil(error)
        raise
