"""All that an app can observe of a message changes the masks when it changes.

The app of these tests writes down all that it can see. Messages reach it through Flower's own
bytes, both those of a message in one piece and those of the objects that a SuperLink keeps.
"""

import dataclasses
import enum
import hashlib
import itertools
import json
import math
import struct
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
    UserConfig,
)
from flwr.common.serde import message_from_proto, message_to_proto, recorddict_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata as ProtoMetadata
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import LEAST_TOML

from zerosum.client.flower.app_request import AppQuestion, AppRequest, enveloped, unmarked
from zerosum.client.flower.private_mod import AppEnvironment, PrivateClientApp
from zerosum.client.flower.request_digest import records_digest, shown
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.admission import Declined
from zerosum.client.request import ModelQuestion
from zerosum.client.spec import DataSpec, EncodingSpec, ModelSpec, PrivacySpec, TrainSpec

CONFIG: UserConfig = {"lr": 0.5, "epochs": 2, "warm": True, "name": "x"}
NODE: UserConfig = {"partition-id": 1}
"""Of the node itself, which has a policy: a node without one declines everything."""


@pytest.fixture(scope="module", autouse=True)
def _a_policy_of_the_node(tmp_path_factory):
    file = tmp_path_factory.mktemp("node") / "policy.toml"
    file.write_text(LEAST_TOML)
    NODE["policy"] = str(file)


def array(values, dtype="float32"):
    return Array(np.asarray(values, dtype=dtype))


def base():
    """The records of a strategy: two arrays alike in all but their values, and one of each type."""
    values: dict[str, Any] = {
        "lr": 0.5,
        "n": 1,
        "b": True,
        "s": "x",
        "y": b"x",
        "l": [1.0, 2.0],
        "e": [],
        "z": 0.0,
    }
    arrays = {"gain": array([1, 1]), "centre": array([0, 0]), "steps": array([3], "int64")}
    return RecordDict(
        {
            "arrays": ArrayRecord(arrays),
            "config": ConfigRecord(values),
            "more": ConfigRecord({"k": 1}),
            "metrics": MetricRecord({"a": 1, "b": [0.5], "c": 2.0}),
            "empty": MetricRecord(),
        }
    )


def asked(records, message_type="evaluate", run_config=None):
    question = ModelQuestion(
        kind="evaluate", round=1, seed=0, population=3, task="flower-app", data=DataSpec(),
        model=ModelSpec(), training=TrainSpec(), privacy=PrivacySpec(model="none", clip=None),
        encoding=EncodingSpec(range=1.0), noise_draw="per_client", max_loss=1.0,
    )  # fmt: skip
    return AppRequest.of(
        question,
        records,
        message_type=message_type,
        run_config=CONFIG if run_config is None else run_config,
        weight_key="num-examples",
        metrics={"loss": 2.0},
    )


def metadata(**changes):
    values: dict[str, Any] = {
        "run_id": 7,
        "message_id": "m1",
        "src_node_id": 1,
        "dst_node_id": 5,
        "reply_to_message_id": "r",
        "group_id": "3",
        "created_at": 100.5,
        "ttl": 60.0,
        "message_type": "evaluate",
        "src_task_id": 1,
        "dst_task_id": 2,
    }
    return Metadata(**(values | changes))


def context(**changes):
    values: dict[str, Any] = {
        "run_id": 7,
        "node_id": 5,
        "node_config": NODE,
        "state": RecordDict(),
        "run_config": dict(CONFIG),
    }
    return Context(**(values | changes))


def message_of(metadata, content):
    """Return a message with given metadata, by an overload that Flower keeps to itself."""
    return Message(metadata=metadata, content=content)  # type: ignore[call-overload]


def sent(request, records=None, **changes):
    """Return the message of a contribute stage as a server would send it."""
    fields = {"message": b"m", "request": request.header}
    carried = request.records if records is None else records
    content = enveloped(
        flower_messages.pack(fields), flower_messages.STAGE_TYPES["contribute"], carried
    )
    return message_of(metadata(**changes), content)


def in_one_piece(message):
    data = message_to_proto(message).SerializeToString()
    return message_from_proto(ProtoMessage.FromString(data))


def in_objects(message):
    contents = {key: each.deflate() for key, each in get_all_nested_objects(message).items()}
    return inflate_object_from_contents(message.object_id, contents)


CHANNELS = {"in one piece": in_one_piece, "in objects": in_objects}


