"""The script that runs other people's Flower apps: the lines it writes, and what it reads."""

import json

import pytest

import flower_examples
from flower_examples_edits import CannotEditError, Settings, components, make_private
from flower_examples_reading import evaluation_metrics, measured, reason, said

ONE = Settings("clip=1.0", '{"counts": {"n": Counts()}}, epsilon=1.0')

PYPROJECT = """[tool.flwr.app.components]
serverapp = "mine.server:app"
clientapp = "mine.client:app"
"""

CLIENT = """from flwr.clientapp import ClientApp

app = ClientApp({})
"""

SERVER = """from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid, context):
    {}
"""


def app_of(folder, client="", server="s = FedAvg()\n    s.start(grid=grid)"):
    (folder / "mine").mkdir()
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "mine" / "client.py").write_text(
        client if "ClientApp" in client else CLIENT.format(client)
    )
    (folder / "mine" / "server.py").write_text(SERVER.format(server))
    return folder


def added(edited):
    return [
        line[1:].strip()
        for line in edited.diff.splitlines()
        if line[0] == "+" and line[:3] != "+++"
    ]


@pytest.mark.parametrize(
    ("client", "line"),
    [
        ("", "app = ClientApp(mods=[private_mod])"),
        ("mods=[]", "app = ClientApp(mods=[private_mod])"),
        ("client_fn=make", "app = ClientApp(client_fn=make, mods=[private_mod])"),
        ("make,  # ours\n", "app = ClientApp(make, mods=[private_mod],  # ours"),
        ("mods=[log(), size]", "app = ClientApp(mods=[private_mod, log(), size])"),
        ("mods=MODS", "app = ClientApp(mods=[private_mod, *MODS])"),
        ("mods=[mod.secaggplus_mod, size]", "app = ClientApp(mods=[private_mod, size])"),
        ("mods=[LocalDpMod(1, 2)]", "app = ClientApp(mods=[private_mod])"),
        ("lifespan=über", "app = ClientApp(lifespan=über, mods=[private_mod])"),
    ],
)
def test_the_mod_comes_first_and_takes_the_place_of_other_protections(tmp_path, client, line):
    edited = make_private(app_of(tmp_path, client), ONE)
    assert added(edited)[:2] == ["from zerosum.client import private_mod", line]
    assert edited.notes == (
        ("mod.secaggplus_mod replaced",)
        if "secagg" in client
        else ("LocalDpMod(1, 2) replaced",)
        if "Local" in client
        else ()
    )


@pytest.mark.parametrize(
    ("server", "line"),
    [
        ("s = FedAvg()\n    s.start(grid=grid)", "s = PrivateStrategy(s, clip=1.0)"),
        ("s = FedAvg()\n    s.start(grid, arrays)", "s = PrivateStrategy(s, clip=1.0)"),
        ("FedAvg().start(grid)", "PrivateStrategy(FedAvg(), clip=1.0).start(grid)"),
        # a name of the module's: giving it a value here would make it the function's own
        ("S.start(grid=grid)", "PrivateStrategy(S, clip=1.0).start(grid=grid)"),
        ("a.s.start(num_rounds=1)", "PrivateStrategy(a.s, clip=1.0).start(num_rounds=1)"),
        (
            "s = FedAvg()\n    for r in x:\n        s.start(grid)",
            "PrivateStrategy(s, clip=1.0).start(grid)",
        ),
        (
            "s = FedAvg()\n    if x: s.start(grid)",
            "if x: PrivateStrategy(s, clip=1.0).start(grid)",
        ),
        (
            "s = FedAvg()\n    with x:\n        s.start(grid)",
            "s = PrivateStrategy(s, clip=1.0)",
        ),
        (
            "s = FedAvg()\n    c = LegacyContext(context, strategy=s)",
            "s = PrivateStrategy(s, clip=1.0)",
        ),
    ],
)
def test_the_strategy_that_is_started_is_wrapped_where_it_may_be_named_anew(tmp_path, server, line):
    edited = make_private(app_of(tmp_path, server=server), ONE)
    assert added(edited)[2:] == ["from zerosum.server import PrivateStrategy", line]
    assert edited.lines == 4
    compile((tmp_path / "mine" / "server.py").read_text(), "server", "exec")


