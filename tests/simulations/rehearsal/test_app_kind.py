"""Kinds of apps, told from their code: ours, two lines of ours, or none that a sum can serve."""

import io
import zipfile

import pytest

from zerosum.simulations.rehearsal.app_bundle import Bundle
from zerosum.simulations.rehearsal.app_kind import answers_queries, check_private, kind_of
from zerosum.simulations.rehearsal.processes import DeploymentError

PROJECT = """
[tool.flwr.app.components]
serverapp = "SERVER"
clientapp = "CLIENT"
"""

CLIENT = """
from flwr.clientapp import ClientApp
from zerosum.client import private_mod

app = ClientApp(mods=[private_mod])

@app.train()
def train(message, context):
    ...
"""
PLAIN_CLIENT = CLIENT.replace("from zerosum.client import private_mod", "").replace(
    "mods=[private_mod]", ""
)
SERVER = """
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from zerosum.server import PrivateStrategy

app = ServerApp()

@app.main()
def main(grid, context):
    strategy = FedAvg()
    strategy = PrivateStrategy(strategy, clip=1.0, noise_multiplier=2.0)
    strategy.start(grid, context)
"""
WRAPPED = "    strategy = PrivateStrategy(strategy, clip=1.0, noise_multiplier=2.0)\n"
PLAIN_SERVER = SERVER.replace("from zerosum.server import PrivateStrategy", "").replace(WRAPPED, "")


def bundle(
    client=CLIENT, server=SERVER, components=("own.server_app:app", "own.client_app:app"), **more
):
    """Return an app as Flower packs it, of these two files."""
    data = io.BytesIO()
    project = PROJECT.replace("SERVER", components[0]).replace("CLIENT", components[1])
    with zipfile.ZipFile(data, "w") as packed:
        packed.writestr("pyproject.toml", project)
        packed.writestr("own/client_app.py", client)
        packed.writestr("own/server_app.py", server)
        for name, text in more.items():
            packed.writestr(f"own/{name}.py", text)
    return Bundle("own", data.getvalue())


