"""Set constant predictors, clients alone and all records beside the methods of a comparison."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zerosum.server.runs.records import Summary
from zerosum.server.runs.reference_words import alone_of, pooled_of, reference_of
from zerosum.simulations.report import words
from zerosum.simulations.report.compare import Comparison, Method, Spread

_Figures = Callable[[Summary], Mapping[str, float]]


@dataclass(frozen=True)
class ReferenceColumn:
    """A column of the table: what no method gives, under a metric's name.

    Attributes
    ----------
    title, key, metric : str
        For people; in ``compare.csv``; which metric it is of.
    figures : callable
        From a summary to figures by metric.
    """

    title: str
    key: str
    metric: str
    figures: _Figures

    def spread(self, method: Method) -> Spread | None:
        """Return the figure over a method's runs; None where one lacks it."""
        found = [self.figures(run.summary).get(self.metric) for _, run in method.runs]
        known = [value for value in found if value is not None]
        return Spread.of(known) if known and len(known) == len(found) else None

    def text(self, method: Method) -> str:
        """Write the figure for people."""
        spread = self.spread(method)
        return "–" if spread is None else spread.text(self.metric)


def reference_columns(comparison: Comparison) -> list[ReferenceColumn]:
    """Return the columns that some method has a figure for, of accuracy or else of the loss.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    list of ReferenceColumn
    """
    metric = "test_accuracy" if "test_accuracy" in comparison.metrics else "test_loss"
    constant = "Majority class" if metric == "test_accuracy" else "Mean predictor"
    columns = [
        ReferenceColumn(constant, f"constant_{metric}", metric, reference_of),
        ReferenceColumn("Clients alone, mean", f"alone_{metric}", metric, alone_of),
        ReferenceColumn("All records, no privacy", f"pooled_{metric}", metric, pooled_of),
    ]
    shown = comparison.shown
    return [one for one in columns if any(one.spread(method) is not None for method in shown)]


def references_in_words(comparison: Comparison) -> list[str]:
    """Return a line a column, for a terminal that has no room for more of them."""
    lines = []
    for column in reference_columns(comparison):
        texts = {method.label: column.text(method) for method in comparison.shown}
        what = f"{column.title}, {words.title(column.metric).lower()}"
        if len(set(texts.values())) == 1:
            lines.append(f"{what}: {next(iter(texts.values()))}")
        else:
            lines.append(f"{what}: {'; '.join(f'{text} ({m})' for m, text in texts.items())}")
    return lines
