"""Text from elsewhere, made fit for a terminal or a line of a file."""


def printable(text: str) -> str:
    """Return text as one line; what steers a terminal or turns letters around is an escape."""
    return "".join(map(_seen, text)).strip()


def printable_lines(text: str) -> str:
    """Return text with its line ends, and else as :func:`printable` does."""
    return "\n".join("".join(map(_seen, line)) for line in text.splitlines())


def _seen(character: str) -> str:
    if character.isspace():
        return " "
    return character if character.isprintable() else ascii(character)[1:-1]