def test_an_app_that_sends_by_hand_gets_a_private_grid_before_it_does(tmp_path):
    server = '"""Main."""\n    ids = grid.get_node_ids()\n    grid.send_and_receive([])'
    edited = make_private(app_of(tmp_path, server=server), ONE)
    assert added(edited)[2:] == [
        "from zerosum.server import Counts, PrivateQueries",
        'grid = PrivateQueries(grid, {"counts": {"n": Counts()}}, epsilon=1.0)',
    ]
    text = (tmp_path / "mine" / "server.py").read_text()
    compile(text, "server", "exec")
    assert text.index('"""Main."""') < text.index("grid = ") < text.index("ids = ")


def test_a_thread_that_is_started_is_no_strategy(tmp_path):
    app = app_of(tmp_path, server="s = FedAvg()\n    thread.start()\n    s.start(grid)")
    assert added(make_private(app, ONE))[3] == "s = PrivateStrategy(s, clip=1.0)"


def test_an_import_stands_before_its_use_though_others_come_later(tmp_path):
    client = '"""A."""\nfrom flwr.clientapp import ClientApp\n\napp = ClientApp()\nimport late\n'
    make_private(app_of(tmp_path, client), ONE)
    text = (tmp_path / "mine" / "client.py").read_text()
    assert text.index("import private_mod") < text.index("mods=") < text.index("import late")


@pytest.mark.parametrize(
    ("client", "server", "line"),
    [("", "pass", "no strategy is started"), ("# ClientApp", "pass", "no ClientApp")],
)
def test_an_app_without_a_place_for_the_lines_says_what_was_sought(tmp_path, client, server, line):
    with pytest.raises(CannotEditError, match=line):
        make_private(app_of(tmp_path, client, server), ONE)


