"""A kernel executes a notebook: displays, one line of progress, an edited file, an interrupt."""

import sys

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,  # a kernel listens on loopback
    pytest.mark.filterwarnings("default"),
]

TASK = """
import torch
from torch import nn
WIDTH = 4
class Signs:
    def model(self): return nn.Linear(WIDTH, 2)
    def num_clients(self): return 6
    def data(self, client):
        inputs = torch.randn(20, WIDTH)
        return inputs, (inputs.sum(1) > 0).long()
    def test_data(self): return self.data(None)
    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")
"""

CELLS = [
    """from zerosum.simulations import BusyError, resume, run, sweep
base = {"extends": "fedavg", "unset": ["data.clients"], "sampling": {"cohort": 4}}
result = run({**base, "task": "signs:Signs", "rounds": 60}, report=False)
result""",
    TASK + "\nmine = run(base, task=Signs(), overrides=['rounds=2'], report=False)\nmine.metrics",
    """from pathlib import Path
text = Path("signs.py").read_text()
Path("signs.py").write_text(text.replace("WIDTH = 4", "WIDTH = 9"))
run({**base, "task": "signs:Signs", "rounds": 1}, report=False).summary.dimension""",
    """import threading, time
def stop():
    import _thread
    lines = Path("cut/metrics.jsonl")
    while not lines.is_file() or len(lines.read_text().splitlines()) < 2:
        time.sleep(0.1)
    _thread.interrupt_main()
threading.Thread(target=stop).start()
try:
    run({**base, "task": "signs:Signs", "rounds": 100_000}, out="cut", report=False)
except KeyboardInterrupt as ended:
    print(ended.__notes__)""",
    """from zerosum.server.runs.run_folder import RunFolder
done = len(RunFolder.open(Path("cut")).read_rounds())
def end(record):  # the last line may be of a round without its checkpoint, which is played again
    if record.round > done:
        raise KeyboardInterrupt
try:
    resume("cut", on_round=end, report=False)
except KeyboardInterrupt:
    pass
0 < done < len(RunFolder.open(Path("cut")).read_rounds())""",
    """outcomes = []
def second(record):
    try:
        run(base, task=Signs(), report=False)
    except BusyError as error:
        outcomes.append(str(error))
def first(record):
    other.start()
    other.join()
other = threading.Thread(target=second, args=[None])
settings = {"overrides": ["rounds=1"], "on_round": first, "report": False}
thread = threading.Thread(target=lambda: run(base, task=Signs(), **settings))
thread.start(); thread.join(); outcomes""",
    """await __import__("asyncio").sleep(0)
named, rates = {**base, "task": "signs:Signs", "rounds": 2}, {"training.lr": [0.1, 0.2]}
frame = sweep(named, rates, out="s")
list(frame["status"])""",
    """again = sweep(named, rates, out="s")
again.equals(frame)""",
]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Cells with their outputs, executed by this Python."""
    here = tmp_path_factory.mktemp("notebook")
    (here / "signs.py").write_text(TASK)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(here)}}
    )
    client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable
    client.execute()
    return [cell.outputs for cell in notebook.cells]


def plain(outputs):
    return [each.data["text/plain"] for each in outputs if "data" in each]


def test_progress_is_one_line_and_the_result_a_table(executed):
    progress, result = executed[0]
    assert progress.data["text/plain"].startswith("round 60/60  accuracy")
    assert result.data["text/plain"].startswith("Result('fedavg', 60 rounds, test_accuracy=")
    assert "<svg" in result.data["text/html"]


def test_a_task_of_the_notebook_itself_runs_in_workers(executed):
    assert "test_accuracy" in plain(executed[1])[-1]


def test_an_edited_file_is_run_without_a_new_kernel(executed):
    assert plain(executed[2])[-1] == "20"


def test_an_interrupt_says_how_the_run_goes_on_and_it_does(executed):
    texts = [each.text for each in executed[3] if each.output_type == "stream"]
    assert "resume('cut')" in texts[-1]
    assert plain(executed[4])[-1] == "True"


def test_a_second_run_is_refused_in_one_line(executed):
    assert "goes on in another thread of this process" in plain(executed[5])[-1]


def test_a_sweep_runs_in_the_event_loop_and_is_reused(executed):
    assert plain(executed[6])[-1] == "['completed', 'completed']"
    assert plain(executed[7]) == ["2 of 2 cells done before", "True"]
