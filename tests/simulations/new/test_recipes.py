"""Apps whose patients or clients are hidden in noise, and what their files advise."""

import re
import shlex
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, RecordDict
from typer.testing import CliRunner

from zerosum.client.spec import ClientPolicy
from zerosum.client.task import ClientInfo, TaskError
from zerosum.server.config import ConfigError, parse_experiment
from zerosum.simulations import api, load_experiment
from zerosum.simulations.commands.main import app
from zerosum.simulations.config import experiment_names
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.new import Kind
from zerosum.simulations.new.app import Asked, Made, make_app
from zerosum.simulations.new.kinds import package_of
from zerosum.simulations.new.recipes import Protected, Recipe
from zerosum.simulations.report import write_report


def hospitals(folder: Path, count: int = 4, records: int = 120) -> list[str]:
    """Write tables of hospitals that differ, as hospitals do; return the files' names."""
    names = []
    for number in range(count):
        rng = np.random.default_rng(number)
        age = rng.normal(50 + 3 * number, 9, records).round()
        chol = np.zeros(records) if number == 2 else rng.normal(240, 50, records).round()
        ill = age + 8 * rng.normal(size=records) > 55
        num = np.where(ill, rng.integers(1, 5, records), 0)
        gaps = np.where(rng.random(records) < 0.1, np.nan, rng.integers(80, 180, records))
        frame = pd.DataFrame({"age": age, "chol": chol, "bp": gaps, "num": num})
        frame.to_csv(folder / f"h{number}.csv", index=False)
        names.append(str(folder / f"h{number}.csv"))
    return names


def made_of(folder: Path, name: str = "clinics-app", **keys: Any) -> Made:
    given = {"data": (str(folder / "h*.csv"),), "label": "num > 0", "privacy": "patient"}
    return make_app(folder / name, Asked(**{**given, "epsilon": 3.0, **keys}))


@pytest.mark.slow
def test_the_hospitals_app_learns_under_noise_with_patients_as_the_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    hospitals(tmp_path, records=120)
    made = made_of(tmp_path)
    monkeypatch.chdir(made.folder)
    experiment = load_experiment("experiment.toml", ["engine=serial"])
    result = api.run(experiment, out=tmp_path / "run", report=False)
    assert result.metrics["test_accuracy"] > 0.7
    bound = result.summary["epsilon"]["sum"]
    assert bound["value"] <= 3.0
    assert (bound["unit"], bound["delta"]) == ("example", made.recipe.delta)
    line = result.summary["data"]["line"]
    assert "h2.csv (120 records)" in line
    assert "0 counts as not measured in chol" in line
    assert "left out: num (the label is num > 0)" in line
    assert "(2 classes: num <= 0, num > 0)" in line
    assert "96 records are public" in line
    assert result.test_set["class_names"] == ["num <= 0", "num > 0"]
    page = write_report(result.folder).read_text()
    assert page.count(">num &gt; 0<") >= 3  # a row and a column of the matrix, and of the table
    assert "always class" not in page


@pytest.mark.slow
def test_what_the_code_states_of_numbers_is_of_the_public_records_alone(tmp_path: Path) -> None:
    names = hospitals(tmp_path)
    before = made_of(tmp_path, "one-app").found
    frame = pd.read_csv(names[0])
    task = load_task(tmp_path / "one-app", tmp_path)
    held = len(task.split.test)
    assert before.training_records == len(task.split.train)
    private = [i for i in range(len(frame)) if not in_test(task, frame, i)][:20]
    frame.loc[private, "age"] += 1000
    frame.to_csv(names[0], index=False)
    after = made_of(tmp_path, "two-app").found
    assert after.constants["scales"] == before.constants["scales"]
    frame["age"] += 1000
    frame.to_csv(names[0], index=False)
    assert made_of(tmp_path, "six-app").found.constants["scales"] != before.constants["scales"], (
        "the control: public records do set the scales"
    )
    assert held == 96


def load_task(folder: Path, origin: Path) -> Any:
    import importlib
    import sys

    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(f"{folder.name.replace('-', '_')}.task")
    finally:
        sys.path.remove(str(folder))
    spec = parse_experiment(tomllib.loads((folder / "experiment.toml").read_text())).data
    return module.Task.from_specs(spec, None, 0)