def test_a_folder_that_is_no_app_is_named(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(CannotEditError, match="no Flower app"):
        components(tmp_path)


def test_bytes_are_those_of_a_client_in_a_round_where_it_answered(tmp_path):
    lines = [
        {"time": 1.0, "round": 0, "up": {"7": 10}},
        {"time": 2.0, "round": 1, "down": {"7": 900, "8": 900}},
        {"time": 3.0, "round": 1, "up": {"7": 100}},
        {"time": 5.0, "round": 1, "up": {"7": 50, "8": 100}},
        {"time": 9.0, "round": 2, "up": {"8": 40}},
    ]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, up, seconds = measured(tmp_path / "1.jsonl")
    assert (up, seconds) == (300 / 3, 8.0)


RESULTS = [
    {
        "results": {
            "evaluate_metrics_serverapp": {},
            "evaluate_metrics_clientapp": {
                "1": {"accuracy": 0.5, "loss": 7.0, "list": [1.0]},
                "2": {"accuracy": 0.75, "loss": 0.6, "list": [2.0]},
            },
            "train_metrics_clientapp": {"1": {"loss": 9.0}},
        }
    }
]


def test_what_an_app_says_is_its_last_round_as_the_best_test_has_it():
    assert said(RESULTS, "") == "accuracy 0.75, loss 0.6, list [2] (evaluate, nodes)"
    tested = [{"results": RESULTS[0]["results"] | {"evaluate_metrics_serverapp": {"0": {"a": 1}}}}]
    assert said(tested, "") == "a 1 (evaluate, server)"
    assert said([], "INFO : first\n\x1b[92mINFO\x1b[0m :  a: [1 2]\n\n") == "a: [1 2]"
    assert said([], "mean:\n56.0\n(ClientAppActor pid=1) x\nWARNING :  y") == "mean: 56.0"
    assert said([], "") == ""
    history = (
        "INFO : [SUMMARY]\nINFO : {'a': [(1, 0.5),\nINFO :   (2, 0.25)],\nINFO : 'b': [(1, 7)]}"
    )
    assert said([], history) == "a 0.25, b 7 (its history)"


def test_metrics_of_the_nodes_are_bounded_by_what_a_plain_run_showed():
    assert evaluation_metrics(RESULTS) == {"accuracy": 1.0, "loss": 100.0}
    assert evaluation_metrics([]) == {}
    percent = {"evaluate_metrics_clientapp": {"1": {"accuracy": 0.9}, "2": {"accuracy": 61.5}}}
    assert evaluation_metrics([{"results": percent}]) == {"accuracy": 1000.0}


LOG = """INFO :      Starting
ERROR :     Simulation raised an exception
Traceback (most recent call last):
  File "a.py", line 3, in b
    raise ValueError("Error: not this")
{}
INFO :      done
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("zerosum.server.config.ConfigError: clip = 0: positive", "clip = 0: positive"),
        ("ModuleNotFoundError: No module named 'x'", "ModuleNotFoundError: No module named 'x'"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_a_failure_is_one_line_the_last_error_of_the_log(line, expected):
    assert reason(LOG.format(line)) == expected
    assert reason("INFO : all well") == ""


ASSERTED = """ERROR :     ServerApp thread raised an exception:
ERROR :     Traceback (most recent call last):
  File "/usr/lib/python3/flwr/run.py", line 7, in run
    main(grid)
  File "/tmp/app/pandas_example/server_app.py", line 83, in main
    assert total == expected{}
           ^^^^^^^^^^^^^^^^^
AssertionError{}
"""


def test_an_assertion_without_words_is_told_by_its_place_and_source():
    place = "pandas_example/server_app.py:83: assert total == expected"
    assert reason(ASSERTED.format("", "")) == place
    assert reason(ASSERTED.format(', "off"', ": off")) == "AssertionError: off"
    assert reason("AssertionError") == "AssertionError"
    assert reason(ASSERTED.format("", "") + "KeyError: 'a'") == "KeyError: 'a'"


def test_a_run_that_fails_has_its_line_in_the_table():
    rows = [
        flower_examples.Row("a", "simulation", "plain", "acc 1", bytes_up=2345, seconds=1.25),
        flower_examples.Row("b", "simulation", "masked", failure="x | y", lines=4, notes=("m",)),
    ]
    assert flower_examples.table(rows).splitlines()[2:] == [
        "| a | simulation, plain | acc 1 | 2.3 | 1.2 | 0 |",
        "| b | simulation, masked | **x \\| y** (m) |  |  | 4 |",
    ]


def test_a_folder_without_apps_is_a_users_mistake(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["flower_examples.py", str(tmp_path)])
    assert flower_examples.main() == 2
    assert capsys.readouterr().err == f"{tmp_path}: no app in it\n"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a call of the script on apps that are no Flower apps; nothing is started for them."""

    def called(*arguments):
        for name in ("a", "b"):
            (tmp_path / "apps" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "apps" / name / "pyproject.toml").write_text("[project]\n")
        words = ["flower_examples.py", str(tmp_path / "apps"), *arguments]
        monkeypatch.setattr("sys.argv", words)
        monkeypatch.setattr(flower_examples, "_environment", lambda work: {})
        assert flower_examples.main() == 0
        return capsys.readouterr()

    return called


def test_an_app_that_cannot_be_run_has_one_line_and_the_next_one_its_turn(run):
    shown = run("--ways", "plain")
    rows = shown.out.splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| a", "| b"]
    assert all("**not edited: no Flower app: pyproject.toml: KeyError('tool')**" in x for x in rows)
    assert len(shown.err.splitlines()) == 2


def test_rows_that_are_there_are_not_run_again(run, tmp_path):
    file = tmp_path / "rows.json"
    kept = flower_examples.Row("a", "simulation", "plain", "kept", bytes_up=1e3, seconds=2.0)
    file.write_text(json.dumps([vars(kept)]))
    shown = run("--ways", "plain", "--json", str(file))
    assert "| a | simulation, plain | kept | 1.0 | 2.0 | 0 |" in shown.out
    assert [row["app"] for row in json.loads(file.read_text())] == ["a", "b"]
    assert shown.err.startswith("b, simulation, plain: not edited")
