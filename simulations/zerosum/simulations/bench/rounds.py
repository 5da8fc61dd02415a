"""Rounds of one Flower app, plain, behind Flower's mods and behind ours: bytes and CPU time.

All clients are in one process, and every message is written and read as Flower sends it. A client
answers with a vector drawn beforehand, so that nothing is trained. What is not measured: the
network, and the processes that a SuperNode starts.
"""

import logging
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
    UserConfig,
)
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)

from zerosum.client.files.private_files import write_private
from zerosum.client.flower.private_mod import private_mod
from zerosum.secagg import IdentityKey, Roster, SignedRoster
from zerosum.secagg.randomness import numpy_generator
from zerosum.server.config import ConfigError
from zerosum.server.flower.private_strategy import PrivateStrategy
from zerosum.simulations.bench.counted_app import CountedApp, Counts
from zerosum.simulations.bench.process import BenchError, Values, peak_memory_mb
from zerosum.simulations.bench.setting import BenchedSession
from zerosum.simulations.engine.grid import InProcessGrid

PLAIN, SECAGGPLUS, NOISED = "plain", "SecAgg+", "noised"
LOCAL, CLIENT_SIDE, SERVER_SIDE = "LocalDpMod", "client-side DP", "server-side DP"
FLOWERS = (PLAIN, LOCAL, CLIENT_SIDE, SERVER_SIDE, SECAGGPLUS)
SCHEMES = (*FLOWERS, "semi-honest", "malicious", NOISED)
"""What a round is protected by. The last three are ours, by what the server is trusted with;
``noised`` is the malicious one with distributed noise. Flower's DP has its bound where nothing is
cut, and no noise, so that its mean can be checked: its time is the same."""

STEADY_FROM = 2
"""First round that counts: the first agrees on keys, and meets the nodes."""

RANGE = 4.0
"""Largest magnitude of a coordinate, for either."""

NOISE_MULTIPLIER = 1.0
"""Of ``noised``."""

_NO_CUT = 1e9

_MODULUS_BITS = 32

_POLICY = """models = ["none", "distributed"]
servers = ["malicious", "semi-honest"]
min_cohort = 2
corruption = 0.0
max_epsilon = inf
max_vector_length = 1_000_000_000
"""


@dataclass(frozen=True)
class _Asked:
    """Rounds to be played.

    Attributes
    ----------
    scheme : str
    setting : BenchedSession
    fit : callable
        From a client's index to its vector; it raises for one that vanishes.
    rounds : int
        That count, the first among them.
    marks : list of Counts
        Grows by what is spent when each round begins.
    folder : Path
        For nodes' files.
    """

    scheme: str
    setting: BenchedSession
    fit: Callable[[int], np.ndarray]
    rounds: int
    marks: list[Counts]
    folder: Path


