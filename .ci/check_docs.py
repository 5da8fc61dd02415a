"""Fails when docs/configuration.md is not what the specs say."""

import sys
from pathlib import Path

from zerosum.simulations.keys_page import keys_page

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

if PAGE.read_text(encoding="utf-8") != keys_page():
    sys.exit(f"{PAGE.name} is out of date: run `make docs`")