def bits(value):
    """A value with its type; a float by its bits, which tell 0.0 from -0.0, and NaNs apart."""
    if isinstance(value, list | tuple):
        return type(value).__name__, tuple(map(bits, value))
    if isinstance(value, float):
        return type(value).__name__, struct.pack(">d", value)
    return type(value).__name__, value


def noted(value):
    """All that an object of Flower's shows: its entries in order, and whatever it carries along."""
    if isinstance(value, Array | Metadata):
        return tuple((key, bits(each)) for key, each in sorted(value.__dict__.items()))
    if isinstance(value, RecordDict | ArrayRecord | ConfigRecord | MetricRecord):
        inside = tuple((key, noted(each)) for key, each in value.items())
        whole = [v for v in value.values() if not isinstance(v, bool | int | float | str | bytes)]
        same = tuple(a is b for a, b in itertools.combinations(whole, 2))
        return type(value).__name__, inside, same, tuple(sorted(value.__dict__))
    return bits(value)


def observed(message, context):
    """Return all that an app can see of its two arguments."""
    seen = [tuple(sorted(message.__dict__)), noted(message.metadata), noted(message.content)]
    seen.append(noted(message.content.array_records))
    for field in sorted(vars(context)):
        value = getattr(context, field)
        config = isinstance(value, dict)
        seen.append((field, tuple((k, bits(v)) for k, v in value.items()) if config else
                     noted(value)))  # fmt: skip
    return repr(seen)


def outcome(message, where=None, environment=AppEnvironment, channel=in_one_piece):
    """Return what the masks are bound to and what the app saw; None where the client declines."""
    seen = []

    def app(message, context):
        seen.append(observed(message, context))
        reply = RecordDict({"m": MetricRecord({"loss": 1.0, "num-examples": 1})})
        return Message(reply, reply_to=message)

    arrived = channel(message)
    here = environment(where or context(), arrived, app)
    try:
        request = here.request(arrived.content)
    except Declined:
        return None
    here.update(request, None, None)
    return request.digest, seen[0]


def check_bound(first, second):
    """Equal masks were given to equal sights alone."""
    if first is not None and second is not None and first[1] != second[1]:
        assert first[0] != second[0], "one digest, and the apps saw different things"


# --- metadata ------------------------------------------------------------------------------------


def other(value):
    if isinstance(value, str):
        return value + "9"
    return value + (1.5 if isinstance(value, float) else 1)


METADATA = [field.name for field in ProtoMetadata.DESCRIPTOR.fields]


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("name", METADATA)
def test_an_entry_of_the_metadata_is_bound_or_blank(name, channel):
    request = asked(base())
    before = outcome(sent(request), channel=CHANNELS[channel])
    assert before is not None
    if name == "message_type":
        for changed in ("evaluate.other", "train"):
            assert outcome(sent(request, message_type=changed), channel=CHANNELS[channel]) is None
        action = asked(base(), message_type="evaluate.other")
        after = outcome(sent(action, message_type="evaluate.other"), channel=CHANNELS[channel])
        assert after is not None
        check_bound(before, after)
        assert after[0] != before[0]
        return
    changed = other(getattr(metadata(), name))
    after = outcome(sent(request, **{name: changed}), channel=CHANNELS[channel])
    assert after == before


def test_metadata_that_was_never_known_is_not_handed_on():
    message = in_one_piece(sent(asked(base())))
    message.metadata.__dict__["_anything_new"] = "1"
    message.__dict__["_anything_new"] = "1"
    message.metadata.delivered_at = "then"
    whole = outcome(sent(asked(base())))
    assert outcome(message, channel=lambda message: message) == whole


def test_an_app_may_reply_and_say_how_long_its_reply_lives(caplog):
    def app(message, context):
        reply = RecordDict({"m": MetricRecord({"loss": 1.0, "num-examples": 1})})
        assert message.metadata.ttl > 0
        return Message(reply, reply_to=message, ttl=60.0)

    message = sent(asked(base()))
    here = AppEnvironment(context(), message, app)
    unused: Any = None
    request = here.request(message.content)
    assert isinstance(request, AppRequest)
    here.update(request, unused, unused)
    assert not caplog.records


# --- the context ---------------------------------------------------------------------------------

OWN = {"node_config", "state"}
"""What a node has from its own operator and its own app: no server's word."""


