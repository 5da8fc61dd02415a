"""A request has one text: what a reader takes is what it would write, byte for byte."""

import json
import math
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, ValidationError

from zerosum.client.flower.app_request import TASK, AppQuestion, AppRequest, enveloped
from zerosum.client.protocol import flower_messages
from zerosum.client.request import ModelQuestion, ModelRequest, model_payload
from zerosum.client.spec import (
    ClientPolicy,
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PrivacySpec,
    Spec,
    TrainSpec,
)
from zerosum.client.spec.app_query_policy import AppQueryPolicy
from zerosum.client.spec.query_policy import QueryPolicy
from zerosum.secagg.session import request_digest
from zerosum.server.spec import Experiment


def question(**changes):
    values: dict[str, Any] = {
        "kind": "evaluate",
        "round": 1,
        "seed": 0,
        "population": 3,
        "task": TASK,
        "data": DataSpec(),
        "model": ModelSpec(),
        "training": TrainSpec(lr=0.1),
        "privacy": PrivacySpec(model="none"),
        "encoding": EncodingSpec(),
        "noise_draw": "per_client",
        "max_loss": 2.5,
    }
    return ModelQuestion(**(values | changes))


def app_request():
    return AppRequest.of(
        question(),
        RecordDict(),
        message_type="evaluate",
        run_config={},
        weight_key="n",
        metrics={"loss": 2.5},
    )


def read_request(header):
    return ModelRequest.from_bytes(header, b"")


def read_app_request(header):
    return AppRequest.read(
        enveloped(flower_messages.pack({"request": header}), "train.contribute", RecordDict())
    )


READERS = {
    "of a task": (
        lambda: ModelRequest(question(), model_payload(np.zeros(0, np.float32))).header,
        read_request,
    ),
    "of an app": (lambda: app_request().header, read_app_request),
}

