"""Three clinics with a table each, a node's own file, and a plan that is asked of them."""

import csv
from pathlib import Path

import numpy as np

from zerosum.server.analytics.query_plan import read_plan
from zerosum.simulations.queries.federation import Federation

NODES = 3
PLAN = Path(__file__).parents[1] / "deploy" / "queries_app" / "plan.toml"
NODE = """
[policy]
min_cohort = 3
corruption = 0.34
max_epsilon = {epsilon}

[policy.queries]
columns = ["age", "sex", "stay", "word"]
max_epsilon_per_query = 1.0

[table]
path = "patients.csv"
"""


def patients(count=240, seed=7):
    """Return rows of a table with a column of who holds each."""
    draw = np.random.default_rng(seed)
    return {
        "clinic": [f"clinic-{i}" for i in draw.integers(0, NODES, count)],
        "age": draw.integers(0, 111, count).tolist(),
        "sex": draw.choice(["F", "M", ""], count, p=[0.5, 0.4, 0.1]).tolist(),
        "stay": draw.gamma(2.0, 3.0, count).round(2).tolist(),
        "word": draw.choice(["flu", "gout", "mumps", "flux"], count).tolist(),
    }


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows)
        writer.writerows(zip(*rows.values(), strict=True))


def of_clinic(rows, name):
    return {
        column: [v for v, clinic in zip(values, rows["clinic"], strict=True) if clinic == name]
        for column, values in rows.items()
        if column != "clinic"
    }


def write_clinics(folder, node=NODE, rows=None):
    """Write each clinic's table and file under ``clinicI``."""
    rows = patients() if rows is None else rows
    for index in range(NODES):
        own = folder / f"clinic{index}"
        write(own / "patients.csv", of_clinic(rows, f"clinic-{index}"))
        (own / "zerosum-node.toml").write_text(node)


def simulated(folder, plan=PLAN):
    """Answer a plan over the same rows in a simulation."""
    write(folder / "all.csv", patients())
    file = read_plan(plan).changed(clients=None, by="clinic", protocol="pairwise")
    with Federation.begin(file, folder / "all.csv", folder / "simulated") as federation:
        return [answer.to_json() for answer in federation.run()]


def assert_same_answers(found, wanted):
    """Assert that answers are the same, but for what their epsilons assume."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one["noisy"] == other["noisy"]
        left_out = {"epsilon", "name", "ask", "asked", "asked_epsilon"}
        assert {k: v for k, v in one.items() if k not in left_out} == {
            k: v for k, v in other.items() if k not in left_out
        }
