"""The bit of adaptive clipping, in integer units: whether an update's norm was within the clip."""

BIT_UNITS = 1024
"""Integer units of half a client's bit. Skellam's second-order term is 1/mu of the first, so at
this scale and noise of a client or more it changes no printed figure."""


def bit_values(quantile: float) -> tuple[int, int]:
    """Return the two values of a client's bit, in integer units: norm within the clip, and beyond.

    1 - quantile and -quantile, in clients: centred there, the sum's mean is 0 at the quantile that
    is sought, however many clients drop out.
    """
    within = round(2 * BIT_UNITS * (1 - quantile))
    return within, within - 2 * BIT_UNITS