@pytest.mark.parametrize("name", sorted({f.name for f in dataclasses.fields(Context)} - OWN))
def test_a_field_of_the_context_is_bound_or_blank(name):
    request = asked(base())
    before = outcome(sent(request))
    if name != "run_config":
        assert outcome(sent(request), context(**{name: 99})) == before
        return
    turned = dict(reversed(CONFIG.items()))
    assert outcome(sent(request), context(run_config=turned)) == before
    for changed in (CONFIG | {"epochs": 2.0}, CONFIG | {"warm": 1}, CONFIG | {"more": ""},
                    {k: v for k, v in CONFIG.items() if k != "lr"}):  # fmt: skip
        assert outcome(sent(request), context(run_config=changed)) is None
        told = asked(base(), run_config=changed)
        after = outcome(sent(told), context(run_config=changed))
        assert after is not None
        assert after[0] != before[0]


def test_a_lifespan_function_sees_neither_ids_nor_order_of_the_run_config():
    """A lifespan function of a PrivateClientApp sees the run config in one order, and no ids."""
    seen = []
    app = PrivateClientApp()

    @app.lifespan()
    def lifespan(context):
        seen.append((context.run_id, context.node_id, tuple(context.run_config)))
        yield

    @app.evaluate()
    def evaluate(message, context):
        reply = RecordDict({"m": MetricRecord({"loss": 1.0, "num-examples": 1})})
        return Message(reply, reply_to=message)

    for where in (context(), context(run_id=8, run_config=dict(reversed(CONFIG.items())))):
        arrived = sent(asked(base()))
        here = AppEnvironment(where, arrived, app.within)
        nothing = cast(Any, None)
        here.update(cast(AppRequest, here.request(arrived.content)), nothing, nothing)
    assert seen == [(0, 0, tuple(sorted(CONFIG)))] * 2
    blank = shown(context(), RecordDict())
    assert blank.node_config == NODE


# --- records -------------------------------------------------------------------------------------

NAMES = ["a", "b", "app.a", "app.", "", "zerosum", "zerosum.stage", "zerosum.next", "model", "é"]
NAN = struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0]
FLOATS = [0.0, -0.0, 1.0, math.nan, NAN, math.inf, -math.inf, 5e-324]
INTEGERS = [0, 1, -1, 2**63 - 1, 2**64 - 1, -(2**63)]
SIGNED = [0, 1, -1, 2**63 - 1]  # a list with both signs has no number beyond
TEXTS = ["", "1", "x", "true"]


def lists(*kinds):
    return st.one_of([st.lists(st.sampled_from(kind), max_size=3) for kind in kinds])


SCALARS: dict[type, st.SearchStrategy[Any]] = {
    MetricRecord: st.one_of(st.sampled_from(FLOATS), st.sampled_from(INTEGERS),
                            lists(FLOATS, SIGNED)),
    ConfigRecord: st.one_of(
        st.sampled_from(FLOATS), st.sampled_from(INTEGERS), st.booleans(), st.sampled_from(TEXTS),
        st.sampled_from([t.encode() for t in TEXTS]),
        lists(FLOATS, SIGNED, [True, False], TEXTS, [t.encode() for t in TEXTS]),
    ),
    ArrayRecord: st.builds(
        Array,
        dtype=st.sampled_from(["float32", "int32", "<f4", ">f4", ""]),
        shape=st.sampled_from([(), (1,), (1, 1), (2,), (2, 1), (1, 2)]),
        stype=st.sampled_from(["numpy.ndarray", "raw", ""]),
        data=st.sampled_from([b"", b"\0", b"\0\0"]),
    ),
}  # fmt: skip


def contents(kind):
    return st.dictionaries(st.sampled_from(NAMES), SCALARS[kind], max_size=3).map(kind)


RECORDS = st.dictionaries(
    st.sampled_from(NAMES), st.one_of(*map(contents, SCALARS)), max_size=3
).map(RecordDict)


@st.composite
def altered(draw, records):
    """The records with one thing changed: an order, a name, a kind, or an entry."""
    items = list(records.items())
    if not items or draw(st.booleans()):
        if len(items) > 1 and draw(st.booleans()):
            return RecordDict(dict(draw(st.permutations(items))))
        name, kind = draw(st.sampled_from(NAMES)), draw(st.sampled_from(sorted(SCALARS, key=str)))
        return RecordDict({**records, name: draw(contents(kind))})
    name, record = draw(st.sampled_from(items))
    inside = list(record.items())
    if len(inside) > 1 and draw(st.booleans()):
        changed = dict(draw(st.permutations(inside)))
    elif inside and draw(st.booleans()):
        key = draw(st.sampled_from([key for key, _ in inside]))
        changed = {**record, key: draw(SCALARS[type(record)])}
    else:
        changed = {draw(st.sampled_from(NAMES)): value for _, value in inside}
    return RecordDict({**records, name: type(record)(changed)})


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data(), channel=st.sampled_from(sorted(CHANNELS)))
def test_records_that_differ_in_anything_an_app_sees_differ_in_their_digest(data, channel):
    through = CHANNELS[channel]
    records = data.draw(RECORDS)
    changed = data.draw(st.one_of(altered(records), RECORDS))
    honest, lied = asked(records), asked(changed)
    first = outcome(sent(honest), channel=through)
    assert first is not None
    check_bound(first, outcome(sent(lied), channel=through))
    # And under the request of the others there is nothing but what they have.
    under = outcome(sent(honest, changed), channel=through)
    assert under is None or under == first


