"""No description of an object, no error and no line of a log shows a key, a seed or a share."""

import dataclasses
import gc
import hashlib
import importlib
import logging
import pkgutil
import re
import traceback
import types
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

import zerosum.client
import zerosum.secagg
from zerosum.client.protocol.node_keys import Credentials
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.protocol.open_sessions import find_party, keep_party
from zerosum.client.training.examples import TensorExamples
from zerosum.client.training.stacked_records import TrainedClient
from zerosum.secagg import (
    ClientParty,
    IdealClientParty,
    IdealServerParty,
    IdentityKey,
    Protocol,
    Roster,
    SecAggError,
    ServerParty,
    Session,
    SharedCache,
    request_digest,
)
from zerosum.secagg.crypto.cache import SessionCache
from zerosum.secagg.crypto.keys import KeyPair, PartySecrets
from zerosum.secagg.crypto.prg import open_streams
from zerosum.secagg.messages.all_messages import Contribution, UnmaskShares
from zerosum.secagg.messages.exported_state import ClientState
from zerosum.secagg.randomness import Keystream

COHORT = (2, 3, 5, 7)
REQUEST = request_digest(b"what is asked")


class Draws:
    """A source whose bytes can be recognised as they are, too."""

    def __init__(self, name):
        self.name = name

    def take(self, count):
        return b"SECRET" + hashlib.sha256(self.name.encode()).digest()[: count - 6]


def identity(index):
    return IdentityKey(Draws(f"identity {index}").take(32))


ROSTER = Roster(1, {index: identity(index).public for index in COHORT})


def forms(secret):
    """How bytes could stand in a text: as Python writes them, in hex, as numbers."""
    yield repr(secret)[2:-1]
    yield secret.hex()
    yield secret.hex().upper()
    yield ", ".join(map(str, secret))
    yield " ".join(map(str, secret))


def shown_in(text, secrets):
    """Return those secrets of which a text shows eight bytes or more, from either end."""
    return [s for s in secrets for part in (s[:8], s[-8:]) for each in forms(part) if each in text]


def secrets_of(party):
    """What a party holds that nobody else may know: bytes."""
    found = [party._seed] if party._seed else []
    own = party._secrets
    if own is not None:
        found += [own.self_seed, own.polynomials, own.neighbours]
        found += [own.channel.private, own.mask.private]
    if party._cache is not None:
        found += list(party._cache.agreed.values())
    if party._answer is not None:
        found.append(party._answer.shares)
    found.append(party._identity.to_bytes())
    return found


def reachable(start):
    """Return every object of this library, or of Flower's, that the collector reaches."""
    seen: dict[int, Any] = {}
    left = list(start)
    while left:
        item = left.pop()
        if id(item) in seen or isinstance(item, type | types.ModuleType | types.FunctionType):
            continue  # by a function's globals all else of the process would be reached
        seen[id(item)] = item
        left += gc.get_referents(item)
        if hasattr(type(item), "__slots__"):
            left += [getattr(item, s) for s in type(item).__slots__ if hasattr(item, s)]
    return [each for each in seen.values() if type(each).__module__.startswith(("zerosum", "flwr"))]


def descriptions(item):
    yield from (repr(item), str(item), f"{item}", f"{item!r}", f"{[item]}")


def play(stop, ideal=False):
    """Return parties that have come to a stage, what they were sent, and what was kept of each."""
    session = Session(
        run_id=b"run", round=1, attempt=0, roster_version=1, roster_digest=ROSTER.digest,
        cohort=COHORT, threshold=2, min_survivors=2, ring_bits=64, vector_length=4, degree=3,
        protocol=Protocol.IDEAL if ideal else Protocol.PAIRWISE,
    )  # fmt: skip
    cache = SharedCache()
    kind, serving = (IdealClientParty, IdealServerParty) if ideal else (ClientParty, ServerParty)
    parties = {
        i: kind(session, i, identity=identity(i), roster=ROSTER, source=Draws(f"seed {i}"),
                cache=cache)
        for i in COHORT
    }  # fmt: skip
    server = serving(session, roster=ROSTER, cache=cache)
    messages: Any = dict.fromkeys(COHORT)
    steps: list[Any] = []
    while server.stage != stop:
        stage = server.stage
        for index, party in parties.items():
            given = () if stage == "advertise" else (messages[index],)
            vector = (np.full(4, 7_777_777_777_777_777 + index),) if stage == "contribute" else ()
            step = getattr(party, stage)(*given, *vector)
            steps.append(step)
            server.receive(index, step.send)
        messages = server.close(REQUEST if stage == "share" else None)
    return parties, messages, steps, server, cache


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["share", "contribute", "confirm", "unmask"])
def test_nothing_that_a_session_holds_shows_a_secret(stage):
    parties, messages, steps, _server, cache = play(stage)
    secrets = [secret for party in parties.values() for secret in secrets_of(party)]
    assert len(set(secrets)) >= 7 * len(COHORT)
    assert shown_in(repr(parties[2]._seed), secrets), "the control: raw bytes do show"
    state = RecordDict()
    keep_party(state, parties[2])
    exported = [party.export() for party in parties.values()]
    context = Context(run_id=1, node_id=2, node_config={}, state=state, run_config={})
    held = [parties, steps, messages, cache, exported, context, list(map(identity, COHORT))]
    held += [ClientState.from_bytes(data) for data in exported]
    held += [Credentials(identity(2), ROSTER), SeededEntropy(987654321987654321)]
    objects = reachable(held)
    kinds = {type(each) for each in objects}
    assert {ClientParty, PartySecrets, KeyPair, SessionCache, ClientState, IdentityKey, RecordDict,
            Credentials, SeededEntropy} <= kinds  # fmt: skip
    for each in objects:
        for text in descriptions(each):
            assert not shown_in(text, secrets), type(each)
            assert "987654321987654321" not in text
    kept = find_party(state, parties[2].session.digest, 60.0)
    assert kept is not None
    assert ClientParty.restore(kept, identity=identity(2), roster=ROSTER).stage == stage
    assert format(kept) == repr(exported[0]) == f"<{len(kept)} secret bytes>"