def in_test(task: Any, frame: pd.DataFrame, place: int) -> bool:
    row = frame.loc[place, ["age", "bp"]].to_numpy(np.float64)
    return bool(
        np.isclose(task.split.test.inputs[:, [0, 2]], row, equal_nan=True).all(axis=1).any()
    )


def test_a_record_moves_its_own_input_and_no_other(tmp_path: Path) -> None:
    names = hospitals(tmp_path)
    made_of(tmp_path, "own-app")
    task = load_task(tmp_path / "own-app", tmp_path)
    node = ClientInfo(index=0, count=4, node_config={"data-path": names[0]})
    other = task.spec.model_copy(update={"path": names[0]})
    before = type(task)(other, 0).data(node)[0]
    frame = pd.read_csv(names[0])
    frame.loc[5, "age"] = 1e6
    frame.to_csv(names[0], index=False)
    after = type(task)(other, 0).data(node)[0]
    changed = (before != after).any(dim=1).nonzero().flatten().tolist()
    assert changed == [5], "under unit = example, a mean that one record moves would be a leak"
    assert after.abs().max() <= 5


@pytest.mark.slow
def test_an_edited_label_that_reads_an_input_is_refused(tmp_path: Path) -> None:
    names = hospitals(tmp_path)
    code = made_of(tmp_path, "edited-app").folder / "edited_app" / "data.py"
    code.write_text(code.read_text().replace('LABEL = "num > 0"', 'LABEL = "age > 50"'))
    task = load_task(tmp_path / "edited-app", tmp_path)
    with pytest.raises(DataError, match='"age", which is an input too'):
        task.data(ClientInfo(index=0, count=4, node_config={"data-path": names[0]}))


@pytest.mark.slow
def test_a_node_that_holds_out_trains_on_what_the_simulation_gives_its_client(
    tmp_path: Path,
) -> None:
    names = hospitals(tmp_path)
    made_of(tmp_path, "held-app")
    task = load_task(tmp_path / "held-app", tmp_path)
    for index, name in enumerate(names):
        own = type(task)(task.spec.model_copy(update={"path": name}), 0)
        config = {"data-path": name}
        simulated = task.data(ClientInfo(index=index, count=4))
        whole = own.data(ClientInfo(index=index, count=4, node_config=config))
        held = ClientInfo(index=index, count=4, node_config={**config, "hold-out": True})
        assert len(whole[1]) == 120
        assert own.data(held)[0].tolist() == simulated[0].tolist()
        text = ClientInfo(index=index, count=4, node_config={**config, "hold-out": "true"})
        with pytest.raises(TaskError, match="write true or false"):
            own.data(text)


