"""Fails when a generated page of docs/ is not what the code says."""

import sys
from pathlib import Path

from zerosum.secagg import example
from zerosum.simulations.keys_page import keys_page

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {"configuration.md": keys_page, "secagg-wire-example.md": example.page}

for name, page in PAGES.items():
    if (DOCS / name).read_text(encoding="utf-8") != page():
        sys.exit(f"{name} is out of date: run `make docs`")