def test_vectors_shares_and_streams_are_not_written_out():
    parties, messages, steps, server, _cache = play("done")
    objects = reachable([parties, messages, steps, server])
    shares = [each.send for each in steps if isinstance(each.send, UnmaskShares)]
    assert len(shares) == len(COHORT)
    for each in objects:
        for text in descriptions(each):
            assert not shown_in(text, [share.shares for share in shares]), type(each)
    parties, _, steps, _, _ = play("confirm", ideal=True)
    plain = [each.send for each in steps if isinstance(each.send, Contribution)]
    assert len(plain) == len(COHORT)
    for each in reachable([steps, parties]):
        assert not any("77777777777777" in text for text in descriptions(each)), type(each)
    seed = Draws("stream").take(32)
    opened = [stream for version in (2, 3) for stream in open_streams([seed], version)]
    for stream in (*(fill for fill, _ in opened), Keystream(seed)):
        assert not any(shown_in(text, [seed[:16], seed[16:]]) for text in descriptions(stream))
    records = TensorExamples(torch.full((2, 1), 77.125), torch.tensor([0, 1]), torch.float32,
                             torch.device("cpu"))  # fmt: skip
    for made in (records, TrainedClient(np.full(2, 77.125), 2, together=False)):
        assert not any("77.125" in text for text in descriptions(made))


def test_no_error_shows_a_secret(caplog):
    parties, messages, _steps, _server, _cache = play("unmask")
    secrets = [secret for party in parties.values() for secret in secrets_of(party)]
    party, exported = parties[2], parties[2].export()
    seed = Draws("short").take(31)
    secrets += [seed, bytes(exported)[100:200]]
    other = IdentityKey.generate()
    wrong = [
        lambda: IdentityKey(seed),
        lambda: Keystream(seed),
        lambda: party.contribute(messages[2], np.zeros(4, np.int64)),
        lambda: party.unmask(b"garbage"),
        lambda: party.unmask(messages[2].to_bytes()[:-1] + b"x"),
        lambda: ClientParty.restore(exported[:-1], identity=identity(2), roster=ROSTER),
        lambda: ClientParty.restore(exported, identity=other, roster=ROSTER),
        lambda: ClientParty.restore(exported),
        lambda: ClientState.from_bytes(exported[:60] + b"?" + exported[61:]),
        lambda: IdealClientParty.restore(exported),
        lambda: KeyPair(seed, party._hkdf),
        lambda: ClientParty(party.session, 2, identity=other, roster=ROSTER),
    ]
    for call in wrong:
        with pytest.raises((SecAggError, ValueError)) as caught:
            call()
        logging.getLogger("zerosum.client").error("failed", exc_info=caught.value)
        text = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        assert not shown_in(text, secrets)
    assert len(caplog.records) == len(wrong)
    assert not shown_in(caplog.text, secrets)


# --- every class ---------------------------------------------------------------------------------

PUBLIC = {
    "the server and every client of the cohort know it": {
        "Session", "Message", "Advert", "Adverts", "Shares", "ContributeRequest", "Contribution",
        "Confirmation", "ConfirmRequest", "UnmaskRequest", "UnmaskShares", "Presence", "Roll",
        "CohortQuestion", "Roster", "SignedRoster", "Directory", "Neighbourhood",
        "Encoding", "IntegerEncoding", "Request", "ModelRequest", "QueryRequest", "AppRequest",
        "SumRequest", "AppSumRequest", "SumResult",
    },
    "decisions: hashes that a node keeps in the open": {"Step", "ClientState"},
    "which holders are told to be wrong, no share": {"Located"},
    "of a model, not of records": {"FlatModel", "Project"},
    "of one step of training, gone when it is over, and printed by nothing": {
        "Capture", "MeasuredLayer",
    },
}  # fmt: skip
"""Classes whose bytes and arrays may be written out, and why."""


def dataclasses_of(package):
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        for kind in vars(module).values():
            own = isinstance(kind, type) and kind.__module__ == found.name
            if own and dataclasses.is_dataclass(kind):
                yield kind


def bulk(field):
    """Return whether a field holds bytes, arrays or tensors, by its type."""
    said = field.type if isinstance(field.type, str) else str(field.type)
    plain = re.sub(r"Callable\[\[[^\]]*\], [^\]]*\]", "", said)
    return any(word in plain for word in ("bytes", "ndarray", "NDArray", "torch.Tensor"))


def test_every_class_that_shows_bytes_or_arrays_was_judged():
    """A class with a new field of bytes hides it, or is named here with a reason."""
    showing = {
        kind.__name__
        for package in (zerosum.secagg, zerosum.client)
        for kind in dataclasses_of(package)
        if kind.__dataclass_params__.repr
        and any(field.repr and bulk(field) for field in dataclasses.fields(kind))
    }
    judged = set().union(*PUBLIC.values())
    assert showing - judged - {"BoundLayer"} == set()
    assert judged - showing == set(), "named, and no longer there"
    assert "PartySecrets" not in showing


def test_the_control_is_found():
    @dataclasses.dataclass
    class Careless:
        seed: bytes

    secret = Draws("seed").take(32)
    assert shown_in(repr(Careless(secret)), [secret])
    assert shown_in(f"the seed {secret.hex()}", [secret])
    assert bulk(dataclasses.fields(Careless)[0])
