"""A naive Bayes classifier from noisy tables of the label with each feature."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from zerosum.client.queries.coding import cells_of
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import OTHER
from zerosum.client.queries.table import Table

LEAST_COUNT = 0.5
"""What a cell counts at least: noise makes counts negative, and no class is ruled out by one cell.
"""


@dataclass(frozen=True, eq=False)
class Classifier:
    """A naive Bayes classifier of labelled cells.

    Attributes
    ----------
    label : str
        Column that is predicted.
    classes : tuple of str
        Its values.
    log_prior : ndarray of float64, shape (classes,)
        Natural logarithm of each class' part of the records.
    features : tuple of str
        Columns that are read.
    cells : tuple of tuple of str
        Labels of each feature's cells.
    log_likelihoods : tuple of ndarray of float64, shapes (classes, cells)
        Natural logarithm of each cell's part of a class.
    """

    label: str
    classes: tuple[str, ...]
    log_prior: NDArray[np.float64]
    features: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    log_likelihoods: tuple[NDArray[np.float64], ...]

    def predict(self, table: Table) -> NDArray[np.int64]:
        """Return the most probable class of each row.

        Parameters
        ----------
        table : Table
            Whose schema gives the features the cells that the classifier knows.

        Returns
        -------
        ndarray of int64, shape (rows,)
            Places in ``classes``; of equal ones the first.

        Raises
        ------
        QueryError
            If a feature is absent, or has other cells.
        """
        best: NDArray[np.int64] = np.argmax(self.log_scores(table), axis=1).astype(np.int64)
        return best

    def log_scores(self, table: Table) -> NDArray[np.float64]:
        """Return each row's log-probability of each class, up to a constant.

        Parameters
        ----------
        table : Table
            As for :meth:`predict`; what a row lacks says nothing of it.

        Returns
        -------
        ndarray of float64, shape (rows, classes)

        Raises
        ------
        QueryError
            As for :meth:`predict`.
        """
        scores = np.tile(self.log_prior, (len(table), 1))
        for name, labels, likelihood in zip(
            self.features, self.cells, self.log_likelihoods, strict=True
        ):
            column = table.schema.column(name)
            if column.labels != labels:
                raise QueryError(
                    f'bayes: column "{name}" has other cells than the classifier was made of: '
                    "read the table by the schema of the query"
                )
            cells = cells_of(column, table.columns[name])
            scores += np.where(cells[:, None] >= 0, likelihood.T[np.maximum(cells, 0)], 0.0)
        return scores

    def to_json(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {
            "label": self.label,
            "classes": list(self.classes),
            "log_prior": self.log_prior.tolist(),
            "features": [
                {"column": name, "cells": list(cells), "log_likelihood": table.tolist()}
                for name, cells, table in zip(
                    self.features, self.cells, self.log_likelihoods, strict=True
                )
            ],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | str) -> Self:
        """Read what :meth:`to_json` wrote.

        Parameters
        ----------
        values : mapping or str
            Plain values, or their JSON.

        Returns
        -------
        Classifier

        Raises
        ------
        QueryError
            If they are of no classifier.
        """
        try:
            data = json.loads(values) if isinstance(values, str) else values
            features = data["features"]
            made = cls(
                str(data["label"]),
                tuple(map(str, data["classes"])),
                np.array(data["log_prior"], dtype=np.float64),
                tuple(str(each["column"]) for each in features),
                tuple(tuple(map(str, each["cells"])) for each in features),
                tuple(np.array(each["log_likelihood"], dtype=np.float64) for each in features),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise QueryError(f"bayes: no classifier can be read from it: {error!r}") from None
        shapes = [(len(made.classes), len(cells)) for cells in made.cells]
        fits = [table.shape for table in made.log_likelihoods] == shapes
        if not fits or made.log_prior.shape != (len(made.classes),):
            raise QueryError("bayes: the tables of the classifier do not fit its classes and cells")
        return made


def classifier(
    label: str,
    classes: Sequence[str],
    features: Sequence[str],
    cells: Sequence[Sequence[str]],
    tables: Sequence[NDArray[np.float64]],
) -> Classifier:
    """Return the classifier of noisy tables.

    Cells count 1/2 at least; the prior is that of the first table, whose records are all tables'.
    ``(other)`` is no class: nobody wants it predicted.

    Parameters
    ----------
    label : str
        Column that is predicted.
    classes : sequence of str
        Labels of its cells.
    features : sequence of str
        Columns that are read.
    cells : sequence of sequence of str
        Labels of each feature's cells.
    tables : sequence of ndarray of float64, shapes (classes, cells)
        Noisy counts.

    Returns
    -------
    Classifier
    """
    kept = [place for place, name in enumerate(classes) if name != OTHER]
    counts = [np.maximum(table[kept], LEAST_COUNT) for table in tables]
    prior = np.maximum(tables[0][kept].sum(axis=1), LEAST_COUNT)
    return Classifier(
        label,
        tuple(classes[place] for place in kept),
        np.log(prior / prior.sum()),
        tuple(features),
        tuple(map(tuple, cells)),
        tuple(np.log(table / table.sum(axis=1, keepdims=True)) for table in counts),
    )
