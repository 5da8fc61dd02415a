"""Derive from an experiment how each of its private sums is protected."""

import hashlib
import math
from collections.abc import Mapping
from typing import Literal

from zerosum.client.protocol.protection import Protection
from zerosum.client.request import Kind, ModelQuestion, evaluation_length, moments_length
from zerosum.client.spec import EncodingSpec, PrivacySpec
from zerosum.client.spec.schedule import follows_rounds
from zerosum.server.privacy.guarantees import ExampleUnit
from zerosum.server.sampling import group_sizes
from zerosum.server.spec import DeploymentSpec, Experiment

ACCEPTED_WRAP = -40.0
"""log2 of the probability of a wrapped sum that needs no word: what a ring that is chosen here
keeps to, see :data:`~zerosum.secagg.vectors.wrapping.WRAP_EXPONENT`."""

FEDERATED_RANGE = float(1 << 20)
"""Largest sum a client may report in an evaluation without DP: at 32 bits, in steps of 2^-11."""


def configuration_digest(experiment: Experiment) -> str:
    """Return a digest of the keys that may not change in a run."""
    return hashlib.sha256(fixed_part(experiment).canonical()).hexdigest()


def fixed_part(experiment: Experiment) -> Experiment:
    """Return an experiment without the keys that may change: rounds, workers, paths, nodes.

    Rounds are fixed where a learning rate follows them: other rounds would be other rates from the
    first one on.
    """
    data = experiment.data.model_copy(update={"path": None, "cache": None})
    free = {"rounds": 1, "engine": "auto", "workers": "auto", "deployment": DeploymentSpec()}
    if rounds_fixed_by(experiment):
        del free["rounds"]
    return experiment.model_copy(update={**free, "data": data})


def rounds_fixed_by(experiment: Experiment) -> str:
    """Return the key whose schedule depends on the number of rounds; empty where none does."""
    scheduled = experiment.scheduled.items()
    named = (f'{k}.schedule = "{v.schedule}"' for k, v in scheduled if follows_rounds(v))
    return next(named, "")


def planned_protections(
    experiment: Experiment, population: int, dimension: int, cohort: int | None = None
) -> dict[str, Protection]:
    """Build the protection of every kind of private sum that a run asks for.

    Parameters
    ----------
    experiment : Experiment
        With its noise resolved.
    population : int
        Clients.
    dimension : int
        Trainable parameters.
    cohort : int, optional
        Clients in a session. Default: the expected number.

    Returns
    -------
    mapping of str to Protection
        By kind of sum.
    """
    length = dimension + (experiment.training.weighting == "examples")
    train = Protection.build(
        experiment.privacy,
        experiment.encoding,
        cohort=cohort or _session_size(experiment, population),
        dimension=length,
        rotation_seed=bytes(32),
    )
    return {"train": train} | other_protections(experiment, population, cohort)


def other_protections(
    experiment: Experiment, population: int, cohort: int | None = None
) -> dict[str, Protection]:
    """Build the protections of the private sums beside those of training.

    Parameters
    ----------
    experiment : Experiment
        With its noise resolved.
    population : int
        Clients.
    cohort : int, optional
        As for :func:`planned_protections`.

    Returns
    -------
    mapping of str to Protection
        By kind of sum.
    """
    asked = {}
    if experiment.evaluation.federated_every:
        length = evaluation_length(federated_metrics(experiment))
        asked["evaluate"] = (*evaluation_protection(experiment), length)
    if inputs := experiment.model.inputs:
        asked["components"] = (*components_protection(experiment), moments_length(inputs))
    return {
        kind: Protection.build(
            privacy,
            encoding,
            cohort=cohort or _session_size(experiment, population),
            dimension=length,
            rotation_seed=bytes(32),
        )
        for kind, (privacy, encoding, length) in asked.items()
    }


def _session_size(experiment: Experiment, population: int) -> int:
    expected = experiment.sampling.cohort or population
    return max(2, group_sizes(expected, experiment.secagg.groups)[0])


