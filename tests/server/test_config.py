"""Configuration: what is refused, and whether a person can act on the refusal."""

import tomllib
from typing import Any

import pytest

from zerosum.server.config import (
    ConfigError,
    all_keys,
    apply_overrides,
    merge,
    parse_experiment,
    read_toml,
    to_toml,
)
from zerosum.server.spec import Experiment


def read(*overrides, **values):
    return parse_experiment(apply_overrides(values, overrides))


def test_every_default_is_valid_and_survives_toml():
    experiment = Experiment()
    assert parse_experiment(tomllib.loads(to_toml(experiment))) == experiment


@pytest.mark.parametrize(
    "overrides",
    [
        ["privacy.model=none", "privacy.clip=none", "encoding.range=1.0"],
        ["training.batch_size=all", "training.steps=3"],
        ["sampling.kind=everyone"],
        ["server.optimizer=Adam", "server.options={betas=[0.9, 0.99]}"],
        ["secagg.threshold=7", "privacy.epsilon=2.0"],
    ],
)
def test_unusual_settings_survive_toml(overrides):
    experiment = read(*overrides)
    assert parse_experiment(tomllib.loads(to_toml(experiment))) == experiment


@pytest.mark.parametrize(
    ("override", "key", "cure"),
    [
        ("privacy.clp=1.0", "privacy.clp", "privacy.clip"),
        ("round=3", "round", "rounds"),
        ("cohort=5", "cohort", "sampling.cohort"),
        ("rounds=many", "rounds = 'many'", "integer"),
        ("rounds=true", "rounds = True", "integer"),
        ("rounds='3'", "rounds = '3'", "integer"),
        ("rounds=0", "rounds = 0", "greater than 0"),
        ("privacy.clip=0", "privacy.clip = 0", "greater than"),
        ("privacy.clip=-1.5", "privacy.clip = -1.5", "greater than"),
        ("privacy.clip=nan", "privacy.clip = nan", "finite"),
        ("privacy.epsilon=0", "privacy.epsilon = 0", "greater than 0"),
        ("privacy.epsilon=-1", "privacy.epsilon = -1", "greater than 0"),
        ("privacy.model=strong", "privacy.model = 'strong'", "'distributed'"),
        ("privacy=3", "privacy", "dictionary"),
        ("model.hidden=[0]", "model.hidden", "greater than 0"),
        ("seed=-1", "seed = -1", "greater than or equal to 0"),
        ("secagg.threshold=few", "secagg.threshold = 'few'", "auto"),
        ("secagg.degree=0", "secagg.degree = 0", "greater than 0"),
        ("secagg.groups=0", "secagg.groups = 0", "greater than 0"),
        ("secagg.server=honest", "secagg.server = 'honest'", "'malicious'"),
    ],
)
def test_a_wrong_setting_is_one_line_with_key_value_and_cure(override, key, cure):
    with pytest.raises(ConfigError) as caught:
        read(override)
    message = str(caught.value)
    assert key in message
    assert cure in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["privacy.noise_multiplier=0"], "write privacy.model=none"),
        (["privacy.noise_multiplier=1.0", "privacy.epsilon=1.0"], "exactly one"),
        (["privacy.model=none", "privacy.epsilon=1.0"], "adds no noise"),
        (["training.epochs=1", "training.steps=1"], "exactly one"),
        (["privacy.model=none", "privacy.clip=none"], "encoding.range is required"),
        (["privacy.clip=none"], 'privacy.clip = "none" is for privacy.model = "none"'),
        (["training.weighting=examples"], "weights are uniform"),
        (["evaluation.federated_every=1"], "federated_noise_multiplier"),
        (["sampling.kind=fixed", "sampling.cohort=0"], "greater than 0"),
        (["server.rule=medain"], "'median'"),
        (["server.rule=krum"], "needs server.rule_malicious"),
        (["server.rule=bulyan"], "needs server.rule_malicious"),
        (["server.rule=norm-bound"], "needs server.rule_bound"),
        (["server.rule=fltrust"], "needs server.rule_examples"),
        (["server.rule_bound=1.0"], 'rule_bound = 1 is for "norm-bound": take it out'),
        (["server.rule=median", "server.rule_malicious=1"], "rule_malicious = 1 is for"),
        (
            ["server.rule=krum", "server.rule_malicious=1", "server.rule_selected=2"],
            'rule_selected = 2 is for "multi-krum"',
        ),
        (["server.rule=krum", "server.rule_malicious=-1"], "greater than or equal to 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(overrides, why):
    with pytest.raises(ConfigError, match=why):
        read(*overrides)


SEEN = ["secagg.protocol=none", "privacy.model=none"]
RULES = {
    "median": [],
    "trimmed-mean": ["server.rule_malicious=1"],
    "krum": ["server.rule_malicious=1"],
    "multi-krum": ["server.rule_malicious=1", "server.rule_selected=3"],
    "bulyan": ["server.rule_malicious=1"],
    "geometric-median": [],
    "fltrust": ["server.rule_examples=5"],
    "norm-bound": ["server.rule_bound=0.5"],
}


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize(
    ("hiding", "why"),
    [
        (["secagg.protocol=pairwise"], "masks hide the contributions.*privacy.clip"),
        (["secagg.protocol=ideal"], "a trusted sum hides the contributions"),
        (["privacy.model=distributed"], "the noise that is accounted for is in the sum"),
        (["privacy.model=central"], "the noise that is accounted for is in the sum"),
        (["training.weighting=examples"], "counts each client once"),
        (
            [
                "privacy.unit=example",
                "privacy.examples=100",
                "privacy.lot=10",
                "encoding.range=1.0",
                "sampling.kind=everyone",
            ],
            "sums over lots",
        ),
    ],
)
def test_a_rule_is_refused_where_it_sees_no_contribution(rule, hiding, why):
    settings = [*SEEN, f"server.rule={rule}", *RULES[rule]]
    assert read(*settings).server.rule == rule
    assert read(*settings, "privacy.model=local").server.rule == rule
    with pytest.raises(ConfigError, match=why) as caught:
        read(*settings, *hiding)
    assert f'server.rule = "{rule}"' in str(caught.value)
    assert read(*SEEN, *hiding).server.rule == "mean"


def test_setting_one_of_two_exclusive_keys_drops_the_other():
    base: dict[str, Any] = {"privacy": {"noise_multiplier": 2.0}, "training": {"epochs": 3}}
    experiment = parse_experiment(
        apply_overrides(base, ["privacy.epsilon=1.0", "training.steps=9"])
    )
    assert experiment.privacy.noise_multiplier is None
    assert experiment.training.epochs is None
    base["privacy"] |= {"components_noise": 3.0}
    off = parse_experiment(apply_overrides(base, ["privacy.model=none"]))
    assert off.privacy.noise_multiplier is off.privacy.components_noise is None


def test_overrides_leave_their_input_alone():
    base = {"privacy": {"clip": 1.0}}
    apply_overrides(base, ["privacy.clip=2.0"])
    assert base == {"privacy": {"clip": 1.0}}


def test_merging_replaces_rivals_and_keeps_the_rest():
    base = {"privacy": {"noise_multiplier": 2.0, "clip": 0.5}, "rounds": 3}
    merged = merge(base, {"privacy": {"epsilon": 1.0}})
    assert merged == {"privacy": {"epsilon": 1.0, "clip": 0.5}, "rounds": 3}


@pytest.mark.parametrize("text", ["rounds", "=3", "a..b=1", ".=1"])
def test_a_malformed_override_says_how_one_looks(text):
    with pytest.raises(ConfigError, match="key=value"):
        apply_overrides({}, [text])


def test_an_override_through_a_value_is_refused():
    with pytest.raises(ConfigError, match="not a section"):
        apply_overrides({"rounds": 3}, ["rounds.x=1"])


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        read_toml(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("a = = 1")
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML"):
        read_toml(broken)


def test_a_file_with_a_byte_order_mark_is_read_and_another_encoding_is_named(tmp_path):
    path = tmp_path / "marked.toml"
    path.write_bytes(b"\xef\xbb\xbf" + 'name = "größe"\n'.encode())
    assert read_toml(path) == {"name": "größe"}
    path.write_bytes('name = "größe"\n'.encode("utf-16"))
    with pytest.raises(ConfigError, match=r"marked\.toml cannot be read.*; save it as UTF-8"):
        read_toml(path)


@pytest.mark.parametrize("key", ["label", "client_column"])
def test_a_column_may_be_called_by_a_number(key):
    values = apply_overrides({}, [f"data.{key}=1", "data.features=[2, 'x']", "data.exclude=[3]"])
    data = parse_experiment(values).data
    assert getattr(data, key) == "1"
    assert (data.features, data.exclude) == (["2", "x"], ["3"])
    with pytest.raises(ConfigError, match=f"data.{key}"):
        parse_experiment({"data": {key: True}})


def test_every_key_can_be_set_by_its_dotted_name():
    keys = all_keys()
    assert "privacy.clip" in keys
    assert "seed" in keys
    assert len(keys) == len(set(keys))