def run(*, scheme: str, rounds: int = 3, **settings: Any) -> Values:
    """Play rounds under one scheme and return what a steady one took.

    Parameters
    ----------
    scheme : str
        One of :data:`SCHEMES`.
    rounds : int
        At least :data:`STEADY_FROM`; those from there on are counted.
    **settings
        Those of :class:`~zerosum.simulations.bench.setting.BenchedSession`, whose ``server`` does
        not count.

    Returns
    -------
    dict
        By ``scheme``, means over the steady rounds: ``exchanges`` (messages to a client),
        ``bytes_up_per_client``, ``bytes_down_per_client``, ``client_cpu_s`` (a client's) and
        ``server_cpu_s`` (for all); ``largest_error`` of the mean, and whether it is within the
        rounding of ``bits``, or within the noise: ``mean_correct``.

    Raises
    ------
    BenchError
        If there are no such rounds, or this Flower has no SecAgg+.
    """
    server = "malicious" if scheme in ("malicious", NOISED) else "semi-honest"
    setting = BenchedSession(**{**settings, "server": server})
    vectors, gone = _vectors(setting), setting.gone()
    marks: list[Counts] = []

    def fit(index: int) -> np.ndarray:
        if index in gone:
            raise RuntimeError("vanishes")
        return vectors[index]

    with tempfile.TemporaryDirectory() as folder, _quiet():
        asked = _Asked(scheme, setting, fit, rounds, marks, Path(folder))
        play = _secaggplus if scheme == SECAGGPLUS else _plain if scheme in FLOWERS else _ours
        model = play(asked)
    staying = [vector for index, vector in enumerate(vectors) if index not in gone]
    error = float(np.abs(model - np.mean(staying, axis=0, dtype=np.float64)).max())
    # Each client rounds by less than a step, as does the mean; float32 adds its own.
    most = 2 * RANGE * 2.0 ** (1 - setting.bits) + 1e-6
    if scheme == NOISED:  # the noise of all clients reaches no twelve deviations of the least
        most = 12 * NOISE_MULTIPLIER * _clip(setting) / setting.n
    spent = marks[rounds].since(marks[STEADY_FROM - 1])
    steady = rounds - STEADY_FROM + 1
    return {
        "scheme": scheme,
        "flwr": version("flwr"),
        "n": setting.n,
        "d": setting.d,
        "bits": setting.bits,
        "survivors": len(staying),
        "rounds": steady,
        "exchanges": spent.messages / setting.n / steady,
        "bytes_up_per_client": spent.bytes_up / setting.n / steady,
        "bytes_down_per_client": spent.bytes_down / setting.n / steady,
        "client_cpu_s": spent.client_cpu_s / setting.n / steady,
        "server_cpu_s": (spent.cpu_s - spent.client_cpu_s) / steady,
        "wall_s": spent.wall_s / steady,
        "largest_error": error,
        "mean_correct": error <= most,
        "peak_memory_mb": peak_memory_mb(),
    }


def _vectors(setting: BenchedSession) -> list[np.ndarray]:
    drawn = (numpy_generator(setting.seed, "bench update", i) for i in range(setting.n))
    return [rng.uniform(-1, 1, setting.d).astype(np.float32) for rng in drawn]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the two libraries log of their rounds to themselves: a benchmark prints figures."""
    loggers = [logging.getLogger(name) for name in ("flwr", "zerosum")]
    before = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for each, level in zip(loggers, before, strict=True):
            each.setLevel(level)


def _app(fit: Callable[[int], np.ndarray], mods: list[Any]) -> ClientApp:
    """Return an ordinary app whose clients answer with their vectors."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = ArrayRecord({"w": Array(fit(int(context.node_config["partition-id"])))})
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


class _Marked(FedAvg):
    """FedAvg that notes when each round begins."""

    def __init__(self, clients: int, begin: Callable[[], None]) -> None:
        super().__init__(
            fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
        )
        self._begin = begin

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Note the moment; write the round's messages as ever."""
        self._begin()
        return super().configure_train(server_round, arrays, config, grid)


def _started(strategy: Any, grid: Grid, d: int, rounds: int) -> np.ndarray:
    """Run a strategy of the Message API, and return its last model."""
    initial = ArrayRecord({"w": Array(np.zeros(d, np.float32))})
    result = strategy.start(grid, initial, num_rounds=rounds)
    if "w" not in result.arrays:
        raise BenchError("no round has a sum: with it, a client that fails ends its round")
    return np.asarray(result.arrays["w"].numpy())


def _plain(asked: _Asked) -> np.ndarray:
    """Play rounds whose server sees every update: plain, or with one of Flower's DP mods."""
    n = asked.setting.n
    mods: dict[str, Any] = {
        LOCAL: LocalDpMod(clipping_norm=_NO_CUT, sensitivity=0.0, epsilon=1.0, delta=1e-5),
        CLIENT_SIDE: fixedclipping_mod,
    }
    around: dict[str, Any] = {
        CLIENT_SIDE: DifferentialPrivacyClientSideFixedClipping,
        SERVER_SIDE: DifferentialPrivacyServerSideFixedClipping,
    }
    app = CountedApp(_app(asked.fit, [mods[asked.scheme]] if asked.scheme in mods else []))
    strategy: Strategy = _Marked(n, lambda: asked.marks.append(app.counts()))
    if asked.scheme in around:
        strategy = around[asked.scheme](strategy, 0.0, _NO_CUT, n)
    # One round more than counts: what a round does at its end lies before the next begins.
    return _started(strategy, InProcessGrid(app, n), asked.setting.d, asked.rounds + 1)


