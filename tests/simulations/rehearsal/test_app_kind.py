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
strategy = PrivateStrategy(FedAvg(), clip=1.0, noise_multiplier=2.0)
"""
PLAIN_SERVER = SERVER.replace("from zerosum.server import PrivateStrategy", "")


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


PRIVATE = {
    "the two lines": bundle(),
    "the module": bundle(CLIENT.replace("from zerosum.client import private_mod",
                                        "import zerosum.client as z")),
    "in a file of its own": bundle(
        PLAIN_CLIENT, PLAIN_SERVER,
        ours="from zerosum.client import private_mod\nfrom zerosum.server import PrivateStrategy\n",
    ),
    "the app within ours": bundle(
        'from zerosum.client import PrivateClientApp\napp = PrivateClientApp("own.plain:app")\n',
        plain=PLAIN_CLIENT,
    ),
    "a component of ours": bundle(
        PLAIN_CLIENT, components=("own.server_app:app", "zerosum.client.flower.app:app")
    ),
    "a file that is no Python": bundle(broken="def ("),
}  # fmt: skip


@pytest.mark.parametrize("what", PRIVATE)
def test_an_app_with_a_line_of_ours_on_each_side_is_taken(what):
    check_private(PRIVATE[what])


REFUSED = {
    "plain": (bundle(PLAIN_CLIENT, PLAIN_SERVER), r"plain Flower app.*own/client_app\.py.*own/ser"),
    "no mod": (bundle(PLAIN_CLIENT), r"one of its two lines: add app = ClientApp.*client_app\.py"),
    "no strategy": (bundle(server=PLAIN_SERVER), r"one of its two lines: add strategy = .*server_"),
    "another package": (
        bundle(CLIENT.replace("zerosum.client", "zerosum_client")), "one of its two lines"),
    "trees": (
        bundle(server=SERVER.replace("FedAvg", "FedXgbBagging")),
        r"FedXgbBagging in own/server_app\.py joins boosted trees"),
    "trees by attribute": (
        bundle(server="import flwr.serverapp.strategy as s\nx = s.FedXgbCyclic()\n"),
        "boosted trees"),
    "NumPyClient": (
        bundle(CLIENT + "from flwr.client import NumPyClient\n"), "NumPyClient in .* legacy API"),
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
