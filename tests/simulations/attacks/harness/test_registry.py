"""Names of attacks are known without their modules, which take seconds to import."""

import hashlib
import subprocess
import sys

import pytest

from zerosum.simulations.attacks.harness.built_in import BUILT_IN, PACKAGE
from zerosum.simulations.attacks.harness.interface import Defense
from zerosum.simulations.attacks.harness.play import Cell
from zerosum.simulations.attacks.harness.registry import built_in, choose, slug


def test_the_table_of_names_is_that_of_the_attacks_themselves():
    assert list(dict.fromkeys(map(slug, built_in()))) == list(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_name_stands_for_all_attacks_that_have_it_and_for_no_other(name):
    attacks = built_in([name])
    assert attacks == [attack for attack in built_in() if slug(attack) == name]
    own = {f"{PACKAGE}.{target}" for target in BUILT_IN[name]}
    assert own <= {f"{type(attack).__module__}:{type(attack).__name__}" for attack in attacks}


def test_the_order_of_names_asked_for_is_kept():
    names = [slug(attack) for attack in choose(["min-max", "differencing"])]
    assert list(dict.fromkeys(names)) == ["min-max", "differencing"]


LIST = """
import sys
from zerosum.simulations.commands.listing import catalog
rows = dict(catalog()["Attacks"])
assert "torch" not in sys.modules
assert rows["gradient-inversion"].startswith("Search for images"), rows
"""


@pytest.mark.slow
def test_a_list_of_attacks_loads_no_torch():
    done = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_seeds_of_built_in_cells_are_those_of_earlier_versions() -> None:
    """Each cell's coins follow from its label: a label that changes changes published figures."""
    cells = [
        Cell(attack, case)
        for attack in built_in()
        for case in attack.cases("quick")
        if type(case.protection) is Defense  # defenses of queries came later
    ]
    labels = "\n".join(cell.label for cell in cells)
    assert len(cells) == 326
    assert hashlib.sha256(labels.encode()).hexdigest().startswith("25cc5cfa29f6d251")
