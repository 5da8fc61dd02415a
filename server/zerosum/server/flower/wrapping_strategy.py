"""A strategy around another: it runs that one, and is asked nothing that it would be asked."""

from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from zerosum.server.config import ConfigError


class WrappingStrategy(Strategy):
    """A strategy that stands outermost; what it does not have itself is the one's within.

    Parameters
    ----------
    strategy : Strategy
        Whose attributes are read and set through this one, but for names that this one has and
        those that begin with an underscore.
    """

    _strategy: Strategy

    def __init__(self, strategy: Strategy) -> None:
        super().__init__()
        self._strategy = strategy

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the strategy within."""
        # A copy is asked for attributes before it has any.
        if name.startswith("_") or "_strategy" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._strategy, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, of the strategy within if this one has none of the name."""
        if name.startswith("_") or hasattr(type(self), name) or "_strategy" not in self.__dict__:
            object.__setattr__(self, name, value)
        else:
            setattr(self._strategy, name, value)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Refuse: messages that somebody else sends would be answered in plain.

        Parameters
        ----------
        server_round, arrays, config, grid
            As of any strategy.

        Returns
        -------
        iterable of flwr.app.Message
            Never.

        Raises
        ------
        ConfigError
            Always.
        """
        raise _outermost()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Refuse, as :meth:`configure_train`.

        Parameters
        ----------
        server_round, replies
            As of any strategy.

        Returns
        -------
        tuple
            Never.

        Raises
        ------
        ConfigError
            Always.
        """
        raise _outermost()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Refuse, as :meth:`configure_train`.

        Parameters
        ----------
        server_round, arrays, config, grid
            As of any strategy.

        Returns
        -------
        iterable of flwr.app.Message
            Never.

        Raises
        ------
        ConfigError
            Always.
        """
        raise _outermost()

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Refuse, as :meth:`configure_train`.

        Parameters
        ----------
        server_round, replies
            As of any strategy.

        Returns
        -------
        flwr.app.MetricRecord
            Never.

        Raises
        ------
        ConfigError
            Always.
        """
        raise _outermost()


def _outermost() -> ConfigError:
    return ConfigError(
        "PrivateStrategy goes around every other strategy, and is run by its own start(): what "
        "others configure would be sent in plain"
    )
