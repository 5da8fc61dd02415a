"""Receipts in plain values: the event that a sum was charged as, to JSON and back."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def receipt_values(event: "DpEvent | None") -> dict[str, Any] | None:
    """Return an event in plain values; None where nothing bounds what was sent.

    Parameters
    ----------
    event : DpEvent or None
        Of integer noise, or of randomised response.

    Returns
    -------
    dict or None
        As :func:`read_receipt` reads it.

    Raises
    ------
    TypeError
        For any other event: a ledger must not hold what nobody reads back.
    """
    import dp_accounting

    from zerosum.client.privacy.events import IntegerNoiseDpEvent

    if event is None:
        return None
    if isinstance(event, IntegerNoiseDpEvent):
        return {
            "event": "integer-noise",
            "law": event.law,
            "parameters": list(event.parameters),
            "moves": list(event.moves),
        }
    if isinstance(event, dp_accounting.RandomizedResponseDpEvent):
        return {
            "event": "randomized-response",
            "noise": event.noise_parameter,
            "buckets": event.num_buckets,
        }
    raise TypeError(f"no receipt of a query is a {type(event).__name__}")


def read_receipt(values: Mapping[str, Any] | None) -> "DpEvent":
    """Return the event of plain values.

    Parameters
    ----------
    values : mapping or None
        As :func:`receipt_values` wrote them.

    Returns
    -------
    DpEvent
        Equal to the one that was written.

    Raises
    ------
    ValueError
        If they are of no such event: what was spent is not known then.
    """
    import dp_accounting

    from zerosum.client.privacy.events import IntegerNoiseDpEvent

    try:
        kind = None if values is None else values["event"]
        if values is not None and kind == "integer-noise" and len(values) == 4:
            return IntegerNoiseDpEvent(
                law=values["law"],
                parameters=tuple(map(float, values["parameters"])),
                moves=tuple(map(int, values["moves"])),
            )
        if values is not None and kind == "randomized-response" and len(values) == 3:
            return dp_accounting.RandomizedResponseDpEvent(
                float(values["noise"]), int(values["buckets"])
            )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"a receipt that cannot be read: {error}") from None
    raise ValueError(f"nothing bounds it, or an unknown receipt: {values}")