def example_units(
    experiment: Experiment, privacy: PrivacySpec | None = None
) -> dict[str, ExampleUnit]:
    """Collect how each kind of private sum draws examples, where those are the unit.

    Parameters
    ----------
    experiment : Experiment
        Its section ``[privacy]`` is used, unless the next is given.
    privacy : PrivacySpec, optional
        In its place: at another noise.

    Returns
    -------
    mapping of str to ExampleUnit
        By kind; empty where clients are the unit.
    """
    privacy = experiment.privacy if privacy is None else privacy
    if not (privacy.private and privacy.by_example):
        return {}
    rate = privacy.example_rate
    if privacy.noise_inside:
        steps = experiment.training.steps or 1
        return {"train": ExampleUnit(rate, steps, privacy.noise_multiplier)}
    units = {"train": ExampleUnit(rate)}
    if experiment.model.components:
        units["components"] = ExampleUnit(1.0)
    return units


def evaluation_protection(experiment: Experiment) -> tuple[PrivacySpec, EncodingSpec]:
    """Return how a federated evaluation is protected: k coordinates of norm at most 1."""
    privacy = experiment.privacy
    if not privacy.private:
        return (
            privacy.model_copy(
                update={
                    "clip": None,
                    "clipping": "flat",
                    "unit": "client",
                    "examples": None,
                    "lot": None,
                }
            ),
            EncodingSpec(bits=32, range=FEDERATED_RANGE),
        )
    noise = experiment.evaluation.federated_noise_multiplier
    # Each of the k coordinates is at most 1/sqrt(k): the L2 norm 1, the L1 norm sqrt(k).
    length = evaluation_length(federated_metrics(experiment))
    clip = math.sqrt(length) if privacy.norm == "l1" else 1.0
    update: dict[str, object] = {"unit": "client", "examples": None, "lot": None}
    update |= {"clip": clip, "clipping": "flat", "noise_multiplier": noise, "epsilon": None}
    return privacy.model_copy(update=update), EncodingSpec(bits=16)


def federated_metrics(experiment: Experiment) -> Mapping[str, float]:
    """Return what a federated evaluation sums beside the loss, each with its largest magnitude.

    Where no task was asked yet, as in a plan without data, accuracy is assumed: a vector with
    fewer coordinates costs no more at the same noise multiplier.
    """
    metrics = experiment.evaluation.federated_metrics
    return {"accuracy": 1.0} if metrics is None else dict(sorted(metrics.items()))


def components_protection(experiment: Experiment) -> tuple[PrivacySpec, EncodingSpec]:
    """Return how second moments are protected: a sum over all records, each of norm at most 1."""
    privacy = experiment.privacy
    # No coordinate exceeds the number of records, so none is clamped.
    encoding = EncodingSpec(bits=experiment.encoding.bits, range=float(privacy.examples or 1))
    if not privacy.private:
        return privacy, encoding
    update: dict[str, object] = {"clip": 1.0, "lot": privacy.examples, "epsilon": None}
    update |= {"noise_multiplier": privacy.components_noise, "components_noise": None}
    return privacy.model_copy(update=update), encoding


def noise_draw(experiment: Experiment) -> Literal["per_client", "summed"]:
    """Return who draws the noise; only a trusted sum can have it drawn once."""
    privacy = experiment.privacy
    summable = experiment.secagg.protocol == "ideal" and privacy.model == "distributed"
    if privacy.noise_draw == "auto":
        return "summed" if summable else "per_client"
    return privacy.noise_draw


def question_of(
    experiment: Experiment,
    number: int,
    population: int,
    kind: Kind = "train",
    *,
    noise_draw: Literal["per_client", "summed"],
) -> ModelQuestion:
    """Build what a round asks of its clients.

    Parameters
    ----------
    experiment : Experiment
        With its noise resolved.
    number : int
        The round.
    population : int
        Clients in the roster.
    kind : Kind
        Kinds but "train" have protections of their own.
    noise_draw : Literal['per_client', 'summed']
        Who draws the noise.

    Returns
    -------
    ModelQuestion
        The same for all clients.
    """
    privacy, encoding = experiment.privacy, experiment.encoding
    if kind == "evaluate":
        privacy, encoding = evaluation_protection(experiment)
    elif kind == "components":
        privacy, encoding = components_protection(experiment)
    return ModelQuestion(
        kind=kind,
        round=number,
        seed=experiment.seed,
        population=population,
        task=str(experiment.task),  # of a task object too the name alone
        data=experiment.data,
        model=experiment.model,
        training=experiment.training.at(number, experiment.rounds),
        privacy=privacy,
        encoding=encoding,
        noise_draw=noise_draw,
        max_loss=experiment.evaluation.federated_max_loss,
        metrics=dict(federated_metrics(experiment)) if kind == "evaluate" else {},
    )
