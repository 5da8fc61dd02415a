"""Leave out of the settings of somebody's Flower app what its own code decides."""

from collections.abc import Mapping
from typing import Any, Final

from zerosum.client.spec.training import APP_TASK
from zerosum.server.spec.experiment import Experiment

_DECIDED: Final = ("model", "training", "data", "server", "evaluation")
"""Sections that such a run reads a few keys of: the model, say, is what ``start()`` is given."""

_READ: Final = frozenset({("training", "weighting"), ("training", "max_examples")})
"""Keys of these sections that hold even where they have their defaults."""


def without_app_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out defaults that would say what is not so: of the model, its training, its tests.

    Parameters
    ----------
    values : mapping of str to any
        An experiment's sections, as JSON has them.

    Returns
    -------
    dict of str to any
        That reads back to the same experiment; all of it where the task is one of ours.
    """
    if values.get("task") != APP_TASK:
        return dict(values)
    usual = Experiment().model_dump(mode="json")
    left: dict[str, Any] = {}
    for name, section in values.items():
        if name in _DECIDED:
            told = {
                key: value
                for key, value in section.items()
                if (name, key) in _READ or value != usual[name].get(key)
            }
            left |= {name: told} if told else {}
        else:
            left[name] = section
    return left
