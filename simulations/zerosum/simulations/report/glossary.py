"""Explain words where they stand on a page: each as docs/glossary.md has it."""

from collections.abc import Mapping
from typing import Final

MEANINGS: Final[Mapping[str, str]] = {
    "accountant": (
        "The code that composes events into an epsilon. pld, rdp and their couplings are named "
        "beside each figure."
    ),
    "adjacency": (
        "Which two runs are compared. Zero-out: a client sends zero plus its noise. Replace: it "
        "sends anything else. Add-remove: it is there or not."
    ),
    "clip norm": "The bound C on the norm of a contribution.",
    "cohort": "The clients that one round asks.",
    "contribution": "One client's vector in one private sum.",
    "delta": (
        "Probability by which the epsilon guarantee may fail. Below one over the number of "
        "protected units."
    ),
    "dropout": "A client that vanished at a stage, or answered what cannot be read.",
    "epsilon": (
        "Bound on the privacy loss: what an observer sees is at most e^epsilon times as likely "
        "with one's data as without, plus delta. Smaller protects better."
    ),
    "mask": (
        "Keystream that two clients share; it is added by one, subtracted by the other, and "
        "cancels in the sum."
    ),
    "participation": "One contribution of a client that is counted against its privacy.",
    "survivor": "A client whose contribution is in the sum.",
    "unit": "Whom an epsilon protects: a client, an example, or a record of a query.",
}
"""By term, without the marks of Markdown."""
