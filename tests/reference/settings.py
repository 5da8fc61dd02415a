"""Settings and counts of a run's folder, or a plan, read without the project's code."""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy.stats import binom

AMPLIFIED = {"poisson"}
KNOWN = {"everyone", "fixed", "once"}
OBSERVERS = ("release", "sum", "local")


class NotCoveredError(ValueError):
    """A setting that this recomputation has no formula for."""


@dataclass(frozen=True)
class Part:
    """One vector of a sum: sensitivities and the guaranteed variance V, all in integer units."""

    l2: float
    l1: float
    variance: float
    length: int


@dataclass(frozen=True)
class Mechanism:
    """What one kind of sum is noised with: integer parts, or one Gaussian over its clip."""

    parts: tuple[Part, ...] = ()
    gaussian: float | None = None
    example_rate: float = 1.0


@dataclass
class Tally:
    """Who contributed to which sums, how large they were, how many were opened, who was lost."""

    clients: dict[int, Counter[tuple[str, int]]] = field(default_factory=dict)
    opened: Counter[str] = field(default_factory=Counter)
    smallest: int = 0
    drops: list[tuple[int, int]] = field(default_factory=list)

    def distinct(self) -> list[Counter[tuple[str, int]]]:
        unlike = {frozenset(each.items()): each for each in self.clients.values()}
        return list(unlike.values())


@dataclass(frozen=True)
class Setting:
    """Everything that a figure depends on."""

    name: str
    model: str
    unit: str
    delta: float
    fraction: float
    colluders: int
    groups: int
    population: int
    sampling: str
    rate: float
    dropout: float
    top_up: bool
    mechanisms: dict[str, Mechanism]
    tally: Tally
    printed: dict[str, Any]


def read(path: Path, config: Path | None = None, rounds: int | None = None) -> Setting:
    """Read a run's folder, up to a round or whole, or a plan's JSON beside its configuration."""
    if path.is_dir():
        return _of_run(path, tomllib.loads((path / "config.toml").read_text()), rounds)
    if config is None:
        raise NotCoveredError(f"{path} is a plan: give its configuration, --config FILE")
    return _of_plan(json.loads(path.read_text()), tomllib.loads(config.read_text()))


# The encoding: how many integer units a clip is, from the bits of one coordinate.


def _padded(length: int, rotate: bool) -> int:
    return 1 << max(0, length - 1).bit_length() if rotate else length


def sensitivities(
    clip: float, limit: float | None, bits: int, length: int, *, records: bool, rotate: bool
) -> tuple[float, float]:
    """Delta2 and Delta1 of a clipped vector, or of a sum of clipped records, after rounding."""
    root = math.sqrt(length)
    if limit is None:
        limit = 6 * clip / root if rotate else clip
    bound = 2 ** (bits - 1) - 1
    if records:
        bound = max(bound, math.ceil(100 * root * limit / clip))
    scaled = clip * bound / limit
    if records:
        return scaled + root, root * (scaled + root)
    # beta = exp(-1/2): sqrt(2 ln(1/beta)) = 1.
    l2 = min(scaled + root, math.sqrt(scaled**2 + length / 4 + scaled + root / 2))
    return l2, l2 * min(root, l2)


def _vector(config: dict[str, Any], z: float, length: int, clip: float | None = None) -> Part:
    privacy, encoding = config["privacy"], config["encoding"]
    l2, l1 = sensitivities(
        privacy["clip"] if clip is None else clip,
        encoding.get("range"),
        encoding["bits"],
        length,
        records=privacy["unit"] == "example",
        rotate=encoding["rotate"],
    )
    return Part(l2, l1, (z * l2) ** 2, length)