@pytest.mark.parametrize(
    ("config", "warned"), [({}, True), ({"hold-out": False}, False), ({"hold-out": True}, False)]
)
def test_a_node_that_may_train_on_the_servers_test_records_says_so_at_home(
    config: dict[str, Any], warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = hospitals(tmp_path)
    name = f"warned-{len(config)}-{config.get('hold-out', 0):d}-app"  # imported once a process
    made_of(tmp_path, name)
    task = load_task(tmp_path / name, tmp_path)
    task.data(ClientInfo(index=0, count=4))
    assert not caplog.records, "a simulated client has no file of its own"
    own = type(task)(task.spec.model_copy(update={"path": names[0]}), 0)
    own.data(ClientInfo(index=0, count=4, node_config={"data-path": names[0], **config}))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == warned
    assert all("trains on all of its file" in line and "hold-out=true" in line for line in said)


def readme_commands(made: Made) -> list[str]:
    """Return the node config of each command of an app's README."""
    text = (made.folder / "README.md").read_text()
    return re.findall(r"--node-config '(partition-id=[^']*)'", text)


@pytest.mark.slow
def test_the_commands_of_a_readme_fit_what_the_experiment_says_of_records(tmp_path: Path) -> None:
    from zerosum.client.flower.client_app import DeployedEnvironment
    from zerosum.client.protocol import flower_messages
    from zerosum.client.request import ModelRequest, model_payload
    from zerosum.server.privacy.protections import question_of

    hospitals(tmp_path)
    several = made_of(tmp_path, "several-app")
    one = made_of(tmp_path, "single-app", data=(str(tmp_path / "h0.csv"),), epsilon=5.0)
    for made, across in ((several, "hold-out=true"), (one, "hold-out=false")):
        *here, elsewhere = readme_commands(made)
        assert elsewhere.endswith(across), made.folder
        written = parse_experiment(tomllib.loads((made.folder / "experiment.toml").read_text()))
        experiment = made.recipe.experiment.model_copy(update={"data": written.data})
        question = question_of(experiment, 1, 4, noise_draw="per_client")
        asked = ModelRequest(question, model_payload(np.zeros(4, dtype=np.float32)))
        model = flower_messages.payload_record(asked.payload)
        content = flower_messages.pack({"request": asked.header}, model)
        for words in [*here, elsewhere]:
            config = tomllib.loads(words.replace(" ", "\n"))
            context = Context(1, 1, config, RecordDict(), {})
            read = DeployedEnvironment(context).request(content)  # not "the path is the server's"
            assert read.digest == asked.digest
    roster = re.search("roster add.*", (several.folder / "README.md").read_text())
    assert roster is not None
    assert roster[0].count("PUBLIC_OF_NODE") == several.recipe.nodes == 4


@pytest.mark.slow
def test_a_file_that_lacks_a_declared_column_counts_it_as_missing(tmp_path: Path) -> None:
    names = hospitals(tmp_path)
    pd.read_csv(names[1]).drop(columns="bp").to_csv(names[1], index=False)
    made = made_of(tmp_path, "lacking-app")
    assert "h1.csv lacks bp" in made.found.described
    task = load_task(tmp_path / "lacking-app", tmp_path)
    assert (task.data(ClientInfo(index=1, count=4))[0][:, 2] == 0).all()


MADE = [
    *(("csv", privacy) for privacy in ("none", "patient", "client")),
    ("npz", "patient"),
    ("images", "patient"),
    ("files", "none"),
    ("files", "patient"),
]


@pytest.mark.quick_one_in(3)
@pytest.mark.parametrize(("kind", "privacy"), MADE, ids=["-".join(each) for each in MADE])
def test_every_app_and_what_its_files_advise_is_not_hopeless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, privacy: str
) -> None:
    keys: dict[str, Any] = {"privacy": privacy, "epsilon": None if privacy == "none" else 3.0}
    if kind == "files":
        hospitals(tmp_path)
        keys |= {"data": (str(tmp_path / "h*.csv"),), "label": "num > 0"}
    else:
        keys["kind"] = Kind(kind)
    made = make_app(tmp_path / f"{kind}-{privacy}-app", Asked(**keys))
    text = (made.folder / "experiment.toml").read_text()
    written = tomllib.loads(text)
    sections = {key: written[key] for key in made.recipe.sections}
    assert sections == made.recipe.sections, "what was checked is what is written"
    ClientPolicy.model_validate(tomllib.loads((made.folder / "policy.toml").read_text()))
    monkeypatch.chdir(made.folder)
    done = CliRunner().invoke(app, ["plan", "experiment.toml"])
    assert done.exit_code == 0, done.output
    assert "hopeless" not in done.output
    for advised in re.findall(r"`zerosum new NAME ([^`]*)`", text):
        words = shlex.split(advised)
        other = CliRunner().invoke(
            app, ["new", str(tmp_path / f"advised-{kind}-app"), *command_of(keys), *words]
        )
        assert other.exit_code == 0, other.output


def command_of(keys: dict[str, Any]) -> list[str]:
    words = ["--data", *keys["data"], "--label", keys["label"]] if "data" in keys else []
    return words + (["--kind", str(keys["kind"])] if "kind" in keys else [])


@pytest.mark.slow
def test_what_plan_would_call_hopeless_is_refused_with_the_cure(tmp_path: Path) -> None:
    hospitals(tmp_path)
    with pytest.raises(ConfigError, match=r"with 4 clients: hopeless: .*--privacy patient"):
        made_of(tmp_path, "hopeless-app", privacy="client")
    assert not list(tmp_path.glob("*-app"))


