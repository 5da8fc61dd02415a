"""What a page says of a word is what the glossary says."""

import re
from pathlib import Path

from zerosum.simulations.report.glossary import MEANINGS

PAGE = Path(__file__).parents[3] / "docs" / "glossary.md"


def test_meanings_on_pages_are_those_of_the_glossary() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), re.M)
    glossary = {term.split(" (")[0]: re.sub(r"[`*]", "", meaning) for term, meaning in rows}
    for term, meaning in MEANINGS.items():
        assert glossary[term.removesuffix(" C")] == meaning, term