def training_mechanism(config: dict[str, Any], z: float, length: int) -> Mechanism:
    """The mechanism of training rounds; `length` is of the update alone, padding included."""
    privacy = config["privacy"]
    if privacy["mechanism"] not in ("auto", "skellam", "binned-gaussian"):
        raise NotCoveredError(f"privacy.mechanism = {privacy['mechanism']!r}")
    example = privacy["unit"] == "example"
    rate = privacy["lot"] / privacy["examples"] if example else 1.0
    if privacy["model"] != "distributed":
        if example:
            raise NotCoveredError("steps of DP-SGD within a client's own training")
        return Mechanism(gaussian=z)
    if privacy["clipping"] != "adaptive":
        return Mechanism((_vector(config, z, length),), example_rate=rate)
    # One coordinate more, a bit centred at the quantile, jointly worth z: Andrew et al. (2021).
    reach = max(privacy["clip_quantile"], 1 - privacy["clip_quantile"])
    bit = privacy["clip_noise"] * z
    update = (z**-2 - (reach / bit) ** 2) ** -0.5
    # The integers' scale hardly matters (Delta1 / mu): 1,024 for `reach`, as a header says too.
    scale = 1024 / reach
    joined = Part(1024.0, 1024.0, (bit * scale) ** 2, 1)
    return Mechanism((_vector(config, update, length), joined), example_rate=rate)


# Runs.


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _of_run(folder: Path, config: dict[str, Any], rounds: int | None) -> Setting:
    lines = lines_of(folder / "ledger.jsonl")
    summary = json.loads((folder / "summary.json").read_text())
    header = next(line for line in lines if line["type"] == "run")
    printed = summary["epsilon"]
    if rounds is not None:
        lines = [line for line in lines if "key" not in line or line["key"][0] <= rounds]
        metrics = [m for m in lines_of(folder / "metrics.jsonl") if m["round"] == rounds]
        printed = {name: {"value": value} for name, value in metrics[-1]["epsilon"].items()}
    rotate = config["encoding"]["rotate"]
    mechanisms = {}
    for kind, line in header.get("kinds", {}).items():
        if kind == "train":
            z, dimension = config["privacy"]["noise_multiplier"], summary["dimension"]
            mechanisms[kind] = training_mechanism(config, z, _padded(dimension, rotate))
        elif line["event"] is not None:
            mechanisms[kind] = _of_header(line)
    tally = tally_of(lines)
    return _setting(config, header["population"], mechanisms, tally, printed)


def _of_header(line: dict[str, Any]) -> Mechanism:
    """Evaluations and components: their encodings are their own, their header is believed."""
    events = line["event"] if isinstance(line["event"], list) else [line["event"]]
    example = line.get("example") or {"q": 1.0, "steps": 1}
    if example["steps"] != 1:
        raise NotCoveredError("steps of DP-SGD within a client's own training")
    if events[0]["type"] == "GaussianDpEvent":
        return Mechanism(gaussian=events[0]["noise_multiplier"], example_rate=example["q"])
    if events[0]["type"] != "SkellamDpEvent":
        raise NotCoveredError(events[0]["type"])
    update = line["length"] - (len(events) - 1)
    parts = [
        Part(e["l2_sensitivity"], e["l1_sensitivity"], e["variance"], 1 if i else update)
        for i, e in enumerate(events)
    ]
    return Mechanism(tuple(parts), example_rate=example["q"])


def header_disagrees(folder: Path, setting: Setting) -> str | None:
    """Compare what the ledger was opened with and what the configuration says."""
    header = next(line for line in lines_of(folder / "ledger.jsonl") if line["type"] == "run")
    written = header["kinds"].get("train")
    if written is None or written["event"] is None:
        return None
    theirs, ours = _of_header(written), setting.mechanisms["train"]
    pairs = [("noise multiplier", theirs.gaussian or 0.0, ours.gaussian or 0.0)]
    pairs.append(("rate of examples", theirs.example_rate, ours.example_rate))
    for our, their in zip(ours.parts, theirs.parts, strict=True):
        pairs += [
            ("l2", their.l2, our.l2),
            ("l1", their.l1, our.l1),
            ("variance", their.variance, our.variance),
        ]
    for what, logged, configured in pairs:
        if not math.isclose(logged, configured, rel_tol=1e-6):
            return f"{what}: the ledger says {logged:.9g}, the configuration {configured:.9g}"
    return None


