"""An app that is known by its name is imported where it trains, and nowhere else."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from flwr.app import Context, RecordDict
from policies import LEAST_TOML

from zerosum.client import PrivateClientApp
from zerosum.client.flower.named_app import NamedApp
from zerosum.client.protocol.admission import Declined

APP = """
from flwr.clientapp import ClientApp
{imports}

def mod(message, context, call_next):
    return call_next(message, context)

app = ClientApp(mods=[mod])
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that writes an app into a package and returns its reference."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "quickstart_named"
    folder.mkdir()
    (folder / "__init__.py").touch()

    def write(imports=""):
        (folder / "client_app.py").write_text(APP.format(imports=imports))
        return f"{folder.name}.client_app:app"

    yield write
    for module in [each for each in sys.modules if each.partition(".")[0] == folder.name]:
        del sys.modules[module]


@pytest.mark.parametrize(
    "name", ["", "app", "client_app:", ":app", "a/b:app", "client app:app", "a..b:app", "a:b:c"]
)
def test_what_names_no_app_is_refused_where_it_is_written(name):
    with pytest.raises(ValueError, match="write its module and its attribute"):
        PrivateClientApp(name)


def test_an_app_with_mods_or_functions_of_its_own_takes_no_others():
    with pytest.raises(ValueError, match=r"PrivateClientApp\('a:b'\): its mods"):
        PrivateClientApp("a:b", mods=[lambda message, context, call_next: message])
    app = PrivateClientApp("a:b")
    for register in (app.train, app.evaluate, app.query, app.lifespan):
        with pytest.raises(ValueError, match="registered with the app that it names"):
            register()


def test_a_check_imports_nothing_but_the_package(package):
    reference = package(imports="raise RuntimeError('imported')")
    NamedApp(reference).check()
    assert reference.partition(":")[0] not in sys.modules


@pytest.mark.parametrize("module", ["no_such_package_here.client_app", "json.no_such_module"])
def test_a_module_that_is_not_there_is_declined_at_hello(module):
    with pytest.raises(Declined, match=rf'PrivateClientApp\("{module}:app"\) cannot be used'):
        NamedApp(f"{module}:app").check()


@pytest.mark.parametrize("why", ["raise OSError('no disk')", "raise SystemExit('no disk')"])
def test_an_app_that_cannot_be_imported_declines(package, why, caplog):
    with pytest.raises(Declined, match=r"cannot be used: .*no disk"):
        NamedApp(package(imports=why)).load()
    assert "Traceback" in caplog.text


@pytest.mark.parametrize(("attribute", "why"), [("mod", "a function"), ("apq", "no attribute")])
def test_a_name_of_anything_else_declines(package, attribute, why):
    module = package().partition(":")[0]
    with pytest.raises(Declined, match=why):
        NamedApp(f"{module}:{attribute}").load()


def message(kind="train"):
    metadata = SimpleNamespace(message_type=kind)
    return SimpleNamespace(metadata=metadata, content=RecordDict(), has_content=lambda: True)


def test_an_app_that_is_not_asked_yet_declines_plain_messages_without_its_import(package):
    reference = package()
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    with pytest.raises(Declined, match="only private sums"):
        PrivateClientApp(reference)(message(), context)
    assert reference.partition(":")[0] not in sys.modules


SCRIPT = """
import subprocess
import sys
from types import SimpleNamespace

from flwr.app import Context, Message, RecordDict

from zerosum.client import PrivateClientApp
from zerosum.client.flower.app_request import enveloped
from zerosum.client.flower.flower_internals import adopt_server_identity, set_message_id
from zerosum.client.protocol import flower_messages

adopt_server_identity(1)
content = enveloped(flower_messages.pack({}), flower_messages.HELLO_TYPE, RecordDict())
message = Message(content, 5, "train")
set_message_id(message, "m1")
node = {"partition-id": "0", "state-dir": "state", "policy": "policy.toml"}
context = Context(run_id=1, node_id=5, node_config=node, state=RecordDict(), run_config={})
reply = PrivateClientApp("theirs.client_app:app")(message, context)
assert reply.content["zerosum"]["index"] == 0
heavy = {"torch", "pandas", "pyarrow", "scipy", "sklearn", "dp_accounting", "ray"}
heavy |= {"zerosum.client.training", "theirs.client_app"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""


@pytest.mark.slow
def test_a_stage_of_a_named_app_imports_neither_the_app_nor_anything_that_trains(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "client_app.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "policy.toml").write_text(LEAST_TOML)
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