def test_a_policy_admits_the_run_it_was_made_for_and_no_second_one(tmp_path: Path) -> None:
    from zerosum.client.protocol.own_budget import cost
    from zerosum.client.renyi_filter import ORDERS, divergence_limit, fixed_order
    from zerosum.client.request import ModelRequest
    from zerosum.server.privacy.protections import planned_protections, question_of

    hospitals(tmp_path)
    recipe: Recipe = made_of(tmp_path, "policy-app").recipe
    policy = ClientPolicy.model_validate(recipe.policy())
    assert (policy.units, policy.models) == (["example"], ["distributed"])
    experiment = recipe.experiment
    assert policy.min_noise_multiplier <= (experiment.privacy.noise_multiplier or 0)
    asked = ModelRequest(question_of(experiment, 1, 4, noise_draw="per_client"), b"")
    row = cost(asked, planned_protections(experiment, 4, recipe.dimension)["train"], 0)
    assert row is not None
    order = fixed_order(policy.max_epsilon, policy.budget_delta)
    limit = divergence_limit(policy.max_epsilon, policy.budget_delta, order)
    spent = recipe.rounds * float(row[ORDERS.index(order)])
    assert spent <= limit < 2 * spent
    text = (tmp_path / "policy-app" / "policy.toml").read_text()
    named = re.search(r"no room for it: ([0-9.]+),", text)
    assert named is not None
    admitted = [
        int(divergence_limit(most, 1e-4, fixed_order(most, 1e-4)) / one)
        for most in (policy.max_epsilon, float(named[1]))
        for one in [float(row[ORDERS.index(fixed_order(most, 1e-4))])]
    ]
    assert admitted == [recipe.rounds, recipe.rounds + 1]


@pytest.mark.quick_one_in(4)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "3"], "without --privacy"),
        (["--privacy", "patient"], "give --epsilon"),
        (["--privacy", "patiant", "--epsilon", "3"], 'did you mean "patient"?'),
        (["--privacy", "patient", "--epsilon", "-1"], "numbers above 0"),
        (["--data", "*.nothing"], "no file fits this pattern"),
        (["--data", "h0.csv", "--data", "h0.csv"], "named twice"),
        (["--data", "h*.csv", "--client-column", "age"], "each of 4 files is a client"),
        (["--data", "h0.csv", "--label", "nmu > 0"], 'did you mean "num"?'),
        (["--data", "h0.csv", "--client-column", "ag"], "no such column"),
        (["h0.csv"], "data are given by --data h0.csv"),
        (["--queries", "--privacy", "patient"], "--queries has no use for it"),
    ],
    ids=str,
)
def test_what_cannot_be_made_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    hospitals(tmp_path)
    done = CliRunner().invoke(app, ["new", "refused-app", *arguments])
    assert done.exit_code == 2, done.output
    assert words in done.output
    assert len(done.output.splitlines()) == 1, done.output


def test_a_pattern_that_the_shell_expanded_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hospitals(tmp_path)
    words = [f"h{number}.csv" for number in range(4)]
    done = CliRunner().invoke(app, ["new", "shell-app", "--data", *words, "--label", "num > 0"])
    assert done.exit_code == 0, done.output
    written = tomllib.loads((tmp_path / "shell-app" / "experiment.toml").read_text())
    assert written["data"]["path"] == [f"../{word}" for word in words]


def test_the_name_of_a_shipped_experiment_is_refused() -> None:
    for name in experiment_names():
        with pytest.raises(ConfigError, match=f"choose another, as my-{name}"):
            package_of(name)
    assert package_of("my-heart") == "my_heart"


def test_a_column_can_name_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.concat([pd.read_csv(name) for name in hospitals(tmp_path)], ignore_index=True)
    frame.assign(site=np.arange(len(frame)) % 3).to_csv(tmp_path / "all.csv", index=False)
    asked = Asked((str(tmp_path / "all.csv"),), label="num > 0", client_column="site")
    made = make_app(tmp_path / "sites-app", asked)
    assert "site" not in made.found.constants["features"]
    monkeypatch.chdir(made.folder)
    assert api.plan(load_experiment("experiment.toml")).population == 3


def test_delta_is_below_one_in_all_records() -> None:
    for records in (10, 99, 100, 101, 920, 30_162):
        description: Any = SimpleNamespace(records=records)
        found = Recipe(Protected.PATIENT, 3.0, description, "t")
        assert 0.01 <= found.delta * records * 1.000001 <= 0.1000001
