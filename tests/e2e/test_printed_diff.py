"""The page's two lines, applied to somebody's app as they are printed, run on Flower's runtime."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
from flower_quickstart import diffs, patched, written
from flower_simulation import Simulation

from zerosum.server.runs.run_folder import LEDGER, SUMMARY

FILES = ("client_app.py", "server_app.py")


def apply_diffs(folder):
    """Change the app by the first two diffs of the page, and by nothing else."""
    for name, diff in zip(FILES, diffs()[:2], strict=True):
        file = folder / "quickstart" / name
        file.write_text(patched(file.read_text(), diff))


def test_the_printed_diff_changes_two_lines_of_either_side(tmp_path):
    folder = written(tmp_path / "app")
    before = {name: (folder / "quickstart" / name).read_text().split("\n") for name in FILES}
    apply_diffs(folder)
    for name in FILES:
        after = (folder / "quickstart" / name).read_text()
        compile(after, name, "exec")
        added = [line for line in after.split("\n") if line not in before[name]]
        assert len([line for line in added if line]) == 2
        assert "zerosum" in after


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1800)
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks in /proc for processes")
@pytest.mark.parametrize("named", [False, True], ids=["two lines", "named"])
def test_flwr_run_plays_a_two_line_app_at_once(tmp_path, named):
    app = written(tmp_path / "quickstart-app")
    if named:
        server = app / "quickstart" / "server_app.py"
        server.write_text(patched(server.read_text(), diffs()[1]))
        (app / "quickstart" / "private_app.py").write_text(
            "from zerosum.client import PrivateClientApp\n\n"
            'app = PrivateClientApp("quickstart.client_app:app")\n'
        )
        project = app / "pyproject.toml"
        named_app = project.read_text().replace("quickstart.client_app", "quickstart.private_app")
        project.write_text(named_app)
    else:
        apply_diffs(app)
    flower = Simulation(tmp_path, app)
    try:
        flower.wait()
        printed = flower.run(3)
        assert flower.completed() == 1, printed[-3000:]
    finally:
        flower.end(seconds=0)
    assert printed.count("nobody is protected") == 2
    assert "private round 2 completed: 3 of 3 clients are in the sum" in printed
    assert "the model has ['weight']" in printed
    (run,) = re.findall(r"run folder: (.+/runs/\d+)", printed)[:1]
    summary = json.loads((Path(run) / SUMMARY).read_text())
    assert (summary["population"], summary["engine"]["name"]) == (3, "flower")
    assert (summary["server"], summary["noise_from_seed"]) == ("malicious", False)
    assert (Path(run) / LEDGER).read_text().count("\n") >= 2
