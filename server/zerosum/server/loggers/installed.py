"""Find out whether the libraries of loggers are there, without loading anything."""

import importlib.util

from zerosum.server.config import ConfigError
from zerosum.server.spec import Experiment


def check_loggers(experiment: Experiment) -> None:
    """Refuse loggers whose library is not installed; it is looked for, and not imported.

    Parameters
    ----------
    experiment : Experiment
        Whose ``log`` names them.

    Raises
    ------
    ConfigError
        With what installs it.
    """
    for name in experiment.log:
        spec = importlib.util.find_spec(name)
        # A folder that happens to be called so, as the one that wandb leaves, is no library.
        if spec is None or not spec.has_location:
            raise ConfigError(
                f"log = [\"{name}\"]: {name} is not installed: pip install 'zerosum[{name}]', or "
                f"take {name} out of log"
            )