def _ours(asked: _Asked) -> np.ndarray:
    """Play rounds of a PrivateStrategy, with keys and policies where they are asked for."""
    setting = asked.setting
    app = CountedApp(_app(asked.fit, [private_mod]))
    deployment, node_config = _provisioned(asked.folder, setting)
    degree = setting.degree
    secagg: Values = {
        "server": setting.server,
        "dropout": setting.dropout,
        "corruption": setting.corruption,
        "degree": degree if degree in ("auto", "complete") else int(degree),
    }
    if setting.threshold is not None:
        secagg["threshold"] = setting.threshold
    privacy: Values = {"model": "none", "clip": "none"}
    encoding: Values = {"bits": setting.bits, "range": RANGE}
    if asked.scheme == NOISED:
        multiplier = {"noise_multiplier": NOISE_MULTIPLIER, "delta": 1e-5}
        privacy = {"model": "distributed", "clip": _clip(setting), **multiplier}
        encoding = {"bits": setting.bits}
    try:
        strategy = PrivateStrategy(
            _Marked(setting.n, lambda: asked.marks.append(app.counts())),
            privacy=privacy,
            encoding=encoding,
            secagg=secagg,
            deployment={"min_nodes": setting.n, **deployment},
            run_config={},
            out=asked.folder / "run",
        )
    except ConfigError as error:
        raise BenchError(str(error)) from None
    grid = InProcessGrid(app, setting.n, node_config=node_config)
    return _started(strategy, grid, setting.d, asked.rounds + 1)


def _clip(setting: BenchedSession) -> float:
    """Return a clip norm that no update reaches: coordinates of a client and of the model."""
    return 4.0 * math.sqrt(setting.d)


def _provisioned(
    folder: Path, setting: BenchedSession
) -> tuple[dict[str, str], Callable[[int], UserConfig]]:
    """Write what nodes have of their own; return the server's keys and a node's config."""
    write_private(folder / "policy.toml", _POLICY.encode())

    def plain(index: int) -> UserConfig:
        return {"state-dir": str(folder / f"{index}"), "policy": str(folder / "policy.toml")}

    if setting.server == "semi-honest":
        return {}, plain
    authority = IdentityKey.generate()
    keys = [IdentityKey.generate() for _ in range(setting.n)]
    roster = Roster(1, {index: key.public for index, key in enumerate(keys)})
    write_private(folder / "roster", SignedRoster.sign(roster, authority).to_bytes())
    for index, key in enumerate(keys):
        write_private(folder / f"{index}.key", key.to_bytes())
    known = {"roster": str(folder / "roster"), "authority": authority.public.hex()}
    return known, lambda index: {**plain(index), **known, "identity": str(folder / f"{index}.key")}


def _secaggplus(asked: _Asked) -> np.ndarray:
    """Play rounds of Flower's SecAgg+ with the graph and the threshold of our session."""
    setting = asked.setting
    try:
        from zerosum.simulations.bench import secaggplus
    except ImportError as error:
        flower = f"flwr {version('flwr')}"
        raise BenchError(f"{flower} has no SecAgg+ to compare with: {error}") from None
    if setting.n << setting.bits > 1 << _MODULUS_BITS:
        raise BenchError(
            f"SecAgg+ adds {setting.n} values of {setting.bits} bits modulo 2^{_MODULUS_BITS}, "
            "which is too small: fewer --bits"
        )
    session, _, _ = setting.open()
    app = CountedApp(secaggplus.app_of(asked.fit))
    return secaggplus.play(
        InProcessGrid(app, setting.n),
        setting.d,
        asked.rounds,
        shares=session.degree + 1,
        threshold=min(session.threshold, session.degree),
        bits=setting.bits,
        clipping_range=RANGE,
        begin=lambda: asked.marks.append(app.counts()),
    )
