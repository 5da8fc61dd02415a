"""Set an audit's lower bounds on epsilon beside the ledger's upper bound, in words."""

from statistics import median
from typing import Any

from zerosum.simulations.report import words
from zerosum.simulations.report.audited import Audited


def audit_section(audit: Audited | None) -> dict[str, Any] | None:
    """Put an audit into words: its verdict, a table's rows, its setting; None without an audit."""
    if audit is None:
        return None
    setting = (
        f"{words.count(len(audit.lower), 'round')} of {audit.canaries:,} clients, protocol "
        f"{audit.protocol}, noise multiplier {audit.noise_multiplier:g}: each sent a canary or "
        f"zero, as a coin said; from the sum {audit.guesses:,} coins were guessed. Epsilon at "
        f"delta {words.delta(audit.delta)}; each lower bound holds with confidence "
        f"{words.percent(audit.confidence)}."
    )
    upper, below = words.epsilon(audit.upper), "yes" if audit.passed else "NO"
    rows = [
        ["Canaries", *_spread(audit.lower), upper, below],
        ["Coins nobody flipped for them", *_spread(audit.null), "0 expected", ""],
    ]
    return {"verdict": _verdict(audit), "rows": rows, "setting": setting}


def _verdict(audit: Audited) -> str:
    if not audit.passed:
        return "An observer of the sum could tell more than the ledger allows: something is wrong."
    if audit.able:
        return "No observer of the sum could tell more than the ledger allows."
    return (
        "This audit could not have failed: all guesses right would have shown "
        f"{audit.largest:.2f} at most."
    )


def _spread(values: tuple[float, ...]) -> list[str]:
    return [f"{median(values):.2f}", f"{min(values):.2f} to {max(values):.2f}"]
