"""The server's unmasking with clients who lie about their shares, beside an honest one.

One session is played to its last stage. From there it ends again and again, in turns, each time in
a process of its own that begins where the session stood: once with what the clients sent, then with
wrong shares in place of those of the liars. What is timed is all that the server does with them.
"""

import dataclasses
import multiprocessing
import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from zerosum.secagg import SecAggError, ServerParty, Session
from zerosum.secagg.crypto.shamir import LIMB_BITS, LIMBS
from zerosum.secagg.messages.all_messages import UnmaskShares, decode
from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.bench.process import BenchError, Values
from zerosum.simulations.bench.session import Play
from zerosum.simulations.bench.setting import BenchedSession

Answers = Mapping[int, bytes]


def run(*, liars: int, repeats: int, **settings: Any) -> Values:
    """Play one session and unmask it with and without liars.

    Parameters
    ----------
    liars : int
        Survivors who give a wrong share of every dealer; drawn at random.
    repeats : int
        Turns of each; the medians are told.
    **settings
        Those of :class:`~zerosum.simulations.bench.setting.BenchedSession`.

    Returns
    -------
    dict
        CPU seconds of unmasking with and without liars, and who was named.

    Raises
    ------
    BenchError
        If there is no such session, or there are not so many survivors.
    """
    setting = BenchedSession(**settings)
    try:
        session, identities, roster = setting.open()
        gone = setting.gone()
        survivors = sorted(set(session.cohort) - gone)
        if liars > len(survivors):
            raise BenchError(f"--liars {liars}: there are {len(survivors)} survivors")
        colluders = setting.colluders()
        party = ServerParty(session, roster=roster, threads=setting.threads, colluders=colluders)
        # What clients compute is not measured here: they share it.
        play = Play(session, setting.bits, setting.seed, True, setting.threads, gone)
        answers = play.until_unmask(party, identities, roster)
    except SecAggError as error:
        raise BenchError(f"{type(error).__name__}: {error}") from error
    rng = numpy_generator(setting.seed, "bench liars")
    who = sorted(rng.choice(survivors, liars, replace=False).tolist())
    wrong = {**answers, **{i: _spoiled(answers[i], session, rng) for i in who}}
    expected = session.ring.encode(play.expected)
    turns = [
        [_apart(party, messages, expected) for messages in (answers, wrong)] for _ in range(repeats)
    ]
    honest, lied = ([turn[side] for turn in turns] for side in (0, 1))
    honest_s, lied_s = _median(honest), _median(lied)
    return {
        **setting.described(session),
        "corruption": setting.corruption,
        "colluders": colluders,
        "survivors": len(survivors),
        "liars": liars,
        "repeats": repeats,
        "honest_unmask_cpu_s": honest_s,
        "liars_unmask_cpu_s": lied_s,
        "ratio": lied_s / honest_s,
        "decodings": lied[0]["decodings"],
        "liars_named": lied[0]["named"] == who,
        "named": len(lied[0]["named"]),
        "wrong_shares": lied[0]["wrong_shares"],
        "failure": lied[0]["failure"],
        "sum_correct": all(turn["correct"] for turn in honest + lied if not turn["failure"]),
    }


def _median(turns: Sequence[Values]) -> float:
    median: float = statistics.median(turn["cpu_s"] for turn in turns)
    return median


def _spoiled(answer: bytes, session: Session, rng: np.random.Generator) -> bytes:
    """Return an answer with other shares of the same dealers."""
    shares = decode(answer, UnmaskShares, session)
    count = len(shares.shares) // 4
    table = rng.integers(0, 1 << LIMB_BITS, count - count % LIMBS).astype("<u4")
    return dataclasses.replace(shares, shares=table.tobytes()).to_bytes()


def _apart(party: ServerParty, answers: Answers, expected: np.ndarray) -> Values:
    """End a session in a copy of this process, so that it can be ended again."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)
    process = fork.Process(target=partial(_end, there, party, answers, expected))
    process.start()
    there.close()
    try:
        figures: Values = here.recv()
    except EOFError:
        raise BenchError("a process that unmasks ended before its time") from None
    finally:
        process.join()
        here.close()
    return figures


def _end(there: Connection, party: ServerParty, answers: Answers, expected: np.ndarray) -> None:
    started, failure = time.process_time(), ""
    for index, answer in answers.items():
        party.receive(index, answer)
    try:
        party.close()
    except SecAggError as error:
        failure = f"{error}"
    spent = time.process_time() - started
    figures: Values = {"cpu_s": spent, "failure": failure, "correct": False, "named": []}
    figures |= {"decodings": 0, "wrong_shares": 0}
    if not failure:
        result = party.result
        figures |= {
            "correct": bool(np.array_equal(result.total, expected)),
            "named": list(result.liars),
            "decodings": result.decodings,
            "wrong_shares": len(result.wrong_shares),
        }
    there.send(figures)
    there.close()
