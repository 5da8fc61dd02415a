"""Tell texts that are written for people, and mean dates or numbers."""

import re
from collections.abc import Collection

_YEAR, _MONTH, _DAY = "[0-9]{4}", "(?:0?[1-9]|1[0-2])", "(?:0?[1-9]|[12][0-9]|3[01])"
_TIME = (
    "(?:[T ][0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?: ?(?:Z|[+-][0-9]{2}:?[0-9]{2}))?)?"
)

# One mark between the parts, and a year of four digits: nothing else is written so. Which of two
# parts is the month may stay open: it is a date either way.
_DATE = re.compile(
    rf"(?:{_YEAR}([-/.]){_MONTH}\1{_DAY}|{_DAY}([-/.]){_MONTH}\2{_YEAR}|{_MONTH}([-/.]){_DAY}\3{_YEAR})"
    + _TIME
)

_MARKS = "[%$€£¥]"
_MARKED = re.compile(
    rf"[+-]?(?:({_MARKS}) ?[+-]?[0-9][0-9.,' ]*|[0-9][0-9.,' ]*({_MARKS}))|"
    rf"[+-]?[.,][0-9]+ ?({_MARKS})"
)


def are_dates(texts: Collection[str]) -> bool:
    """Tell whether all texts, of which there are some, are dates, with a time of day or without."""
    return bool(texts) and all(map(_DATE.fullmatch, texts))


def marks_of(texts: Collection[str]) -> str:
    """Return the marks, as "%", for which most of the texts are no numbers; "" if for none."""
    matches = [match for match in map(_MARKED.fullmatch, texts) if match is not None]
    if 2 * len(matches) <= len(texts):
        return ""
    return "".join(sorted({mark for match in matches for mark in match.groups() if mark}))