def old_digest(records):
    """The control: names sorted before they are hashed."""
    digest = hashlib.sha256()
    for name, record in sorted(records.items()):
        digest.update(repr((name, type(record).__name__)).encode())
        for key, value in sorted(record.items()):
            if isinstance(value, Array):
                value = [value.dtype, list(value.shape), value.stype, value.data.hex()]
            digest.update(json.dumps([key, value], default=repr).encode())
    return digest.digest()


def turned(records, name=None):
    if name is None:
        return RecordDict(dict(reversed(records.items())))
    return RecordDict({**records, name: type(records[name])(dict(reversed(records[name].items())))})


ORDERS = {
    "of records": None,
    "of arrays": "arrays",
    "of settings": "config",
    "of metrics": "metrics",
}


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("order", ORDERS)
def test_an_order_is_bound_that_a_sorted_digest_lets_a_server_choose(order, channel):
    through, changed = CHANNELS[channel], turned(base(), ORDERS[order])
    first, second = (outcome(sent(asked(each)), channel=through) for each in (base(), changed))
    assert first[1] != second[1], "the app sees the order"
    assert first[0] != second[0]
    assert outcome(sent(asked(base()), changed), channel=through) is None
    assert old_digest(changed) == old_digest(base()), "the control has one digest for both"


def test_the_digest_of_a_duplicate_name_is_of_what_the_app_sees():
    """On the wire names are a list: a reader keeps the place of the first and the last value."""
    records = {"a": ConfigRecord({"k": 1}), "b": ConfigRecord({"k": 2}), "c": ConfigRecord()}
    items = list(recorddict_to_proto(RecordDict({"app." + k: v for k, v in records.items()})).items)
    found = []
    for names in itertools.product(items, repeat=3):
        message = message_to_proto(sent(asked(RecordDict()), RecordDict()))
        message.content.items.extend(ProtoRecordDict.Item.FromString(i.SerializeToString())
                                     for i in names)  # fmt: skip
        arrived = message_from_proto(ProtoMessage.FromString(message.SerializeToString()))
        told = asked(unmarked(arrived.content))
        arrived.content[flower_messages.RECORD] = sent(told).content[flower_messages.RECORD]
        found.append(outcome(arrived, channel=lambda message: message))
    for first, second in itertools.combinations(found, 2):
        check_bound(first, second)
        assert (first[0] == second[0]) == (first[1] == second[1])


def test_records_with_names_of_ours_arrive_under_their_own():
    records = RecordDict({name: ConfigRecord({name: i}) for i, name in enumerate(NAMES)})
    read = AppRequest.read(in_one_piece(sent(asked(records))).content)
    assert list(read.records.items()) == list(records.items())


def test_a_record_or_value_of_an_unknown_kind_is_bound_by_no_digest():
    class Other:
        def items(self):
            return []

    records = base()
    records.__dict__["_data"]["odd"] = Other()
    with pytest.raises(ValueError, match="record 'odd' is a Other: no digest binds its content"):
        asked(records)
    records = base()
    records["config"].__dict__["_data"]["odd"] = {"a": 1}
    with pytest.raises(ValueError, match=r"config.odd is a dict: no value of a record"):
        asked(records)


def test_values_are_digested_with_the_type_that_arrives():
    """A server's own kinds of numbers are the client's: its digest is that of what it sends."""

    class Word(str, enum.Enum):  # noqa: UP042, whose str() is another text
        MEAN = "mean"

    values: dict[str, Any] = {"f": np.float64(0.5), "l": [1, True], "w": Word.MEAN}
    records = RecordDict({"config": ConfigRecord(values)})
    assert outcome(sent(asked(records))) is not None
    assert records_digest(asked(records).records) == records_digest(
        RecordDict({"config": ConfigRecord({"f": 0.5, "l": [1, 1], "w": "mean"})})
    )


def test_the_question_names_the_digests_of_what_is_handed_on():
    request = asked(base())
    assert request.question.content == records_digest(base()).hex()
    assert AppQuestion.from_canonical(request.header) == request.question
