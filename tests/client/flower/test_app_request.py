"""Requests to an app are bound to every byte that it is handed."""

import io
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from zerosum.client.flower.app_request import (
    AppRequest,
    enveloped,
    stage_type,
    unmarked,
)
from zerosum.client.flower.arrays import ArrayLayout, UnusableArraysError
from zerosum.client.flower.request_digest import rebuilt, records_digest
from zerosum.client.protocol import flower_messages
from zerosum.client.request import ModelQuestion
from zerosum.client.spec import (
    DataSpec,
    EncodingSpec,
    ModelSpec,
    PrivacySpec,
    TrainSpec,
)


def arrays(**changed):
    values = {
        "b": np.arange(6, dtype=np.float32).reshape(2, 3),
        "a": np.float64(2.5),
        "steps": np.array([3, 4], dtype=np.int64),
        "half": np.array([0.5], dtype=np.float16),
    }
    return ArrayRecord({k: Array(np.asarray(v)) for k, v in (values | changed).items()})


def records(**changed):
    config: dict[str, Any] = {
        "lr": 0.1,
        "epochs": 2,
        "name": "x",
        "raw": b"x",
        "flags": [True, False],
    }
    return RecordDict({"arrays": arrays(), "config": ConfigRecord(config | changed)})


def asked(content, kind="train", message_type="train", run_config=None, **training):
    question = ModelQuestion(
        kind=kind,
        round=1,
        seed=0,
        population=3,
        task="flower-app",
        data=DataSpec(),
        model=ModelSpec(),
        training=TrainSpec(**training),
        privacy=PrivacySpec(model="none"),
        encoding=EncodingSpec(),
        noise_draw="per_client",
        max_loss=1.0,
    )
    return AppRequest.of(
        question,
        content,
        message_type=message_type,
        run_config=run_config or {},
        weight_key="num-examples",
        metrics={"loss": 2.0},
    )


def sent(request):
    fields = {"message": b"m", "request": request.header}
    return enveloped(flower_messages.pack(fields), "train.contribute", request.records)


OTHER = {
    "a float that is an integer": records(epochs=2.0),
    "a truth that is a number": records(flags=[1, 0]),
    "text that is bytes": records(raw="x"),
    "another value": records(lr=0.1000001),
    "one more key": records(more=1),
    "another array": RecordDict({**records(), "arrays": arrays(a=np.float64(2.6))}),
    "another dtype": RecordDict({**records(), "arrays": arrays(a=np.float32(2.5))}),
    "another shape": RecordDict(
        {**records(), "arrays": arrays(b=np.arange(6, dtype=np.float32).reshape(3, 2))}
    ),
    "another name": RecordDict({"weights": records()["arrays"], "config": records()["config"]}),
    "another kind of record": RecordDict(
        {"arrays": arrays(), "config": records()["config"], "m": MetricRecord({"lr": 0.1})}
    ),
}


@pytest.mark.parametrize("what", OTHER)
def test_nothing_an_app_is_handed_can_change_and_keep_its_digest(what):
    assert records_digest(OTHER[what]) != records_digest(records())
    message = sent(asked(records()))
    changed = enveloped(flower_messages.pack({}), "train.contribute", OTHER[what])
    changed[flower_messages.RECORD] = message[flower_messages.RECORD]
    with pytest.raises(ValueError, match="not those that the request speaks of"):
        AppRequest.read(changed)


def test_a_request_is_read_as_it_was_written():
    request = asked(records())
    message = sent(request)
    assert stage_type(message) == "train.contribute"
    assert AppRequest.read(message).digest == request.digest
    assert set(unmarked(message)) == {"arrays", "config"}
    other = asked(records(lr=0.2))
    assert other.digest != request.digest


def test_the_function_that_answers_and_its_run_config_are_part_of_what_is_asked():
    """What differs there masks with nobody."""
    different = [
        asked(records()),
        asked(records(), message_type="train.other"),
        asked(records(), run_config={"lr": 1}),
        asked(records(), run_config={"lr": 1.0}),
        asked(records(), run_config={"lr": True}),
    ]
    assert len({request.digest for request in different}) == len(different)


