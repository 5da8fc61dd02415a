"""In place of a hub that cannot be reached: data of the same columns and shapes, made here.

scikit-learn's digits, resized, stand for pictures, its iris for itself, tables of numbers are
drawn from a fixed seed with a rule that can be learnt, and short texts likewise. What a model
scores on them says nothing of the data whose name they bear.
"""

from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
from sklearn.datasets import load_digits, load_iris

SEED = 20

_Columns = dict[str, Any]


class NoStandInError(LookupError):
    """No stand-in is known for a data set."""


def load_dataset(
    path: str, name: str | None = None, *, split: str | None = None, **_: Any
) -> datasets.DatasetDict | datasets.Dataset:
    """Return what ``datasets.load_dataset`` would, made on this machine.

    Parameters
    ----------
    path : str
        Of the data set on the hub.
    name : str, optional
        Of its subset; not looked at.
    split : str, optional
        One of ``train`` and ``test``; all where absent.

    Returns
    -------
    DatasetDict or Dataset
        With columns and shapes of the hub's.

    Raises
    ------
    NoStandInError
        If nothing is known of such a data set.
    """
    for part, make in STAND_INS.items():
        if part in path.lower():
            made = make()
            return made if split is None else made[split]
    raise NoStandInError(
        f"no stand-in for the data set {path!r} (known: {', '.join(STAND_INS)}): add one to "
        "benchmarks/flower_stand_ins/stand_in_hub.py"
    )


