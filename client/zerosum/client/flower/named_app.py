"""An app that is known by its name until it trains.

A SuperNode starts a process for each message, and most messages of a private sum are stages that no
app sees. One that is imported where it answers costs those nothing.
"""

import importlib
import logging
from dataclasses import dataclass
from importlib.util import find_spec

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from zerosum.client.protocol.admission import Declined
from zerosum.client.protocol.training_outcomes import quoted
from zerosum.client.task_errors import FAILURES

log = logging.getLogger("zerosum.client")


@dataclass(frozen=True)
class NamedApp:
    """A ClientApp by its reference, as in ``pyproject.toml``.

    Parameters
    ----------
    reference : str
        ``package.module:attribute``.

    Raises
    ------
    ValueError
        If it is none.
    """

    reference: str

    def __post_init__(self) -> None:
        names = [*self._module.split("."), *self._attribute.split(".")]
        if not all(name.isidentifier() for name in names):
            dotted = ":" not in self.reference and self.reference.endswith("client_app")
            example = f"{self.reference}:app" if dotted else "quickstart.client_app:app"
            raise ValueError(
                f"PrivateClientApp({self.reference!r}) names no app: write its module and its "
                f'attribute, as PrivateClientApp("{example}")'
            )

    @property
    def _module(self) -> str:
        return self.reference.partition(":")[0]

    @property
    def _attribute(self) -> str:
        return self.reference.partition(":")[2]

    def check(self) -> None:
        """Check that there is such a module, without importing it: only the packages around it.

        Raises
        ------
        Declined
            If there is none.
        """
        try:
            found = find_spec(self._module)
        except FAILURES as error:
            raise Declined(self._in_words(quoted(error))) from None
        if found is None:
            raise Declined(self._in_words(f"there is no module {self._module}"))

    def load(self) -> ClientApp:
        """Import the app, once a process.

        Returns
        -------
        flwr.clientapp.ClientApp
            As its module has it.

        Raises
        ------
        Declined
            If it cannot be imported, or is no ClientApp. The traceback is in this client's log.
        """
        try:
            found: object = importlib.import_module(self._module)
            for name in self._attribute.split("."):
                found = getattr(found, name)
        except FAILURES as error:
            log.exception("the app %s cannot be imported", self.reference)
            raise Declined(self._in_words(quoted(error))) from None
        if not isinstance(found, ClientApp):
            raise Declined(self._in_words(f"it is a {type(found).__name__}, and no ClientApp"))
        return found

    def __call__(self, message: Message, context: Context) -> Message:
        """Let the app answer."""
        return self.load()(message, context)

    def _in_words(self, why: str) -> str:
        return f'PrivateClientApp("{self.reference}") cannot be used: {why}'
