"""Fails when a generated page of docs/ is not what the code says."""

import sys
from pathlib import Path

from zerosum.simulations.commands.configuration_page import keys_page

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))
import wire_example  # noqa: E402 (it lies beside the page that it writes)

PAGES = {"configuration.md": keys_page, "secagg-wire-example.md": wire_example.page}

for name, page in PAGES.items():
    if (DOCS / name).read_text(encoding="utf-8") != page():
        sys.exit(f"{name} is out of date: run `make docs`")