TWINS = {
    "NaN": ('"max_loss":2.5', '"max_loss":NaN'),
    "infinity": ('"max_loss":2.5', '"max_loss":Infinity'),
    "minus infinity": ('"max_loss":2.5', '"max_loss":-Infinity'),
    "null": ('"max_loss":2.5', '"max_loss":null'),
    "a number beyond floats": ('"max_loss":2.5', '"max_loss":1e999'),
    "a number below floats": ('"max_loss":2.5', '"max_loss":1e-999'),
    "minus zero": ('"max_loss":2.5', '"max_loss":-0.0'),
    "text for a number": ('"max_loss":2.5', '"max_loss":"2.5"'),
    "an exponent": ('"max_loss":2.5', '"max_loss":25e-1'),
    "one more digit": ('"max_loss":2.5', '"max_loss":2.50'),
    "digits that no float keeps": ('"max_loss":2.5', '"max_loss":2.50000000000000000001'),
    "an integer for a float": ('"momentum":0.0', '"momentum":0'),
    "a float for an integer": ('"round":1', '"round":1.0'),
    "a truth for an integer": ('"round":1', '"round":true'),
    "an integer for a truth": ('"top_up":true', '"top_up":1'),
    "NaN for none": ('"noise_multiplier":null', '"noise_multiplier":NaN'),
    "a space": ('"round":1', '"round": 1'),
    "a line end": ('"round":1', '\n"round":1'),
    "a key twice": ('"round":1', '"round":2,"round":1'),
    "a key twice, the same": ('"round":1', '"round":1,"round":1'),
    "another order": ('"round":1,"seed":0', '"seed":0,"round":1'),
    "an escaped letter": ('"mlp"', '"ml\\u0070"'),
    "an escaped key": ('"round"', '"roun\\u0064"'),
    "an unknown key": ('"round":1', '"round":1,"more":1'),
    "a key left out": ('"bias":true,', ""),
    "a word of the files": ('"batch_size":10', '"batch_size":"all"'),
    "a number of 5000 digits": ('"seed":0', '"seed":' + 5000 * "9"),
    "half a letter": ('"mlp"', '"\\ud800"'),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("twin", TWINS)
def test_no_text_but_the_readers_own_is_a_request(reader, twin):
    make, read = READERS[reader]
    header, (own, other) = make(), TWINS[twin]
    read(header)
    assert own.encode() in header
    with pytest.raises(ValueError, match="unreadable request"):
        read(header.replace(own.encode(), other.encode(), 1))
    for around in (b" " + header, header + b"\n", b"\xef\xbb\xbf" + header, header + b"{}"):
        with pytest.raises(ValueError, match="unreadable request"):
            read(around)


def test_the_control_has_one_digest_for_three_questions():
    """What pydantic writes by itself for NaN and for infinity is null."""

    class Lax(ModelQuestion):
        model_config = ConfigDict(allow_inf_nan=True, ser_json_inf_nan="null")
        max_loss: float

    header = question().canonical()
    texts = [header.replace(b'"max_loss":2.5', b'"max_loss":' + v) for v in (b"NaN", b"Infinity")]
    read = [Lax.model_validate_json(text) for text in texts]
    assert [math.isnan(each.max_loss) for each in read] == [True, False]
    digests = {request_digest(each.model_dump_json().encode(), b"") for each in read}
    assert len(digests) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_written_by_nobody(value):
    with pytest.raises(ValueError, match="finite"):
        question(max_loss=value)
    forced = question().model_copy(update={"max_loss": value})
    with pytest.raises(ValueError, match="no number that JSON has"):
        forced.canonical()


def spec_classes(kind=Spec):
    return {kind}.union(*map(spec_classes, kind.__subclasses__()))


UNLIMITED = [
    (ClientPolicy, "max_epsilon"),
    (QueryPolicy, "max_epsilon_per_query"),
    (AppQueryPolicy, "max_epsilon_per_query"),
]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_key_of_any_section_takes_a_number_that_is_not_finite(value):
    found = {kind for kind in spec_classes() if kind.__module__.startswith("zerosum.")}
    found = {kind for kind in found if ".attacks." not in kind.__module__}  # controls among them
    assert {Experiment, ModelQuestion, AppQuestion, PrivacySpec} <= found
    for kind in found:
        for name, field in kind.model_fields.items():
            key = field.alias or name
            if value == math.inf and (kind, name) in UNLIMITED:
                continue  # of a node alone, and in no request: "no budget" has to be written out
            with pytest.raises(ValidationError) as caught:
                kind(**{key: value})
            refused = {error["loc"][0] for error in caught.value.errors() if error["loc"]}
            assert key in refused, f"{kind.__name__}.{name} takes {value}"


def test_minus_zero_is_another_question_than_zero():
    header = question().canonical()
    other = header.replace(b'"momentum":0.0', b'"momentum":-0.0')
    asked, twin = ModelRequest.from_bytes(header, b""), ModelRequest.from_bytes(other, b"")
    assert asked.question == twin.question, "Python takes them for equal"
    assert asked.digest != twin.digest


FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=1e-300)


@given(FINITE, st.integers(-(2**70), 2**70), st.text())
def test_what_is_written_is_read(number, seed, task):
    try:
        header = question(max_loss=number, seed=seed, task=task).canonical()
    except UnicodeError:
        return  # half a letter, which no JSON has
    read = ModelRequest.from_bytes(header, b"").question
    assert (read.max_loss, read.seed, read.task) == (number, seed, task)
    assert read.canonical() == header
    assert json.loads(header)["max_loss"] == number


def test_a_refusal_says_where_the_text_departs():
    header = question().canonical()
    with pytest.raises(ValueError, match=r"not canonical: from byte 27 on b' 1,"):
        ModelQuestion.from_canonical(header.replace(b'"round":1', b'"round": 1'))


def test_what_becomes_of_running_statistics_is_part_of_what_masks_are_bound_to():
    """A node that was asked for statistics and one that was not mask with nobody."""
    model = np.zeros(4, dtype=np.float32)
    asked = [
        ModelRequest(question(training=TrainSpec(lr=0.1, batchnorm=value)), model_payload(model))
        for value in ("refuse", "average")
    ]
    assert asked[0].digest != asked[1].digest
    assert b'"batchnorm":"average"' in asked[1].header


