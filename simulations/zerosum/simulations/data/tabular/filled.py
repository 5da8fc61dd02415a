"""Parts of the line that says how a file is read: what is missing, and what is public."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from zerosum.simulations.data.data_files import counted, listed
from zerosum.simulations.data.tabular.columns import Columns
from zerosum.simulations.data.tabular.inputs import Chosen


def filled_inputs(columns: Columns, chosen: Chosen, unknown: str) -> list[str]:
    """Return parts of the line that says how a file is read; none where nothing is missing.

    Parameters
    ----------
    columns : dict of str to numpy.ndarray
        Of the file; those with categories hold texts.
    chosen : Chosen
        Which are inputs.
    unknown : str
        What a text is that is none of its column's categories, in words.

    Returns
    -------
    list of str
        Parts of the line.
    """
    numbers = [name for name in chosen.names if name not in chosen.categories]
    missing = [name for name in numbers if _has_gaps(columns[name])]
    empty = [name for name in chosen.categories if (columns[name] == "").any()]
    strange = {
        n: int(is_strange(columns[n], texts).sum()) for n, texts in chosen.categories.items()
    }
    numbered = [f"{name} ({count:,})" for name, count in strange.items() if count]
    return [
        *([f"missing numbers filled: {listed(missing)}"] if missing else []),
        *([f"empty texts have no category: {listed(empty)}"] if empty else []),
        *(
            [f"some records have {unknown}, which counts as none: {listed(numbered)}"]
            if numbered
            else []
        ),
    ]


def public_said(count: int) -> str:
    """Return in words how many records are public."""
    return f"{counted(count, 'record')} {'is' if count == 1 else 'are'} public (data.test_fraction)"


def is_strange(texts: np.ndarray, categories: Sequence[str]) -> np.ndarray:
    """Tell which texts are there and are none of the categories; bool, shape (n,).

    Parameters
    ----------
    texts : numpy.ndarray
        Shape (n,).
    categories : sequence of str
        The known ones; an empty text is no category and not strange.

    Returns
    -------
    numpy.ndarray
        bool, shape (n,).
    """
    strange: np.ndarray = ~pd.Series(texts).isin([*categories, ""]).to_numpy()
    return strange


def _has_gaps(values: np.ndarray) -> bool:
    return values.dtype.kind == "f" and values.ndim <= 2 and bool(np.isnan(values).any())
