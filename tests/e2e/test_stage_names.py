"""All parts take the stages from one table: none spells them, or lists them, by itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

from zerosum.client.protocol.flower_messages import PIGGYBACKED, STAGE_TYPES
from zerosum.secagg import Stage
from zerosum.secagg.stages import OPENING
from zerosum.server.spec import FaultSpec
from zerosum.simulations.report import page

ROOT = Path(__file__).parents[2]
PARTS = ("secagg", "client", "server", "simulations")
TABLE = ROOT / "secagg/zerosum/secagg/stages.py"
# Words of other things too: a share of noise, a column "confirm" of the attack table.
AMBIGUOUS = {Stage.SHARE, Stage.CONFIRM}


def spelled(source: str) -> Iterator[int]:
    """Lines that spell a stage: an unmistakable name, or two names in one list or table."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in set(Stage) - AMBIGUOUS:
            yield node.lineno
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            items = node.keys if isinstance(node, ast.Dict) else node.elts
            names = [item.value for item in items if isinstance(item, ast.Constant)]
            if len(set(Stage) & {name for name in names if isinstance(name, str)}) > 1:
                yield node.lineno


def test_a_spelled_stage_and_a_list_of_stages_are_found() -> None:
    assert list(spelled('at = "unmask"')) == [1]
    assert list(spelled('late = ("share", "confirm")')) == [1]
    assert list(spelled('late = {"share": 1, "confirm": 2}')) == [1]
    assert not list(spelled('kind = "share"; words = """of the share stage""", "confirm"'))


def test_no_part_spells_the_stages_beside_the_table() -> None:
    files = [path for part in PARTS for path in sorted((ROOT / part / "zerosum").rglob("*.py"))]
    assert TABLE in files
    sources = {path: path.read_text("utf-8") for path in files if path != TABLE}
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path, source in sources.items()
        # Parsing is slow, and most files hold no such word.
        if any(f'"{stage}"' in source for stage in Stage)
        for line in spelled(source)
    }
    assert not found, "write Stage.UNMASK instead: zerosum.secagg.stages has the table"


def test_every_stage_has_a_message_type_a_fault_and_words() -> None:
    assert list(STAGE_TYPES) == list(FaultSpec.model_fields) == list(page._STAGES) == list(Stage)
    assert STAGE_TYPES == {
        "advertise": "query.advertise",
        "share": "query.share",
        "contribute": "train.contribute",
        "confirm": "query.confirm",
        "unmask": "query.unmask",
    }
    assert PIGGYBACKED is OPENING
