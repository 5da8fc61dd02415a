"""Read records of real people, as published tables hold them: bundled, or from a file.

Without a path they are bundled with scikit-learn: 569 breast biopsies (Wolberg, Street, Mangasarian
1995), 442 diabetes patients (Efron, Hastie, Johnstone, Tibshirani 2004). A path names a CSV file of
the UCI repository: Heart Disease (its bit is ``num > 0``) or Adult (``income`` above 50,000
dollars).
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes

from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.attacks.harness.interface import NotApplicable
from zerosum.simulations.data.data_files import DataError

ADULT = ("age", "sex", "race", "marital", "type_employer", "education", "occupation")
"""Quasi-identifiers of Adult, in the order in which settings take them."""

DIABETES = ("age", "sex", "bmi", "bp", "s1", "s4", "s3")
"""Quasi-identifiers of the diabetes study: age, sex, body mass index, blood pressure, lipids."""

_BIN = {"bmi": 1.0, "bp": 5.0, "s1": 20.0, "s3": 5.0, "s4": 1.0}
"""Widths of bins, in each measurement's unit: an outsider knows them no more precisely."""


@dataclass(frozen=True)
class People:
    """Hold what is public about each person, and what is not.

    Attributes
    ----------
    names : tuple of str
        Of the quasi-identifiers.
    known : ndarray
        int64, shape (n, len(names)): quasi-identifiers, categories by code.
    secret : ndarray
        bool, shape (n,): the sensitive value.
    what : str
        The meaning of the sensitive value.
    """

    names: tuple[str, ...]
    known: np.ndarray
    secret: np.ndarray
    what: str


def dealt(purpose: str, among: int, wanted: int, seed: int) -> np.ndarray:
    """Return the people of one seed, who are of no other seed.

    All seeds' units are pooled into one figure. Its interval assumes different people.

    Parameters
    ----------
    purpose : str
        Names the order in which people are dealt.
    among, wanted : int
        People in all, and people of each seed.
    seed : int

    Returns
    -------
    ndarray of int64
        Shape (wanted,), from 0 to among - 1.

    Raises
    ------
    ValueError
        If there are fewer.
    NotApplicable
        If earlier seeds took too many.
    """
    if not 1 <= wanted <= among:
        raise ValueError(f"{purpose}: {wanted} of {among} people; choose 1 to {among}")
    if (seed + 1) * wanted > among:
        raise NotApplicable(
            f"{purpose}: seeds from 0 to {among // wanted - 1} take {wanted} people each, of "
            f"{among}, and nobody is counted twice; play fewer seeds or fewer people"
        )
    order = numpy_generator(0, purpose).permutation(among)
    own: np.ndarray = order[seed * wanted : (seed + 1) * wanted]
    return own


def private_bits(path: str) -> np.ndarray:
    """Return one private bit a person.

    Parameters
    ----------
    path : str
        Empty: the biopsies, and whether each was benign. Else a file, as above.

    Returns
    -------
    ndarray of bool
        Shape (n,).

    Raises
    ------
    DataError
        If there is no such file, or it is neither Heart Disease nor Adult.
    """
    if not path:
        bits: np.ndarray = load_breast_cancer().target == 1
        return bits
    frame = _read(path)
    if "num" in frame:
        return (frame["num"] > 0).to_numpy(dtype=bool)
    if "income" in frame:
        return (frame["income"] == ">50K").to_numpy(dtype=bool)
    raise DataError(f'path = "{path}" has no column "num" or "income": give heart or adult data')


def ages_of_groups() -> tuple[np.ndarray, np.ndarray]:
    """Return the ages in years, int64, of the diabetes patients of one sex and of the other."""
    frame = load_diabetes(as_frame=True, scaled=False).frame
    ages, sex = frame["age"].to_numpy().astype(np.int64), frame["sex"].to_numpy()
    return ages[sex == sex.min()], ages[sex == sex.max()]


@lru_cache(maxsize=2)
def people(path: str) -> People:
    """Return records with quasi-identifiers and a sensitive value.

    Parameters
    ----------
    path : str
        Empty: the diabetes patients; the value is a fasting blood sugar of 100 mg/dl or more. Else
        the Adult file; the value is an income above 50,000 dollars.

    Returns
    -------
    People

    Raises
    ------
    DataError
        If there is no such file, or it is not Adult.
    """
    if not path:
        frame = load_diabetes(as_frame=True, scaled=False).frame
        for name, width in _BIN.items():
            frame[name] = np.floor(frame[name] / width)
        known = frame[list(DIABETES)].to_numpy().astype(np.int64)
        secret = (frame["s6"] >= 100).to_numpy()
        return People(DIABETES, known, secret, "blood sugar of 100 mg/dl or more")
    frame = _read(path)
    missing = [name for name in (*ADULT, "income") if name not in frame]
    if missing:
        raise DataError(f'path = "{path}" has no column "{missing[0]}": give adult.csv')
    known = np.stack([_codes(frame[name]) for name in ADULT], axis=1)
    secret = (frame["income"] == ">50K").to_numpy()
    return People(ADULT, known, secret, "income above 50,000 dollars")


def _codes(column: pd.Series) -> np.ndarray:
    values = column.to_numpy()
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    return np.unique(values.astype(str), return_inverse=True)[1].astype(np.int64)


def _read(path: str) -> pd.DataFrame:
    if not Path(path).is_file():
        raise DataError(f'path = "{path}": no such file; leave it empty for bundled records')
    try:
        return pd.read_csv(path)
    except (ValueError, OSError) as error:
        raise DataError(f'path = "{path}" is no CSV file: {error}') from None
