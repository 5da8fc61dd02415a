"""Writing the app: templates filled in with what was found of the data."""

import os
import shutil
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from uuid import uuid4

import tomli_w

from zerosum.client.files.file_errors import reason
from zerosum.client.files.named_files import named_files
from zerosum.client.files.operating_system import readable
from zerosum.client.task import error_line
from zerosum.server.config import ConfigError
from zerosum.simulations.data.data_files import DataError, check_distinct
from zerosum.simulations.new.description import DataDescription, literal
from zerosum.simulations.new.kinds import WORDS, Kind, kind_of, package_of
from zerosum.simulations.new.look import look, reading_of
from zerosum.simulations.new.recipes import Recipe, checked_recipe, protected_of
from zerosum.simulations.new.samples import write_sample
from zerosum.simulations.new.texts import experiment_texts, readme_texts

_FILES = {
    "pyproject.toml": "pyproject.toml",
    "experiment.toml": "experiment.toml",
    "policy.toml": "policy.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
}

_MLP = """\
return nn.Sequential(
    nn.Flatten(), nn.Linear({inputs}, 64), nn.ReLU(), nn.Linear(64, OUTPUTS)
)"""

_CNN = """\
channels, height, width = SHAPE
return nn.Sequential(
    nn.Conv2d(channels, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(32 * (height // 4) * (width // 4), OUTPUTS),
)"""

_LINEAR = """\
model = nn.Sequential(nn.Flatten(), nn.Linear({inputs}, OUTPUTS))
nn.init.zeros_(model[1].weight)  # no class is favoured by chance
nn.init.zeros_(model[1].bias)
return model"""

_CHECK_PARTITION = """\
if data.partition == "natural":
    raise TaskError(
        'data.partition = "natural": this task knows "iid", "dirichlet" and "shards"; '
        "edit data(client) in {package}/task.py to split records otherwise"
    )
"""

_NATURAL_CLIENTS = """\
if self.spec.partition == "natural" and self.paths:
    return int(natural_owners(self.split.train).max()) + 1
"""

_TRAINING = "epochs = 2\nbatch_size = 20\nlr = 0.1"
_CNN_TRAINING = "epochs = 5\nbatch_size = 10\nlr = 0.05\nmomentum = 0.9"

_CLASS_LOSS = 'return nn.functional.cross_entropy(outputs, targets, reduction="none")'
_VALUE_LOSS = "return (outputs.squeeze(1) - targets).square()"

_VALUE_METRICS = """\
loss_unit = LABEL_SCALE**2  # reported losses are in the label's unit squared
public_metrics = ("r2",)  # by the variance of the public records, which no client has

def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    \"\"\"Return absolute errors, in the label's unit, and parts of R^2, shape (n,).\"\"\"
    error = outputs.squeeze(1) - targets
    return {
        "mean_absolute_error": error.abs() * LABEL_SCALE,
        "r2": 1 - error.square() / self.variance,
    }

@cached_property
def variance(self) -> float:
    \"\"\"Variance of the public targets; 1 where they are all the same, or there are none.\"\"\"
    try:
        return float(self.split.test.targets.var(dtype=np.float64)) or 1.0
    except TaskError:  # no file, or one too small to split, as a node's own may be
        return 1.0
"""

_DESCRIBED = """\
def data_summary(self) -> dict[str, str] | None:
    \"\"\"Return what is read of data.path, for the summary, if it is here.\"\"\"
    if not self.paths:
        return None
    return {"line": described(list(self.paths), len(self.split.test))}
"""


@dataclass(frozen=True)
class Made:
    """An app that was written.

    Parameters
    ----------
    folder, package : Path, str
        Where it is, and the name of its Python package.
    kind : Kind
        Of its data.
    data : str or list of str
        Where its data are, seen from the folder: as data.path has it.
    found : DataDescription
        What its data are like.
    recipe : Recipe
        What protects whom.
    """

    folder: Path
    package: str
    kind: Kind
    data: str | list[str]
    found: DataDescription
    recipe: Recipe

    @property
    def data_words(self) -> str:
        """Where its data are, in words."""
        return self.data if isinstance(self.data, str) else ", ".join(self.data)


@dataclass(frozen=True)
class Asked:
    """What ``zerosum new`` was asked for, beside the folder.

    Parameters
    ----------
    data : tuple of str
        Files, a folder, or patterns. Default: a sample that is written into the app.
    kind : Kind, optional
        Of the data. Default: what the path's ending says, or CSV for a sample.
    label : str, optional
        Column, or array, of the labels, or a comparison. Default: one that is named as labels are,
        or the last.
    settings : tuple of str
        How a table is read, as ``data.decimal=","``.
    privacy : str, optional
        Who is protected by noise. Default: nobody.
    epsilon : float, optional
        Of all rounds, against the server.
    client_column : str, optional
        Column of a table that names each record's client.
    """

    data: tuple[str, ...] = ()
    kind: Kind | None = None
    label: str | None = None
    settings: tuple[str, ...] = ()
    privacy: str | None = None
    epsilon: float | None = None
    client_column: str | None = None


