"""Settings of somebody's app are written without what its code decides, and read back the same."""

from zerosum.server.config import parse_experiment, to_values

SET = {
    "training": {"weighting": "uniform", "max_examples": 10_000, "lr": 0.3},
    "data": {"clients": 7},
    "evaluation": {"federated_every": 1, "federated_noise_multiplier": 1.5},
}


def test_what_is_left_out_is_a_default():
    app = parse_experiment({"task": "flower-app", **SET})
    values = to_values(app)
    assert values["training"] == SET["training"]
    assert values["data"] == SET["data"]
    assert values["evaluation"] == SET["evaluation"]
    assert not {"model", "server"} & values.keys()
    assert parse_experiment(values) == app


def test_the_control_a_task_of_ours_has_every_key():
    values = to_values(parse_experiment({"task": "digits", **SET}))
    assert values["model"]["name"] == "mlp"
    assert {"lr", "batch_size", "epochs"} <= values["training"].keys()
