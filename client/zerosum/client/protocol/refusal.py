"""The refusal of a client to take part."""


class Declined(Exception):
    """Refusal to take part; its message is for the client's own log."""