def make_app(folder: Path, asked: Asked) -> Made:
    """Write an app into a new folder, all of it or nothing.

    Parameters
    ----------
    folder : Path
        Absent until now; its last part is the app's name.
    asked : Asked
        What it is for.

    Returns
    -------
    Made
        The folder, and what its data are.

    Raises
    ------
    ConfigError
        One line that names the option, its value, what is allowed and the cure.
    """
    package = package_of(folder.name)
    check_free(folder)
    protected = protected_of(asked.privacy)
    if not asked.data:
        for option, value in {"label": asked.label, "client-column": asked.client_column}.items():
            if value is not None:
                raise ConfigError(
                    f"--{option} {value}: there are no data that it could be in; give --data"
                )
    files = _files_of(asked.data, asked.client_column)
    chosen = asked.kind or Kind.CSV
    for file in files:
        chosen = kind_of(file, asked.kind)
        if chosen is not kind_of(files[0], asked.kind):
            raise ConfigError(f"--data {file}: another kind than {files[0]}; give files of one")
    reading = reading_of(asked.settings, chosen)
    # Beside the folder, so that a rename makes it appear at once.
    begun = folder.with_name(f".{folder.name}-{uuid4().hex}")
    try:
        begun.mkdir()
        paths: str | list[str]
        if not files:
            sample = write_sample(begun / "data", chosen)
            files, paths = (sample,), f"data/{sample.name}"
        elif len(files) == 1 or len(asked.data) == 1:
            paths = _seen_from(folder, Path(asked.data[0]))
        else:
            paths = [_seen_from(folder, file) for file in files]
        description = look(files, chosen, asked.label, reading, asked.client_column)
        recipe = checked_recipe(protected, asked.epsilon, description, f"{package}.task:Task")
        made = Made(folder, package, chosen, paths, description, recipe)
        _write(begun, made)
        begun.rename(folder)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"NAME {folder}: cannot be written: {reason(folder, error)}") from None
    finally:
        shutil.rmtree(begun, ignore_errors=True)
    return made


def _files_of(data: tuple[str, ...], client_column: str | None) -> tuple[Path, ...]:
    """Return the files that --data names, patterns too."""
    files: list[Path] = []
    for name in data:
        try:
            found = named_files(name)
        except (OSError, RuntimeError, ValueError) as error:
            raise ConfigError(f"--data {name}: {error_line(error)}"[:300]) from None
        if not found:
            raise ConfigError(f"--data {name}: no file fits this pattern")
        files += found
    absent = [file for file in files if not file.exists()]
    if not absent:
        try:
            check_distinct(files, "--data")
        except DataError as error:
            raise ConfigError(str(error)) from None
    if len(files) > 1 and client_column is not None:
        raise ConfigError(
            f"--client-column {client_column}: each of {len(files)} files is a client; leave it "
            "out, or give one file"
        )
    return tuple(files)


def check_free(folder: Path) -> None:
    """Check that a folder can be made.

    Parameters
    ----------
    folder : Path
        Absent until now.

    Raises
    ------
    ConfigError
        If it is there, or nothing that it could be in.
    """
    if os.path.lexists(folder):
        raise ConfigError(f"NAME {folder}: it exists already; choose another, or remove it")
    if not folder.parent.is_dir():
        raise ConfigError(f"NAME {folder}: there is no folder {folder.parent}; create it first")


def _seen_from(folder: Path, data: Path) -> str:
    """Return the way from a folder that is to be to the data, right through links on the way.

    A path that was given whole stays so: it holds wherever the app is moved.
    """
    if data.is_absolute():
        return readable(data.as_posix())
    there = data.absolute().parent.resolve() / data.name
    way = os.path.relpath(there, folder.parent.resolve() / folder.name)
    return readable(Path(way).as_posix())


def _write(folder: Path, made: Made) -> None:
    values = _values(made)
    for name, template in _FILES.items():
        (folder / name).write_text(filled(template, values), encoding="utf-8", newline="\n")
    package = folder / made.package
    package.mkdir()
    texts = {
        "__init__.py": f'"""The Flower app {made.folder.name}: its task and its data."""\n',
        "task.py": filled("task.py", values),
        "data.py": filled(_data_template(made.kind), values),
    }
    for name, text in texts.items():
        (package / name).write_text(text, encoding="utf-8", newline="\n")