def test_a_request_in_the_usual_precision_has_the_bytes_of_before_there_was_another():
    """Nodes that know no such key answer it, and refuse what they would train otherwise."""
    usual, half = (
        ModelRequest(
            question(training=TrainSpec(lr=0.1, precision=value)),
            model_payload(np.zeros(4, np.float32)),
        )
        for value in ("float32", "bf16")
    )
    before = "2d94b14e05ed6039e455ec114b0d5ab57cce909c04a3643033b27d930514be33"
    assert usual.digest.hex() == before
    assert b"precision" not in usual.header
    assert read_request(usual.header).question.training.precision == "float32"
    assert half.digest != usual.digest
    assert read_request(half.header).question.training.precision == "bf16"
    spelt = half.header.replace(b'"bf16"', b'"float32"')
    with pytest.raises(ValueError, match="not canonical"):
        read_request(spelt)


NEW_KEYS: dict[str, dict[str, Any]] = {
    "optimizer": {"optimizer": "Adam"},
    "options": {"optimizer": "Adam", "options": {"betas": [0.9, 0.99]}},
    "micro_batch": {"micro_batch": 5},
    "normalise": {"normalise": "steps", "reference_steps": 50},
}


@pytest.mark.parametrize("name", NEW_KEYS)
def test_a_request_without_other_training_has_the_bytes_of_before_there_was_any(name):
    """Nodes that know no such key answer it, and refuse what they would train otherwise."""
    model = model_payload(np.zeros(4, np.float32))
    usual = ModelRequest(question(training=TrainSpec(lr=0.1)), model)
    other = ModelRequest(question(training=TrainSpec(lr=0.1, **NEW_KEYS[name])), model)
    before = "2d94b14e05ed6039e455ec114b0d5ab57cce909c04a3643033b27d930514be33"
    assert usual.digest.hex() == before
    assert f'"{name}":'.encode() not in usual.header
    assert f'"{name}":'.encode() in other.header
    assert other.digest != usual.digest
    assert read_request(other.header).question == other.question


def test_a_request_has_the_rate_in_force_and_no_schedule():
    """Nodes that know no schedules answer it, and none has to be trusted to follow one."""
    spec = TrainSpec(lr=0.2, schedule="cosine", warmup_rounds=2)
    asked = question(training=spec.at(1, 9))
    assert asked.canonical() == question(training=TrainSpec(lr=0.1)).canonical()
    for scheduled in (spec, TrainSpec(warmup_rounds=2)):
        with pytest.raises(ValueError, match="the learning rate in force, and no schedule"):
            question(training=scheduled)
    header = asked.canonical()
    with pytest.raises(ValueError, match="not canonical"):
        read_request(header.replace(b',"batchnorm"', b',"schedule":"constant","batchnorm"'))


@pytest.mark.parametrize("name", ["optimizer", "micro_batch", "normalise"])
def test_a_node_trains_single_examples_by_sgd_alone(name):
    privacy = PrivacySpec(model="none", clip=None, unit="example", examples=9, lot=3)
    usual = question(kind="train", privacy=privacy)
    assert read_request(usual.canonical()).question == usual, "the control: by SGD"
    with pytest.raises(ValueError, match=rf"{name} = .* is not for single examples"):
        question(kind="train", privacy=privacy, training=TrainSpec(**NEW_KEYS[name]))


def test_gradients_of_single_examples_are_not_asked_for_in_bf16():
    privacy = PrivacySpec(model="none", clip=None, unit="example", examples=9, lot=3)
    usual = question(kind="train", privacy=privacy)
    assert read_request(usual.canonical()).question == usual, "the control: in float64, as ever"
    with pytest.raises(ValueError, match="single examples are not computed in bf16"):
        question(kind="train", privacy=privacy, training=TrainSpec(precision="bf16"))


@pytest.mark.parametrize(
    "privacy",
    [
        PrivacySpec(),
        PrivacySpec(model="local"),
        PrivacySpec(model="central"),
        PrivacySpec(model="none", clip=None, unit="example", examples=9, lot=3),
    ],
    ids=["distributed", "local", "central", "examples"],
)
def test_a_node_averages_no_running_statistics_under_privacy(privacy):
    given = question(kind="train", privacy=privacy)
    assert read_request(given.canonical()).question == given, "the control: without statistics"
    asked = given.canonical().replace(b'"batchnorm":"refuse"', b'"batchnorm":"average"')
    assert asked != given.canonical()
    with pytest.raises(ValueError, match="running statistics are averaged without privacy alone"):
        read_request(asked)
