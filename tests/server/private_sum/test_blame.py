"""An error names the very key that was set, its value, and a cure that works when followed."""

import itertools
import re
import tomllib
from collections.abc import Iterable
from functools import reduce
from typing import Any

import pytest

from zerosum.server.config import (
    ConfigError,
    all_keys,
    apply_overrides,
    defaults,
    keys_of_none,
    look_up,
    parse_experiment,
    without,
)
from zerosum.server.planning.preflight import prepare
from zerosum.server.spec import Experiment
from zerosum.simulations.config import experiment_text, load_experiment
from zerosum.simulations.sweeps.grid import given_choices, written_choices

WRONG = ["many", "-1", "0", "1e300", "inf", "nan", "true", "[1]", "{}", "1.5", "none",
         "99999999999999999999", "2", "1e-320"]  # fmt: skip

PLAUSIBLE: dict[str, list[str]] = {
    "privacy.model": ["distributed", "local", "central", "none"],
    "privacy.mechanism": ["skellam", "discrete-gaussian", "discrete-laplace", "privunit"],
    "privacy.exact": ["true"],
    "privacy.unit": ["client", "example"],
    "privacy.examples": ["100"],
    "privacy.lot": ["10"],
    "privacy.clip": ["none", "1.0"],
    "privacy.clipping": ["flat", "per-layer", "adaptive"],
    "privacy.clip_fractions": ["[1.0,2.0]"],
    "privacy.clip_noise": ["0.6"],
    "privacy.clip_quantile": ["0.9"],
    "privacy.components_noise": ["2.0"],
    "privacy.noise_multiplier": ["1.0", "0"],
    "privacy.epsilon": ["1.0"],
    "encoding.range": ["1.0"],
    "encoding.rotate": ["true"],
    "secagg.protocol": ["pairwise", "ideal", "none"],
    "secagg.server": ["semi-honest"],
    "model.components": ["5"],
    "model.inputs": ["64"],
    "model.name": ["cnn", "mlp", "lstm"],
    "model.hidden": ["[]"],
    "training.epochs": ["2"],
    "training.steps": ["3"],
    "training.weighting": ["examples", "uniform"],
    "sampling.kind": ["poisson", "fixed", "everyone", "once"],
    "server.rule": ["krum", "median", "norm-bound", "multi-krum"],
    "server.rule_malicious": ["1"],
    "server.rule_bound": ["1.0"],
    "server.rule_selected": ["2"],
    "evaluation.federated_every": ["1"],
    "device": ["cuda"],
    "trainer": ["fast", "batched"],
}
CURE = re.compile(r"(?<![\w.])([a-z_]+(?:\.[a-z_]+)?=(?:\[[^\]]*\]|[\w.\-]+))")


def error_of(name: str, overrides: Iterable[str]) -> str:
    try:
        load_experiment(name, overrides)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param("mnist5k", marks=pytest.mark.slow),
             pytest.param("digits", marks=pytest.mark.slow), "heart"],
)  # fmt: skip
def test_a_wrong_value_is_blamed_on_its_own_key(name: str) -> None:
    refused = 0
    for key, value in itertools.product(all_keys(), WRONG):
        message = error_of(name, [f"{key}={value}"])
        refused += bool(message)
        assert not message or key in message, (key, value, message)
        assert "\n" not in message
    assert refused > 700


def followed(name: str, overrides: list[str], message: str) -> list[str]:
    """Return what comes of each cure in an error: another error, or none."""
    outcomes = []
    for cure in CURE.findall(message):
        key = cure.partition("=")[0]
        rest = [each for each in overrides if each.partition("=")[0] != key]
        outcomes.append(error_of(name, [*rest, cure]))
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["heart", pytest.param("digits", marks=pytest.mark.slow),
             pytest.param("cross-silo", marks=pytest.mark.slow)],
)  # fmt: skip
def test_of_two_settings_one_is_blamed_and_its_cure_works(name: str) -> None:
    settings = [(key, value) for key, values in PLAUSIBLE.items() for value in values]
    cures = 0
    for first, second in itertools.combinations(settings, 2):
        if first[0] == second[0]:
            continue
        overrides = ["=".join(first), "=".join(second)]
        message = error_of(name, overrides)
        if not message:
            continue
        assert first[0] in message or second[0] in message, (overrides, message)
        for outcome in followed(name, overrides, message):
            cures += 1
            assert outcome.partition(" (see")[0] != message.partition(" (see")[0], message
    assert cures > 100


