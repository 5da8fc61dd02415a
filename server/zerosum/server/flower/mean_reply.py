"""The one reply that a strategy gets: for Flower's averaging, and for no eyes of its own.

A subclass that overrides ``aggregate_train`` or ``aggregate_evaluate`` may do what it likes before
and after the average, and may hand the replies on. One that reads single replies would take the
mean for a client's: it is refused where it does so. What Flower's own averaging reads is read by
Flower's code, by which the two are told apart.
"""

import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from flwr.app import Message, RecordDict

from zerosum.server.config import ConfigError

_AVERAGES = ("flwr", "zerosum")
"""Packages whose strategies are known to average: those that do not are refused by name."""


class LookedAtError(ConfigError, TypeError):
    """A strategy looks at single replies; a TypeError, so that ``list()`` does without a length."""


def _check(of: str, what: str, frame: FrameType) -> None:
    """Refuse code that is not Flower's own."""
    if str(frame.f_globals.get("__name__", "")).partition(".")[0] in _AVERAGES:
        return
    asks: FrameType | None = frame
    while asks is not None and asks.f_code.co_name.startswith("<") and asks.f_back is not None:
        asks = asks.f_back
    where = (asks or frame).f_code.co_qualname.replace(".<locals>", "")
    raise LookedAtError(
        f"PrivateStrategy({of}(...)): {where} reads {what}, and a private sum shows no client's "
        "reply, only the mean: call super() and use what it returns; if it does nothing but "
        "average, say PrivateStrategy(..., averages=True)"
    )


class MeanReply(Message):
    """A reply of a client whose model is the mean, that Flower's own code may read.

    Parameters
    ----------
    content : RecordDict
        The mean.
    reply_to : Message
        One of the strategy's messages.
    strategy : str
        Named where something else reads it; with none, anything may.
    """

    def __init__(self, content: RecordDict, *, reply_to: Message, strategy: str = "") -> None:
        super().__init__(content, reply_to=reply_to)
        self.__dict__["_strategy"] = strategy

    def __getattribute__(self, name: str) -> Any:
        """Return an attribute; raises LookedAtError for a strategy's own code."""
        of = object.__getattribute__(self, "__dict__").get("_strategy")
        if of and name in ("content", "metadata"):
            _check(of, f"the {name} of single replies", sys._getframe(1))
        return super().__getattribute__(name)


class Replies(Iterable[Message]):
    """The replies of a round: to be handed on, and neither counted nor picked from.

    Parameters
    ----------
    replies : list of Message
        One, or none.
    strategy : str
        As of :class:`MeanReply`.
    """

    def __init__(self, replies: list[Message], strategy: str = "") -> None:
        self._replies, self._strategy = replies, strategy

    def __iter__(self) -> Iterator[Message]:
        return iter(self._replies)

    def __bool__(self) -> bool:
        return bool(self._replies)

    def __len__(self) -> int:
        if self._strategy:
            _check(self._strategy, "the number of replies", sys._getframe(1))
        return len(self._replies)

    def __getitem__(self, place: int) -> Message:
        """Return a reply; raises LookedAtError for a strategy's own code."""
        if self._strategy:
            _check(self._strategy, "single replies", sys._getframe(1))
        return self._replies[place]
