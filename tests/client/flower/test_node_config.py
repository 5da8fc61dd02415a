"""Paths on a node, to read or to write, which a server may not choose."""

import logging

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

from zerosum.client.flower import client_app
from zerosum.client.flower.client_app import DeployedEnvironment
from zerosum.client.protocol import flower_messages
from zerosum.client.protocol.admission import Declined
from zerosum.client.request import ModelQuestion, ModelRequest, about_model, model_payload
from zerosum.client.spec import DataSpec, EncodingSpec, ModelSpec, PrivacySpec, TrainSpec
from zerosum.client.training import precision


def context(**config):
    return Context(run_id=1, node_id=1, node_config=config, state=RecordDict(), run_config={})


def sent(kind="train", training=TrainSpec(), **data):  # noqa: B008
    question = ModelQuestion(
        kind=kind, round=1, seed=0, population=3, task="digits", data=DataSpec(**data),
        model=ModelSpec(), training=training, privacy=PrivacySpec(model="none"),
        encoding=EncodingSpec(), noise_draw="per_client", max_loss=1.0,
    )  # fmt: skip
    request = ModelRequest(question, model_payload(np.zeros(4, dtype=np.float32)))
    model = flower_messages.payload_record(request.payload)
    return request, flower_messages.pack({"request": request.header}, model)


def data_of(monkeypatch, config, **data):
    """Return what the task of a node of this config is given for these data of a request."""
    request, content = sent(**data)
    given = []
    monkeypatch.setattr(client_app, "resolve_task", lambda name, data, *rest: given.append(data))
    here = context(**config)
    node = DeployedEnvironment(here)
    read = node.request(content)
    assert read.digest == request.digest, "masks are bound to what was asked"
    node.task(about_model(read), here)
    return given[0]


def test_a_request_without_a_path_needs_nothing_of_the_node(monkeypatch):
    assert data_of(monkeypatch, {}).path is None


@pytest.mark.parametrize(
    ("config", "path"),
    [({"data-path": "/own"}, "/own"), ({"server-paths": True}, "/etc/passwd")],
)
def test_a_path_of_the_servers_is_read_only_where_the_node_says_so(monkeypatch, config, path):
    assert data_of(monkeypatch, config, path="/etc/passwd").path == path


@pytest.mark.parametrize("config", [{}, {"server-paths": "no"}, {"server-paths": 1}])
def test_a_path_of_the_servers_is_declined(config):
    _, content = sent(path="/etc/passwd")
    with pytest.raises(Declined, match=r"data\.path = '/etc/passwd' is the server's"):
        DeployedEnvironment(context(**config)).request(content)


@pytest.mark.parametrize("config", [{}, {"data-path": "/own"}, {"server-paths": True}])
def test_nothing_is_fetched_from_a_hub_and_nothing_is_kept(monkeypatch, config):
    _, content = sent(name="somebody/something")
    with pytest.raises(Declined, match="fetches nothing"):
        DeployedEnvironment(context(**config)).request(content)
    assert data_of(monkeypatch, config, cache="/home/them/.ssh").cache is None


@pytest.mark.parametrize(
    ("native", "config", "why"),
    [(False, {}, "processor has no native"), (True, {"device": "cuda"}, 'clients train on "cuda"')],
)
def test_a_precision_that_the_node_lacks_is_declined(monkeypatch, native, config, why):
    monkeypatch.setattr(precision, "has_native_bf16", lambda: native)
    node, asked = DeployedEnvironment(context(**config)), TrainSpec(precision="bf16")
    _, content = sent(training=asked)
    with pytest.raises(Declined, match=f'training.precision = "bf16": .*{why}'):
        node.request(content)
    node.request(sent(training=asked, kind="evaluate")[1])  # which is float32 everywhere
    node.request(sent()[1])
    monkeypatch.setattr(precision, "has_native_bf16", lambda: True)
    read = about_model(DeployedEnvironment(context()).request(content))
    assert read.question.training == asked


@pytest.mark.slow
def test_an_optimizer_that_the_nodes_torch_lacks_is_declined(monkeypatch):
    asked = TrainSpec(optimizer="Adam", options={"amsgrad": True})
    _, content = sent(training=asked)
    node = DeployedEnvironment(context())
    read = about_model(node.request(content))
    assert read.question.training == asked, "the control: this torch has it"
    monkeypatch.delattr(torch.optim, "Adam")
    with pytest.raises(Declined, match=r"training.optimizer = 'Adam' is not usable: torch.optim"):
        node.request(content)
    node.request(sent(training=asked, kind="evaluate")[1])
    node.request(sent()[1])


def test_a_key_of_the_node_config_that_nothing_reads_is_named(caplog):
    caplog.set_level(logging.WARNING)
    DeployedEnvironment(context(data_path="x", colour="red", device="cpu", **{"hold-out": True}))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "colour is read by nothing" in said[0]
    assert 'data_path is read by nothing but perhaps the task; did you mean "data-path"?' in said[1]