def test_a_cure_that_does_not_work_would_be_found() -> None:
    overrides = ["privacy.clip=none"]
    message = error_of("mnist5k", overrides)
    assert followed("mnist5k", overrides, message) == [""]
    assert followed("mnist5k", overrides, "write privacy.clip=none") == [message]


@pytest.mark.parametrize(
    ("name", "overrides", "key"),
    [
        ("heart", ["privacy.clip=99999999999999999999"], "privacy.clip = 1e+20"),
        ("heart", ["encoding.range=99999999999999999999"], "encoding.range = 1e+20"),
        ("heart", ["encoding.ring_bits=2"], "encoding.ring_bits = 2"),
        ("mnist5k", ["encoding.ring_bits=2"], "encoding.ring_bits = 2"),
        ("heart", ["privacy.clip=1e30"], "privacy.clip = 1e+30"),
    ],
)
def test_a_value_that_does_not_fit_is_not_blamed_on_the_epsilon(
    name: str, overrides: list[str], key: str
) -> None:
    experiment = load_experiment(name, overrides)
    with pytest.raises(ConfigError) as caught:
        prepare(experiment, population=experiment.data.clients or 4, dimension=60)
    assert key in str(caught.value)
    assert not str(caught.value).startswith("privacy.epsilon")


def merged(**own: Any) -> dict[str, Any]:
    return {"extends": "heart", **own}


def test_the_word_unset_takes_out_what_a_preset_gives() -> None:
    assert load_experiment("heart").privacy.epsilon == 3.0
    experiment = load_experiment("heart", ["privacy.epsilon=unset"])
    assert (experiment.privacy.epsilon, experiment.privacy.noise_multiplier) == (None, 2.1)
    assert load_experiment("digits", ["training=unset"]).training.lr == 0.1
    assert load_experiment("digits", ["training=unset", "training.lr=0.7"]).training.lr == 0.7
    assert load_experiment("digits", ["rounds=unset"]).rounds == 40
    assert load_experiment("digits", ['name="unset"']).name == "unset"
    in_file = load_experiment(merged(unset=["privacy.epsilon", "server"]))
    assert in_file.privacy.noise_multiplier == 2.1
    assert in_file.server.lr == 1.0


def test_none_takes_out_what_is_absent_by_default_and_never_the_noise() -> None:
    assert load_experiment("digits", ["data.clients=none"]).data.clients is None
    assert load_experiment("digits", ["data.path=none"]).data.path is None
    assert load_experiment("digits", ['data.path="none"']).data.path == "none"
    assert load_experiment("digits", ["data.thousands=none"]).data.thousands == "none"
    assert load_experiment("fedavg", ["privacy.clip=none"]).privacy.clip is None
    for key in ("privacy.noise_multiplier", "evaluation.federated_metrics", "data.header"):
        with pytest.raises(ConfigError, match=rf"{re.escape(key)} = 'none': .*is without"):
            load_experiment("digits", [f"{key}=none"])


def accepted(values: dict[str, Any], overrides: Iterable[str] = ()) -> Experiment | str:
    """Return an experiment, or what is wrong, without what is said of a cure."""
    try:
        return load_experiment(values, overrides)
    except ConfigError as error:
        return str(error).partition(" (see")[0]


@pytest.mark.slow
def test_every_key_can_be_unset_by_each_way_of_saying_so() -> None:
    """On the command line, in a file that extends, in a sweep's list and in its grid of values."""
    for key, default in defaults().items():
        section, _, name = key.rpartition(".")
        set_to = {section: {name: object()}} if section else {name: object()}
        assert parse_experiment(apply_overrides(set_to, [f"{key}=unset"])) == Experiment(), key
        value = reduce(getattr, key.split("."), Experiment())
        # Privacy without a figure has the default noise.
        assert value == (2.1 if key == "privacy.noise_multiplier" else default), key
        (choice,) = given_choices({key: [None]})[key]
        (written, _) = written_choices([f"{key}=unset,1"])[key]
        assert (choice.override, written.value) == (f"{key}=unset", None)
        for preset in ("cross-silo", "mnist-abadi", "fedavg"):
            less = without(tomllib.loads(experiment_text(preset)), [key])
            assert look_up(less, key) is None
            by_file = accepted({"extends": preset, "unset": [key]})
            assert by_file == accepted(less) == accepted({"extends": preset}, [f"{key}=unset"])