def tally_of(lines: list[dict[str, Any]]) -> Tally:
    tally, opened = Tally(), {}
    for line in lines:
        if line["type"] == "contributions":
            kind, cohort = line["key"][2], line["cohort"]
            for client in line["clients"]:
                tally.clients.setdefault(client, Counter())[kind, cohort] += 1
            tally.smallest = min(tally.smallest or cohort, cohort)
        elif line["type"] == "sum":
            opened[tuple(line["key"][:3])] = line["key"][2]
        elif line["type"] == "survived":
            tally.drops.append((line["cohort"] - line["survived"], line["cohort"]))
    tally.opened.update(opened.values())
    return tally


# Plans.


def largest_cohort(population: int, rate: float, rounds: int, risk: float = 1e-3) -> int:
    """The cohort that no round exceeds but for one run in 1,000, by the union over rounds."""
    return int(binom.isf(risk / rounds, population, rate))


def worst_participations(population: int, rate: float, rounds: int, risk: float = 1e-3) -> int:
    """What no client exceeds but for one run in 1,000, by the union over clients."""
    return int(binom.isf(risk / population, rounds, rate))


def _of_plan(plan: dict[str, Any], config: dict[str, Any]) -> Setting:
    privacy, population, rounds = config["privacy"], plan["population"], plan["rounds"]
    mechanisms = {}
    if privacy["model"] != "none":
        length = _padded(plan["dimension"], config["encoding"]["rotate"])
        mechanisms["train"] = training_mechanism(config, plan["noise_multiplier"], length)
    cohort, each = plan["cohort"], plan["participations"]["worst_planned"]
    groups = config["secagg"]["groups"]
    largest = math.ceil(cohort / groups)
    if config["sampling"]["kind"] == "poisson":
        rate = cohort / population
        largest = largest_cohort(population, rate / groups, rounds * groups)
        each = max(each, worst_participations(population, rate, rounds))
    seen: Counter[tuple[str, int]] = Counter({("train", largest): each})
    tally = Tally({0: seen}, Counter(train=rounds), cohort // groups)
    if config["model"].get("components"):
        mechanisms["components"] = _components(config)
        seen["components", cohort] += 1
        tally.opened["components"] += 1
    return _setting(config, population, mechanisms, tally, plan["epsilon"])


def _components(config: dict[str, Any]) -> Mechanism:
    """The second moments of the inputs, at norm 1, of every example, once."""
    inputs = config["model"]["inputs"]
    length = inputs * (inputs + 1) // 2
    # C/gamma is 100 sqrt(d) unless the bits ask for more, with a range no less than the clip.
    l2, l1 = sensitivities(1.0, 1.0, 2, length, records=True, rotate=False)
    z = config["privacy"]["components_noise"]
    return Mechanism((Part(l2, l1, (z * l2) ** 2, length),))


def _setting(
    config: dict[str, Any],
    population: int,
    mechanisms: dict[str, Mechanism],
    tally: Tally,
    printed: dict[str, Any],
) -> Setting:
    privacy, secagg, sampling = config["privacy"], config["secagg"], config["sampling"]
    if sampling["kind"] not in KNOWN | AMPLIFIED:
        raise NotCoveredError(f"sampling.kind = {sampling['kind']!r}")
    return Setting(
        name=config["name"],
        model=privacy["model"],
        unit=privacy["unit"],
        delta=privacy["delta"],
        fraction=privacy["honest_fraction"],
        colluders=math.floor(secagg["corruption"] * population),
        groups=secagg["groups"],
        population=population,
        sampling=sampling["kind"],
        rate=(sampling.get("cohort") or population) / population,
        dropout=secagg["dropout"],
        top_up=privacy["top_up"],
        mechanisms=mechanisms,
        tally=tally,
        printed=printed,
    )