def _parts(columns: _Columns, features: datasets.Features | None = None) -> datasets.DatasetDict:
    """Return a fifth of the rows as ``test``, the others as ``train``, in an order of chance."""
    order = np.random.default_rng(SEED).permutation(len(next(iter(columns.values()))))
    test, train = np.split(order, [len(order) // 5])
    return datasets.DatasetDict(
        {
            split: datasets.Dataset.from_dict(
                {key: [values[row] for row in rows] for key, values in columns.items()},
                features=features,
            )
            for split, rows in (("train", train), ("test", test))
        }
    )


def _pictures(
    picture: str, labels: tuple[str, ...], side: int, mode: str
) -> Callable[[], datasets.DatasetDict]:
    """Return a maker of digits as pictures, ``side`` pixels high and wide."""

    def make() -> datasets.DatasetDict:
        from PIL import Image

        digits = load_digits()
        scaled = (digits.images * (255 / 16)).astype(np.uint8)
        drawn = [Image.fromarray(one).resize((side, side)).convert(mode) for one in scaled]
        classes = digits.target.tolist()
        features = {picture: datasets.Image()} | {
            label: datasets.ClassLabel(names=[str(number) for number in range(10)])
            for label in labels
        }
        columns = {picture: drawn} | dict.fromkeys(labels, classes)
        return _parts(columns, datasets.Features(features))

    return make


def _writers() -> datasets.DatasetDict:
    """Return digits of ten writers, as FEMNIST has them."""
    made = _pictures("image", ("character",), 28, "L")()
    return datasets.DatasetDict(
        {
            split: rows.add_column(
                "writer_id", [f"f{index % 10:04d}" for index in range(len(rows))]
            )
            for split, rows in made.items()
        }
    )


def _iris(names: tuple[str, ...], species: str, words: bool) -> Callable[[], datasets.DatasetDict]:
    def make() -> datasets.DatasetDict:
        flowers = load_iris()
        columns: _Columns = dict(zip(names, flowers.data.T.tolist(), strict=True))
        kinds = [f"Iris-{name}" for name in flowers.target_names]
        classes = flowers.target.tolist()
        columns[species] = [kinds[one] for one in classes] if words else classes
        return datasets.DatasetDict({"train": datasets.Dataset.from_dict(columns)})

    return make


def _census(rows: int = 4000) -> datasets.DatasetDict:
    """Return people whose income depends on age, years of education and hours of work."""
    chance = np.random.default_rng(SEED)
    age, years = chance.integers(17, 90, rows), chance.integers(1, 17, rows)
    hours, gain = chance.integers(1, 99, rows), chance.integers(0, 9999, rows)
    score = 0.03 * (age - 50) + 0.4 * (years - 9) + 0.03 * (hours - 50) + chance.normal(size=rows)

    def words(*options: str) -> list[str]:
        return chance.choice(np.array(options), rows).tolist()  # type: ignore[no-any-return]

    return _table(
        {
            "age": age.tolist(),
            "workclass": words("Private", "State-gov", "Self-emp-inc"),
            "fnlwgt": chance.integers(10_000, 1_000_000, rows).tolist(),
            "education": [f"{one}-years" for one in years],
            "education.num": years.tolist(),
            "marital.status": words("Divorced", "Never-married", "Widowed"),
            "occupation": words("Sales", "Tech-support", "Craft-repair"),
            "relationship": words("Husband", "Wife", "Unmarried"),
            "race": words("White", "Black", "Other"),
            "sex": words("Female", "Male"),
            "capital.gain": gain.tolist(),
            "capital.loss": chance.integers(0, 4000, rows).tolist(),
            "hours.per.week": hours.tolist(),
            "native.country": words("United-States", "Mexico", "India"),
            "income": np.where(score > 0.5, ">50K", "<=50K").tolist(),
        }
    )


def _collisions(rows: int = 4000) -> datasets.DatasetDict:
    """Return 28 numbers a row and a label, as HIGGS has them."""
    chance = np.random.default_rng(SEED)
    inputs = chance.normal(size=(rows, 28)).astype(np.float32)
    label = (inputs[:, 0] * inputs[:, 1] + inputs[:, 2] > 0).astype(np.float32)
    return _table({"label": label.tolist(), "inputs": inputs.tolist()})


def _houses(rows: int = 4000) -> datasets.DatasetDict:
    names = ("MedInc", "HouseAge", "AveRooms", "AveBedrms", "Population", "AveOccup")
    chance = np.random.default_rng(SEED)
    inputs = chance.normal(size=(rows, 8))
    price = inputs @ np.linspace(1, 0.1, 8) + 0.1 * chance.normal(size=rows)
    columns: _Columns = dict(zip((*names, "Latitude", "Longitude"), inputs.T.tolist(), strict=True))
    return _table({**columns, "MedHouseVal": price.tolist()})


def _reviews(rows: int = 1000) -> datasets.DatasetDict:
    """Return texts of a few words, half of them good ones."""
    chance = np.random.default_rng(SEED)
    sides = (("dull", "weak", "sad", "poor"), ("fine", "bright", "good", "warm"))
    labels = chance.integers(0, 2, rows).tolist()
    texts = [" ".join(chance.choice(sides[one], 8)) for one in labels]
    features = {
        "text": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["neg", "pos"]),
    }
    return _parts({"text": texts, "label": labels}, datasets.Features(features))


def _table(columns: _Columns) -> datasets.DatasetDict:
    return datasets.DatasetDict({"train": datasets.Dataset.from_dict(columns)})


STAND_INS: dict[str, Callable[[], datasets.DatasetDict]] = {
    "cifar100": _pictures("img", ("fine_label", "coarse_label"), 32, "RGB"),
    "cifar10": _pictures("img", ("label",), 32, "RGB"),
    "femnist": _writers,
    "mnist": _pictures("image", ("label",), 28, "L"),
    "scikit-learn/iris": _iris(
        ("SepalLengthCm", "SepalWidthCm", "PetalLengthCm", "PetalWidthCm"), "Species", True
    ),
    "iris": _iris(("sepal_length", "sepal_width", "petal_length", "petal_width"), "species", False),
    "adult": _census,
    "higgs": _collisions,
    "california": _houses,
    "imdb": _reviews,
}
"""By a part of the data set's name, the first that fits: ``mnist`` is Fashion-MNIST's too."""
