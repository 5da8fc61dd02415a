"""Define ``[data]`` and ``[model]``: which records, whose, and what is trained on them."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from zerosum.client.spec.section import ColumnName, PositiveInt, Spec


class DataSpec(Spec):
    """The records of a run, and their division among clients."""

    path: str | Annotated[list[str], Field(min_length=1)] | None = None
    """File of the task's records: an npz for `mnist`; CSV, Parquet or NPZ for `table`; a text \
for `shakespeare`. The folder of the four files for `heart`. For `table` also several files: a \
list, or a pattern as `heart_*.csv`, whose files are taken in the order of their names."""
    name: str | None = None
    """Data set on the Hugging Face hub, for task `hf` (needs the extra `hf`)."""
    label: ColumnName = "label"
    """Column (or array) that holds the label. For `table` also a comparison, as `num > 0`: the \
label says whether it holds, and its columns are no inputs. A name is written in backticks where \
it could be taken for one."""
    target: Literal["auto", "classes", "values"] = "auto"
    """What labels are, for `table` and `hf`. `classes`: each its own kind. `values`: numbers to \
regress on. `auto`: texts, truths and whole numbers of few kinds are classes, other numbers are \
values; what could be both is refused."""
    features: list[ColumnName] | None = None
    """Columns used as inputs. Absent: all but the label, the client column and those in \
`exclude`; what is left out for another reason is named."""
    exclude: list[ColumnName] = []
    """Columns that are no inputs, for `table`."""
    missing: list[ColumnName] | None = None
    """Words that stand for a missing input, as `["", "?"]`, for `table`: numbers are filled with \
the column's mean over the public records, texts count as no category. Absent: a number that is \
missing is refused."""
    client_column: ColumnName | None = None
    """Column that names each record's client, for the natural partition. Absent: each of several \
files is a client."""
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """Character between the cells of a CSV. Absent: guessed, and said where it is no comma."""
    decimal: Literal[".", ","] | None = None
    """Decimal mark of numbers in texts. Absent: guessed, and said where it is no point."""
    thousands: Literal["none", ",", ".", " ", "'"] | None = None
    """Mark between thousands of numbers in texts. Absent: guessed, and said where there is one."""
    encoding: str | None = None
    """Encoding of a CSV, as `cp1252`. Absent: its byte order mark, else UTF-8 and nothing else."""
    header: bool | None = None
    """Whether the first line of a CSV holds names; without, columns are called 1, 2 and so on. \
Absent: it does, and a line that looks like a record is refused."""
    clients: PositiveInt | None = None
    """Number of clients. Absent: what the task suggests, or the natural partition has."""
    partition: Literal["iid", "dirichlet", "shards", "natural"] = "iid"
    """How training records are split over clients."""
    alpha: Annotated[float, Field(gt=0, le=1e6)] = 0.5
    """Concentration of the Dirichlet partition; smaller is more uneven."""
    shards_per_client: PositiveInt = 2
    """Label-sorted shards given to each client by the shards partition."""
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Part held out as public test data, where the data set has no test split of its own."""
    pool: PositiveInt = 1
    """Average pooling of images before training: 2 turns 28x28 into 14x14."""
    transform: Literal["none", "scattering", "unit"] = "none"
    """What is done to each record by itself. `scattering`: 81 channels of wavelet moduli at a \
quarter of an image's resolution, fixed, nothing learnt. `unit`: scaled to norm 1."""
    cache: str | None = None
    """Folder in which transformed records are kept from one run to the next."""
    project: PositiveInt | None = None
    """Project the transformed records on so many directions, and scale them to norm 1."""
    directions: Literal["random", "strokes"] = "random"
    """What records are projected on. `strokes`: the principal directions of the scattering \
features of random pen strokes, which the program draws, less their mean: no data is read for \
them."""
    limit: PositiveInt | None = None
    """Use only this many training records, drawn by the seed."""


class ModelSpec(Spec):
    """The built-in model to train; a task of one's own brings its own."""

    name: Literal["linear", "mlp", "cnn", "lstm", "transformer"] = "mlp"
    """Built-in architecture. `lstm` and `transformer` read text, the others take numbers."""
    hidden: list[Annotated[int, Field(gt=0, le=1_000_000)]] = [64]
    """Widths of the hidden layers of `mlp`, of the layers of `lstm`, or of the blocks of \
`transformer`, which are all as wide."""
    components: PositiveInt | None = None
    """Project inputs on so many principal components first. They are read from one private sum \
before the first round, which is charged like the others; for unit = "example" under \
`distributed`, `central` or `none`, and `linear` or `mlp`."""
    inputs: PositiveInt | None = None
    """Entries of one input, which must be known before any data are read: required with \
`components`, and with it alone."""
    bias: bool = True
    """Whether the output layer of `linear` and `mlp` has a bias. Where a clip is tight, a bias \
takes up much of it to say which classes a client has."""
    zero_output: bool = False
    """Start with an output layer of zeros: no class is favoured by chance, and none of the noise \
budget is spent on forgetting it."""

    @model_validator(mode="after")
    def _inputs_are_known(self) -> Self:
        if (self.components is None) != (self.inputs is None):
            given, absent = ("inputs", "components") if self.inputs else ("components", "inputs")
            raise ValueError(
                f"model.{given} = {getattr(self, given)} needs model.{absent} beside it, and "
                "without it has to be taken out"
            )
        if self.components is not None and self.inputs is not None:
            if self.components > self.inputs:
                raise ValueError(
                    f"model.components = {self.components} exceeds model.inputs = {self.inputs}: "
                    "lower it"
                )
            if self.name not in ("linear", "mlp"):
                raise ValueError(
                    f"model.components = {self.components} leave no image for model.name = "
                    f'"{self.name}": write model.name=linear or model.name=mlp'
                )
        return self

    @model_validator(mode="after")
    def _sequences_have_layers(self) -> Self:
        if self.name in ("lstm", "transformer") and not self.hidden:
            raise ValueError(
                f'model.hidden = [] leaves model.name = "{self.name}" without a layer: write a '
                "width or more, as model.hidden=[64]"
            )
        return self

    @property
    def public(self) -> int:
        """Entries of the vector of a request that are known and not trained: the components."""
        return (self.components or 0) * (self.inputs or 0)