def test_none_takes_a_key_out_is_a_value_of_it_or_is_refused_with_the_word_that_does() -> None:
    values = {"privacy.model", "privacy.clip", "secagg.protocol", "training.normalise",
              "data.transform", "data.thousands"}  # fmt: skip
    texts = {"name", "task", "data.label", "training.optimizer", "server.optimizer"}
    for key, default in defaults().items():
        if key in keys_of_none():
            assert default is None
            assert apply_overrides({}, [f"{key}=none"]) == {}, key
            continue
        taken = accepted({}, [f"{key}=none"])
        if isinstance(taken, str):
            assert key in values or f"{key}=unset" in taken, taken
        else:
            assert reduce(getattr, key.split("."), taken) == "none"
            assert key in values | texts, f"{key} takes none for a text"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (merged(unset=["privacy.epsilom"]), "unknown key privacy.epsilom.*privacy.epsilon"),
        (merged(unset="privacy"), "write a list of keys"),
        (merged(unset=[3]), "write a list of keys"),
        ({"unset": ["privacy.clip"]}, "write extends = NAME"),
    ],
)
def test_a_key_that_cannot_be_unset_is_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_experiment(values)


@pytest.mark.parametrize(
    "override", ["privacy.cip=unset", "privasy=unset", "rounds.x=unset", "privacy.clip.x=unset"]
)
def test_taking_out_an_unknown_key_names_it(override: str) -> None:
    with pytest.raises(ConfigError, match="unknown key " + override.partition("=")[0]):
        apply_overrides({}, [override])


@pytest.mark.parametrize(
    ("preset", "own", "gone"),
    [
        ("heart", {"privacy": {"unit": "client"}}, ["privacy.lot", "privacy.examples"]),
        ("heart", {"privacy": {"noise_multiplier": 1.0}}, ["privacy.epsilon"]),
        ("digits", {"training": {"steps": 3}}, ["training.epochs"]),
    ],
)
def test_a_new_value_unsets_the_keys_that_it_excludes(
    preset: str, own: dict[str, dict[str, Any]], gone: list[str]
) -> None:
    settings = [f"{s}.{k}={v}" for s, keys in own.items() for k, v in keys.items()]
    for experiment in (
        load_experiment({"extends": preset, **own}),
        load_experiment(preset, settings),
    ):
        for key in gone:
            section, _, name = key.partition(".")
            assert getattr(getattr(experiment, section), name) is None


def test_a_rule_replaces_the_keys_of_the_rule_before() -> None:
    base = {"secagg": {"protocol": "none"}, "privacy": {"model": "none"},
            "server": {"rule": "krum", "rule_malicious": 2}}  # fmt: skip
    assert parse_experiment(base).server.rule_malicious == 2
    assert parse_experiment(apply_overrides(base, ["server.rule=mean"])).server.rule == "mean"


def test_a_rule_keeps_the_inherited_keys_that_it_takes_itself() -> None:
    base = {"secagg": {"protocol": "none"}, "privacy": {"model": "none"},
            "server": {"rule": "multi-krum", "rule_malicious": 2, "rule_selected": 3}}  # fmt: skip
    again = parse_experiment(apply_overrides(base, ["server.rule=multi-krum"])).server
    assert (again.rule_malicious, again.rule_selected) == (2, 3)
    other = parse_experiment(apply_overrides(base, ["server.rule=krum"])).server
    assert (other.rule_malicious, other.rule_selected) == (2, None)


def test_an_inherited_key_at_fault_is_named_with_its_origin_and_a_cure_that_was_tried() -> None:
    settings = ["privacy.clip=1", "privacy.model=distributed"]
    message = error_of("cross-silo", settings)
    assert "training.weighting = 'examples' is of cross-silo" in message
    cure = re.findall(r"--set (\S+=unset) takes it out", message)
    assert error_of("cross-silo", [*settings, *cure]) == ""
    own = {"extends": "cross-silo", "privacy": {"clip": 1.0, "model": "distributed"}}
    with pytest.raises(ConfigError, match=r'unset = \["training.weighting"\] takes it out'):
        load_experiment(own)
    assert load_experiment({**own, "unset": ["training.weighting"]}).privacy.private
