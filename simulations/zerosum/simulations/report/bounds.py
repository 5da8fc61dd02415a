"""Set an audit's lower bounds on epsilon beside the ledger's upper bound, in words."""

from statistics import median
from typing import Any

from zerosum.server.privacy.rounding import epsilon_text
from zerosum.simulations.report import words
from zerosum.simulations.report.audited import Audited


def audit_section(audit: Audited | None) -> dict[str, Any] | None:
    """Put an audit into words: its verdict, a table's rows, its setting; None without an audit."""
    if audit is None:
        return None
    setting = (
        f"{words.count(len(audit.lower), 'round')} of {audit.canaries:,} clients, protocol "
        f"{audit.protocol}, noise multiplier {audit.noise_multiplier:g}. A coin decided whether a "
        f"client sent its canary or zero; {audit.guesses:,} coins were guessed from the sum. "
        f"Epsilon at delta {words.delta(audit.delta)}; each lower bound holds with confidence "
        f"{words.percent(audit.confidence)}."
    )
    upper, below = epsilon_text(audit.upper), "yes" if audit.passed else "NO"
    rows = [
        ["Canaries", *_spread(audit.lower), upper, below],
        ["Control: coins of no canary", *_spread(audit.null), "0 expected", ""],
    ]
    return {"verdict": _verdict(audit), "rows": rows, "setting": setting}


def _verdict(audit: Audited) -> str:
    if not audit.passed:
        return (
            "FAILED: an observer of the sum tells more than the ledger allows. Do not rely on the "
            "figures of this run."
        )
    if audit.able:
        return "Passed: no observer of the sum told more than the ledger allows."
    return (
        "This audit could not have failed: even if all guesses were right, it would have shown "
        f"{audit.largest:.2f} at most."
    )


def _spread(values: tuple[float, ...]) -> list[str]:
    return [f"{median(values):.2f}", f"{min(values):.2f} to {max(values):.2f}"]