def _data_template(kind: Kind) -> str:
    return f"{kind}.py" if kind in (Kind.NPZ, Kind.IMAGES) else "table.py"


def _values(made: Made) -> dict[str, str]:
    """Return what the templates' placeholders stand for."""
    description, images = made.found, made.kind is Kind.IMAGES
    flat = made.kind in (Kind.CSV, Kind.PARQUET)
    recipe, natural = made.recipe, description.clients is not None
    form = _LINEAR if recipe.private else _CNN if images else _MLP
    several = natural and description.client_column is None
    model = form if form is _CNN else form.format(inputs="SHAPE[0]" if flat else "prod(SHAPE)")
    imports_prod = not flat and form is not _CNN
    valued = description.classes is None
    encoding = "values" if valued else "classes"
    return {
        "name": made.folder.name,
        "package": made.package,
        "task": f"{made.package}.task:Task",
        "path": tomli_w.dumps({"path": made.data}).strip(),
        "path_words": made.data_words,
        "clients": str(recipe.clients),
        "nodes": str(recipe.nodes),
        "task_imports": ("from math import prod\n" if imports_prod else "")
        + "from pathlib import Path\n",
        "model": _indented(model),
        **experiment_texts(recipe, _CNN_TRAINING if images else _TRAINING),
        **readme_texts(recipe, made.data, several),
        "partition": '\npartition = "natural"' if natural else "",
        "check_partition": ""
        if natural
        else _indented(_CHECK_PARTITION.format(package=made.package)) + "\n",
        "natural_clients": _indented(_NATURAL_CLIENTS) + "\n" if natural else "",
        "more_data_imports": "    natural_owners,\n" if natural else "",
        "loss": _indented(_VALUE_LOSS if valued else _CLASS_LOSS),
        "classes": _classes(description),
        "outputs": "OUTPUTS = 1" if valued else "OUTPUTS = len(CLASSES)",
        "encoding": encoding,
        "label_words": "scale=(LABEL_CENTRE, LABEL_SCALE)" if valued else "classes=CLASSES",
        "declared": ",\n    ".join(
            sorted(
                [
                    *("codes_of", "declared_inputs", "declared_labels", "declared_line"),
                    *(f"declared_{encoding}", "read_table"),
                ]
            )
        ),
        "imported": ", ".join(_imported(valued=valued, flat=flat)),
        "more_members": _members(valued=valued, flat=flat),
        "pandas": "import pandas as pd\n" if description.scaling == "columns" else "",
        "scaled": filled(f"fragments/scaled_{description.scaling}.py", {}).strip(),
        "encoded": filled(f"fragments/encoded_{encoding}.py", {}).strip(),
        "kind_words": WORDS[made.kind],
        "kind_title": "CSV" if made.kind is Kind.CSV else "Parquet",
        "columns_words": "size and classes" if images else "columns and classes",
        "own_words": "a folder of images" if images else "a file",
        "own_example": "images" if images else f"mine.{made.kind}",
        **description.constants,
    }


def _classes(description: DataDescription) -> str:
    if description.classes is not None:
        return f"CLASSES = {literal(description.classes)}"
    return (
        "CLASSES = None  # the labels are values\n"
        f"LABEL_CENTRE, LABEL_SCALE = {description.label_centre!r}, {description.label_scale!r}"
        "  # about their mean and deviation"
    )


def _imported(*, valued: bool, flat: bool) -> list[str]:
    """Return what task.py takes from data.py, in order."""
    return [
        "CLASSES",
        *(["LABEL_SCALE"] if valued else []),
        "OUTPUTS",
        "SHAPE",
        *(["described"] if flat else []),
        "read",
        "scaled",
    ]


def _members(*, valued: bool, flat: bool) -> str:
    """Return further members of the task, each followed by an empty line."""
    members = [_VALUE_METRICS] * valued + [_DESCRIBED] * flat
    lines = "\n".join(members).splitlines()
    text = "".join(f"    {line}\n" if line else "\n" for line in lines)
    return f"{text}\n" if text else ""


def _indented(code: str) -> str:
    return "\n".join(" " * 8 + line for line in code.splitlines())


def filled(name: str, values: dict[str, str]) -> str:
    """Return a template with its placeholders filled in.

    Parameters
    ----------
    name : str
        Of a file under ``templates``, without its ending.
    values : dict of str to str
        By placeholder.

    Returns
    -------
    str
        The text.
    """
    path = resources.files("zerosum.simulations.new") / "templates" / f"{name}.tmpl"
    return Template(path.read_text(encoding="utf-8")).substitute(values)
