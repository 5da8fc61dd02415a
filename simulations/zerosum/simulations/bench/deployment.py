"""Seconds a round across real nodes on this machine: masked sums against plain averaging."""

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from zerosum.server.runs.run_folder import METRICS, SUMMARY
from zerosum.simulations.bench.process import BenchError, Values
from zerosum.simulations.rehearsal.federation import Federation, federation
from zerosum.simulations.rehearsal.processes import DeploymentError

APPS = Path(__file__).parent / "apps"
SERVERS = ("semi-honest", "malicious")
PLAIN = "plain"
WRAPPED = {f"two lines, {server}": server for server in SERVERS}
"""The plain app behind PrivateStrategy and PrivateClientApp, by the server that it withstands."""

_POLICY = """
models = ["none"]
servers = ["malicious", "semi-honest"]
min_cohort = 2
corruption = 0.0
max_epsilon = inf
max_vector_length = 100_000
"""


def run(
    nodes: int = 3,
    rounds: int = 4,
    repeats: int = 2,
    *,
    time_limit: float = 900.0,
    tell: Callable[[str], None] = lambda what: None,
    keep: Callable[[list[Values]], None] = lambda rows: None,
) -> Values:
    """Let rounds in plain, of the own app and of the plain app made private take turns.

    Parameters
    ----------
    nodes : int
        SuperNodes.
    rounds : int
        Of each run; the first, which agrees on the first keys, is not steady and not counted.
    repeats : int
        Runs of each kind.
    time_limit : float
        Seconds that a run may take.
    tell : callable
        Is told what is being done.
    keep : callable
        Is given the rows of all turns so far, after each.

    Returns
    -------
    dict
        ``rows``: each with ``rounds``, ``nodes``, ``turns``, ``seconds_per_round`` (median over
        steady rounds) and ``ratio_to_plain`` (median of those of each turn).

    Raises
    ------
    BenchError
        If a run fails.
    """
    seconds_of: dict[str, list[list[float]]] = {name: [] for name in (PLAIN, *SERVERS, *WRAPPED)}
    try:
        with tempfile.TemporaryDirectory(prefix="zerosum-bench-") as scratch:
            tell("starting a SuperLink and its SuperNodes")
            with federation(Path(scratch) / "all", nodes) as built:
                policy = built.folder / "policy.toml"
                policy.write_text(_POLICY, encoding="utf-8", newline="\n")
                for index in range(nodes):
                    built.start_supernode(index, f'policy="{policy}"')
                for turn in range(repeats):
                    for name, seconds in seconds_of.items():
                        tell(f"turn {turn + 1}: {name}")
                        seconds.append(_steady(built, name, rounds, turn, time_limit))
                    keep(_rows(seconds_of, nodes))
    except DeploymentError as error:
        raise BenchError(str(error)) from None
    return {"rows": _rows(seconds_of, nodes)}


def _rows(seconds_of: Mapping[str, list[list[float]]], nodes: int) -> list[Values]:
    """Return a row for each kind of rounds, of the turns that all have done."""
    plain = [median(seconds) for seconds in seconds_of[PLAIN]]
    return [
        {
            "rounds": name,
            "nodes": nodes,
            "turns": len(turns),
            "seconds_per_round": median(second for turn in turns for second in turn),
            "ratio_to_plain": median(
                median(turn) / least for turn, least in zip(turns, plain, strict=True)
            ),
        }
        for name, turns in seconds_of.items()
    ]


def _steady(built: Federation, name: str, rounds: int, turn: int, time_limit: float) -> list[float]:
    """Do one run, and return the seconds of its rounds after the first."""
    out = built.folder / f"{name.replace(', ', '-').replace(' ', '-')}{turn}"
    run, sign = _submitted(built, name, rounds, out)
    status = built.wait_for_run(run, time_limit, sign)
    if status != "finished:completed":
        raise BenchError(f"{name} rounds ended as {status}:\n{built.run_log(run)}")
    if name not in SERVERS:
        seconds: list[float] = json.loads(out.read_text(encoding="utf-8"))
    else:
        lines = (out / METRICS).read_text(encoding="utf-8").splitlines()
        seconds = [json.loads(line)["seconds"] for line in lines]
    return seconds[1:]


def _submitted(built: Federation, name: str, rounds: int, out: Path) -> tuple[int, Path]:
    """Start a run, and return its id and the file that it writes last."""
    config = f'rounds={rounds} nodes={len(built.hosts)} out="{out}"'
    if name == PLAIN:
        return built.submit_config(APPS / "plain", config), out
    if name in WRAPPED:
        config += f' server="{WRAPPED[name]}" roster="{built.roster}"'
        config += f' authority="{built.authority}"'
        return built.submit_config(APPS / "private", config), out
    settings = [
        f"secagg.server={name}",
        f"rounds={rounds}",
        f"deployment.min_nodes={len(built.hosts)}",
        *built.keys_of_server,
    ]
    return built.submit(APPS / "masked", settings, out), out / SUMMARY
