"""Questions as functions: one for each kind of query, with what it may cost."""

from collections.abc import Sequence
from typing import Literal, TypedDict, Unpack

from zerosum.server.analytics.asks import MechanismChoice
from zerosum.server.analytics.drafts import Draft


class Asked(TypedDict, total=False):
    """What every question has besides its columns.

    Attributes
    ----------
    where : str
        A filter, as ``'age >= 65 and sex = "Female"'``.
    name : str
        Of the answer's file.
    mechanism : str
        "geometric", "skellam", or "auto" for the less noisy.
    fresh : bool
        Whether a new answer is paid for where one is stored.
    attempts : int
        How often its sums may be charged, if too few clients are left the first time.
    """

    where: str | None
    name: str
    mechanism: MechanismChoice
    fresh: bool
    attempts: int


def count(*, epsilon: float, **asked: Unpack[Asked]) -> Draft:
    """Count records.

    Parameters
    ----------
    epsilon : float
        What the answer may cost.
    **asked
        As :class:`Asked` has them.

    Returns
    -------
    Draft
        For :meth:`~zerosum.simulations.queries.federation.Federation.ask`.
    """
    return Draft("count", epsilon, **asked)


def histogram(
    *columns: str, by: Sequence[str] | str = (), epsilon: float, **asked: Unpack[Asked]
) -> Draft:
    """Count the records of each value, or of each combination of up to four columns' values.

    Parameters
    ----------
    *columns : str
        Of the schema.
    by : str or sequence of str
        Further columns.
    epsilon : float
        What the answer may cost.
    **asked
        As :class:`Asked` has them.

    Returns
    -------
    Draft
        For :meth:`~zerosum.simulations.queries.federation.Federation.ask`.
    """
    split = [by] if isinstance(by, str) else list(by)
    fields = {"columns": list(columns), **({"by": split} if split else {})}
    return Draft("histogram", epsilon, fields, **asked)


def mean(column: str, *, epsilon: float, **asked: Unpack[Asked]) -> Draft:
    """Estimate the mean of a column.

    Parameters
    ----------
    column : str
        Integer or number.
    epsilon : float
        What the answer may cost.
    **asked
        As :class:`Asked` has them.

    Returns
    -------
    Draft
        For :meth:`~zerosum.simulations.queries.federation.Federation.ask`.
    """
    return Draft("mean", epsilon, {"column": column}, **asked)


def sum(column: str, *, epsilon: float, **asked: Unpack[Asked]) -> Draft:
    """Estimate the sum of a column.

    Parameters
    ----------
    column : str
        Integer or number.
    epsilon : float
        What the answer may cost.
    **asked
        As :class:`Asked` has them.

    Returns
    -------
    Draft
        For :meth:`~zerosum.simulations.queries.federation.Federation.ask`.
    """
    return Draft("sum", epsilon, {"column": column}, **asked)


def variance(column: str, *, epsilon: float, **asked: Unpack[Asked]) -> Draft:
    """Estimate the variance of a column.

    Parameters
    ----------
    column : str
        Integer or number.
    epsilon : float
        What the answer may cost.
    **asked
        As :class:`Asked` has them.

    Returns
    -------
    Draft
        For :meth:`~zerosum.simulations.queries.federation.Federation.ask`.
    """
    return Draft("variance", epsilon, {"column": column}, **asked)


def quantile(
    column: str,
    q: Sequence[float] | float = 0.5,
    *,
    epsilon: float,
    **asked: Unpack[Asked],
) -> Draft:
    """Estimate quantiles of a column.

    Parameters
    ----------
    column : str
        Integer or number.
    q : float or sequence of float
        In (0, 1).
    epsilon : float
        What the answer may cost, however many quantiles.
    **asked
        As :class:`Asked` has them.

    Returns
    -------
    Draft
        For :meth:`~zerosum.simulations.queries.federation.Federation.ask`.
    """
    levels = [q] if isinstance(q, int | float) else list(q)
    return Draft("quantile", epsilon, {"column": column, "q": levels}, **asked)


def words(
    column: str,
    *,
    top: int = 50,
    max_prefixes: int = 400,
    epsilon: float,
    **asked: Unpack[Asked],
) -> Draft:
    """Find the most frequent words of a text column.

    Parameters
    ----------
    column : str
        Of kind text.
    top : int
        Words in the answer.
    max_prefixes : int
        Prefixes that survive a round.
    epsilon : float
        What all rounds together may cost.
    **asked
        As :class:`Asked` has them.

    Returns
    -------
    Draft
        For :meth:`~zerosum.simulations.queries.federation.Federation.ask`.
    """
    fields = {"column": column, "top": top, "max_prefixes": max_prefixes}
    return Draft("words", epsilon, fields, **asked)


def bayes(label: str, features: Sequence[str], *, epsilon: float, **asked: Unpack[Asked]) -> Draft:
    """Fit a naive Bayes classifier.

    Parameters
    ----------
    label : str
        Column that is predicted.
    features : sequence of str
        Columns that predict it.
    epsilon : float
        What the answer may cost.
    **asked
        As :class:`Asked` has them.

    Returns
    -------
    Draft
        For :meth:`~zerosum.simulations.queries.federation.Federation.ask`.
    """
    return Draft("bayes", epsilon, {"label": label, "features": list(features)}, **asked)


def marginals(cliques: Sequence[Sequence[str]], *, epsilon: float, **asked: Unpack[Asked]) -> Draft:
    """Tabulate several combinations of columns at once.

    Parameters
    ----------
    cliques : sequence of sequence of str
        Columns of each table.
    epsilon : float
        What all of them together may cost.
    **asked
        As :class:`Asked` has them.

    Returns
    -------
    Draft
        For :meth:`~zerosum.simulations.queries.federation.Federation.ask`.
    """
    return Draft("marginals", epsilon, {"cliques": [list(each) for each in cliques]}, **asked)


def oracle(
    column: str,
    kind: Literal["auto", "rr", "k-rr", "oue", "olh", "hadamard"] = "auto",
    *,
    epsilon: float,
    **asked: Unpack[Asked],
) -> Draft:
    """Count values under the local model: each client's report is random by itself.

    Parameters
    ----------
    column : str
        Of the schema.
    kind : str
        How a client randomises; "auto" for the least variance.
    epsilon : float
        Of each report.
    **asked
        As :class:`Asked` has them.

    Returns
    -------
    Draft
        For :meth:`~zerosum.simulations.queries.federation.Federation.ask`.
    """
    return Draft("oracle", epsilon, {"column": column, "oracle": kind}, **asked)
