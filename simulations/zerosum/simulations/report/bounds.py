"""The report's section on an audit: what could be told, beside what the ledger allows."""

from statistics import median

from zerosum.server.privacy.rounding import epsilon_text
from zerosum.simulations.report import words
from zerosum.simulations.report.audited import Audited
from zerosum.simulations.report.html import Html, join, table, tag


def audit_section(found: Audited | None) -> Html:
    """Return the section that sets both bounds side by side; nothing without an audit."""
    if found is None:
        return Html()
    count = len(found.lower)
    if not found.passed:
        verdict = (
            "An observer of the sum could tell more than the ledger allows: something is wrong."
        )
    elif found.able:
        verdict = "No observer of the sum could tell more than the ledger allows."
    else:
        verdict = (
            f"This audit could not have failed: all guesses right would have shown "
            f"{found.largest:.2f} at most."
        )
    rows = [
        ["Canaries", *_spread(found.lower), epsilon_text(found.upper),
         "yes" if found.passed else "NO"],
        ["Coins nobody flipped for them", *_spread(found.null), "0 expected", ""],
    ]  # fmt: skip
    headers = ("Guesses about", "Lower bound, median", "Lowest to highest",
               "Upper bound, the ledger's", "Below it")  # fmt: skip
    setting = (
        f"{words.count(count, 'round')} of {found.canaries:,} clients, protocol "
        f"{found.protocol}, noise multiplier {found.noise_multiplier:g}: each sent a canary or "
        f"zero, as a coin said; from the sum {found.guesses:,} coins were guessed. Epsilon at "
        f"delta {words.delta(found.delta)}; each lower bound holds with confidence "
        f"{words.percent(found.confidence)}."
    )
    return tag(
        "section",
        tag("h2", "What an audit could tell"),
        tag("p", verdict),
        table(headers, rows, class_="stacked"),
        tag("p", join([setting]), class_="muted"),
    )


def _spread(values: tuple[float, ...]) -> list[str]:
    return [f"{median(values):.2f}", f"{min(values):.2f} to {max(values):.2f}"]