LOOP = SERVER.replace("from flwr.serverapp.strategy import FedAvg\n", "").replace(
    "    strategy = FedAvg()\n" + WRAPPED + "    strategy.start(grid, context)\n",
    "    replies = grid.send_and_receive([])\n",
)
PLAIN_LOOP = LOOP.replace("from zerosum.server import PrivateStrategy", "")
QUERIES = "grid = PrivateQueries(grid, {'r': {'n': Counts()}})"
PRIVATE = {
    "the two lines": bundle(),
    "the modules": bundle(
        CLIENT.replace("from zerosum.client import private_mod", "import zerosum.client as z")
        .replace("[private_mod]", "[z.private_mod]"),
        SERVER.replace("from zerosum.server import PrivateStrategy", "import zerosum.server")
        .replace("PrivateStrategy(", "zerosum.server.PrivateStrategy("),
    ),
    "other names": bundle(
        CLIENT.replace("import private_mod", "import private_mod as m")
        .replace("[private_mod]", "[m]"),
        SERVER.replace("import PrivateStrategy", "import *"),
    ),
    "passed on by a file of its own": bundle(
        CLIENT.replace("zerosum.client import private_mod", "own.ours import masks")
        .replace("[private_mod]", "[masks]"),
        SERVER.replace("zerosum.server", ".ours"),
        ours="from zerosum.client import private_mod as masks\n"
        "from zerosum.server import PrivateStrategy\n",
    ),
    "a strategy of another file": bundle(
        server=PLAIN_SERVER.replace("strategy = FedAvg()", "from own.ours import private"),
        ours="from zerosum.server import PrivateStrategy as P\nprivate = P(FedAvg(), clip=1.0)\n",
    ),
    "for one function": bundle(
        CLIENT.replace("mods=[private_mod]", "").replace("train()", "train(mods=[private_mod])")),
    "queries": bundle(
        CLIENT.replace("train", "query"),
        SERVER.replace("import PrivateStrategy", "import Counts, PrivateQueries")
        .replace(WRAPPED, f"    {QUERIES}\n    grid.send_and_receive([])\n")),
    "queries until an end": bundle(
        CLIENT.replace("train", "query"),
        SERVER.replace("import PrivateStrategy", "import Counts, PrivateQueries")
        .replace(WRAPPED, "    with PrivateQueries(grid, {}) as grid:\n        grid.run\n")),
    "the app within ours": bundle(
        'from zerosum.client import PrivateClientApp\napp = PrivateClientApp("own.plain:app")\n',
        plain=PLAIN_CLIENT,
    ),
    "a component of ours": bundle(
        PLAIN_CLIENT, components=("own.server_app:app", "zerosum.client.flower.app:app")
    ),
    "an app of ours": bundle("from zerosum.client.flower.client_app import app\n"),
    "a file that is no Python": bundle(broken="def ("),
    "left over from before": bundle(
        CLIENT + "from flwr.client import NumPyClient\n",
        SERVER.replace("import FedAvg", "import FedAvg, FedXgbBagging"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PRIVATE)
def test_an_app_that_makes_use_of_ours_on_each_side_is_taken(what):
    check_private(PRIVATE[what])


REFUSED = {
    "plain": (bundle(PLAIN_CLIENT, PLAIN_SERVER), r"plain Flower app.*own/client_app\.py.*own/ser"),
    "no mod": (bundle(PLAIN_CLIENT), r"one of its two lines: add app = ClientApp.*client_app\.py"),
    "no strategy": (bundle(server=PLAIN_SERVER), r"one of its two lines: add strategy = .*server_"),
    "what else there is of ours": (
        bundle(PLAIN_CLIENT + "from zerosum.client import Task\nprint(Task)\n"),
        "one of its two lines: add app"),
    "another package": (
        bundle(CLIENT.replace("zerosum.client", "zerosum_client")), "one of its two lines"),
    "a loop of its own": (
        bundle(server=PLAIN_LOOP),
        r"has one of its two lines: add a strategy in place of its loop over grid\.send_and_receive"
        r", PrivateStrategy\(FedAvg\(\), .*\)\.start\(grid, arrays\), with from zerosum\.server"),
    "a loop that trains, as queries": (
        bundle(server=LOOP.replace("import PrivateStrategy", "import PrivateQueries")
               .replace("    replies", f"    {QUERIES}\n    replies")),
        r"PrivateQueries answers queries, and the app has @app\.train\(\) and no @app\.query"),
    "trees": (
        bundle(server=SERVER.replace("FedAvg", "FedXgbBagging")),
        r"FedXgbBagging in own/server_app\.py joins boosted trees"),
    "trees by attribute": (
        bundle(server="import flwr.serverapp.strategy as s\nx = s.FedXgbCyclic()\n"),
        "boosted trees"),
    "NumPyClient": (
        bundle(CLIENT + "from flwr.client import NumPyClient\nclass Own(NumPyClient): ...\n"),
        "NumPyClient in .* legacy API"),
    "by another name": (
        bundle(CLIENT + "from flwr.client import NumPyClient as C\nclass Own(C): ...\n"),
        "NumPyClient in .* legacy API"),
    "client_fn": (
        bundle(CLIENT.replace("mods=", "client_fn=make, mods=")), r"client_fn in own/client_app"),
    "client_fn by place": (bundle(CLIENT.replace("mods=", "make, mods=")), "client_fn in"),
    "server_fn": (bundle(server=SERVER.replace("ServerApp()", "ServerApp(server_fn=make)")),
                  "server_fn in"),
    "start_server": (bundle(server="import flwr as fl\nfl.server.start_server()\n"),
                     "start_server in"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_an_app_that_cannot_be_private_as_it_is_gets_one_line(what):
    given, said = REFUSED[what]
    with pytest.raises(DeploymentError, match=said) as refused:
        check_private(given)
    assert "\n" not in str(refused.value)


STRATEGY = r"strategy = PrivateStrategy\(strategy, clip=1\.0, .*\)"
UNUSED = {
    "the mod": (
        bundle(CLIENT.replace("mods=[private_mod]", "")),
        r"imports private_mod and makes no use of it \(own/client_app\.py, line 3\): write app = "
        r"ClientApp\(mods=\[private_mod\]\) \(docs"),
    "the module's": (
        bundle(CLIENT.replace("zerosum.client", "zerosum.client.flower.private_mod")
               .replace("mods=[private_mod]", "")), "private_mod and makes no use"),
    "the strategy": (
        bundle(server=SERVER.replace(WRAPPED, "")),
        rf"imports PrivateStrategy and makes no use of it \(own/server_app\.py, line 4\): write "
        rf"{STRATEGY} \(docs"),
    "both": (
        bundle(CLIENT.replace("mods=[private_mod]", ""), SERVER.replace(WRAPPED, "")),
        rf"imports private_mod .*; and imports PrivateStrategy .*{STRATEGY}"),
    "one, and the other is not there": (
        bundle(PLAIN_CLIENT, SERVER.replace(WRAPPED, "")),
        r"imports PrivateStrategy .*; and add app = ClientApp\(mods=\[private_mod\]\), with from"),
    "an annotation": (
        bundle(server=SERVER.replace(WRAPPED, "    other: PrivateStrategy = strategy\n")),
        r"imports PrivateStrategy .*line 11\)"),
    "made and dropped": (
        bundle(server=SERVER.replace("strategy = PrivateStrategy", "PrivateStrategy")),
        r"imports PrivateStrategy .*own/server_app\.py, line 11\)"),
    "made and not started": (
        bundle(server=SERVER.replace("strategy = PrivateStrategy", "private = PrivateStrategy")),
        r"imports PrivateStrategy .*own/server_app\.py, line 11\)"),
    "a strategy beside a loop": (
        bundle(server=LOOP), r"no use of it .*: write a strategy in place of its loop over grid"),
    "a grid that nobody asks": (
        bundle(server=SERVER.replace("import PrivateStrategy", "import PrivateQueries")
               .replace(WRAPPED, "    PrivateQueries(grid, {})\n")),
        r"PrivateQueries .*: write grid = PrivateQueries\(grid, \{\.\.\.\}, epsilon"),
    "the named app": (
        bundle("from zerosum.client import PrivateClientApp\nfrom own.plain import app\n",
               plain=PLAIN_CLIENT), r'write app = PrivateClientApp\("module:app"\) \(docs'),
    "passed on to nobody": (
        bundle(PLAIN_CLIENT, ours="from zerosum.client import private_mod\n"),
        r"imports private_mod .*own/ours\.py, line 1\)"),
}  # fmt: skip


@pytest.mark.parametrize("what", UNUSED)
def test_what_is_imported_of_ours_and_not_used_gets_one_line_with_the_cure(what):
    given, said = UNUSED[what]
    with pytest.raises(DeploymentError, match=said) as refused:
        check_private(given)
    assert "\n" not in str(refused.value)


def test_names_that_are_the_apps_own_are_not_taken_for_flowers():
    """Its own strategy of that name averages arrays, for all that is known."""
    check_private(bundle(more="from own.trees import FedXgbBagging, NumPyClient\n"))


@pytest.mark.parametrize(
    ("code", "wanted"),
    [("@app.query()\ndef f(m, c): ...", True), ("@app.query('a')\ndef f(m, c): ...", True),
     ("frame.query('age > 3')", False), ("@app.train()\ndef f(m, c): ...", False)],
)  # fmt: skip
def test_an_app_that_answers_queries_is_told_by_its_decorator(code, wanted):
    assert answers_queries(bundle(more=code)) is wanted


def test_our_own_apps_are_told_by_their_files_or_by_their_server(tmp_path):
    file = tmp_path / "pyproject.toml"
    assert kind_of(tmp_path) == "own"
    for server, kind in (
        ("zerosum.server.flower.server_app:app", "experiment"),
        ("zerosum.server.flower.query_app:app", "queries"),
        ("own.server_app:app", "own"),
    ):
        file.write_text(PROJECT.replace("SERVER", server))
        assert kind_of(tmp_path) == kind
    file.write_text("[tool")
    assert kind_of(tmp_path) == "own"
    (tmp_path / "plan.toml").touch()
    assert kind_of(tmp_path) == "queries"
    (tmp_path / "experiment.toml").touch()
    assert kind_of(tmp_path) == "experiment"