def test_the_dimension_counts_all_summed_entries():
    assert asked(records()).dimension == 8
    assert asked(records(), weighting="examples").dimension == 9
    assert asked(records(), kind="evaluate").dimension == 2


def test_a_request_without_one_model_is_refused():
    for content in (RecordDict(), RecordDict({"a": arrays(), "b": arrays()})):
        with pytest.raises(ValueError, match="exactly one ArrayRecord"):
            AppRequest.read(sent(asked(content)))
    with pytest.raises(ValueError, match="no field 'request'"):
        AppRequest.read(flower_messages.pack({"message": b""}))
    broken = sent(asked(records()))
    broken[flower_messages.RECORD]["request"] = b"{}"
    with pytest.raises(ValueError, match="unreadable request"):
        AppRequest.read(broken)


@given(st.lists(st.floats(-1e3, 1e3), min_size=8, max_size=8))
def test_a_vector_moves_the_floats_of_a_model_and_nothing_else(step):
    record = arrays()
    layout = ArrayLayout.of(record)
    assert layout.names == ("a", "b", "half")
    moved = layout.moved(record, np.array(step))
    assert list(moved) == list(record)
    difference = layout.vector(moved) - layout.vector(record)
    np.testing.assert_allclose(difference[:7], step[:7], atol=1e-3)
    np.testing.assert_array_equal(moved["steps"].numpy(), [3, 4])
    for name in record:
        assert moved[name].numpy().dtype == record[name].numpy().dtype
        assert moved[name].numpy().shape == record[name].numpy().shape


def zipped():
    data = io.BytesIO()
    np.savez(data, b=np.zeros((2, 3), dtype=np.float32))
    return data.getvalue()


def claiming(count):
    """The header of an array of so many numbers, without one of them."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count},), }}".ljust(117)
    return b"\x93NUMPY\x01\x00v\x00" + header.encode() + b"\n"


def unreadable(data):
    record = ArrayRecord({**arrays(), "b": Array("float32", (2, 3), "numpy.ndarray", data)})
    return record, "array 'b' cannot be read"


UNUSABLE = {
    "several arrays": unreadable(zipped()),
    "a torn zip file": unreadable(b"PK\x03\x04" + bytes(100)),
    "more than any memory": unreadable(claiming(10**15)),
    "missing": (ArrayRecord({"b": arrays()["b"]}), "array 'a' is missing"),
    "another shape": (arrays(b=np.zeros(6)), "was sent with shape"),
    "complex": (arrays(b=np.zeros((2, 3), dtype=complex)), "dtype complex128"),
    "unreadable": (
        ArrayRecord({**arrays(), "b": Array("float32", (2, 3), "numpy.ndarray", b"rubbish")}),
        "array 'b' cannot be read",
    ),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_arrays_that_do_not_fit_are_named(what):
    record, message = UNUSABLE[what]
    with pytest.raises(UnusableArraysError, match=message):
        ArrayLayout.of(arrays()).vector(record)


def test_a_model_without_floats_has_nothing_to_average():
    with pytest.raises(UnusableArraysError, match="nothing to average"):
        ArrayLayout.of(ArrayRecord({"steps": arrays()["steps"]}))
    with pytest.raises(UnusableArraysError, match="nothing to average"):
        ArrayLayout.of(ArrayRecord({"empty": Array(np.zeros((0, 3)))}))
    with pytest.raises(UnusableArraysError, match="not a real one"):
        ArrayLayout.of(arrays(b=np.zeros(3, dtype=complex)))


def test_an_array_of_a_shape_that_none_has_is_no_request():
    for size in (1 << 63, -1):
        record = ArrayRecord({"a": Array("float32", (size,), "numpy.ndarray", b"")})
        with pytest.raises(ValueError, match="no array has one"):
            rebuilt(RecordDict({"arrays": record}))
