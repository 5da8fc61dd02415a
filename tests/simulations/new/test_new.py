"""zerosum new: an app for the user's own data that runs as it is, or one line and nothing made."""

import runpy
import tomllib
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from policies import LEAST_TOML
from typer.testing import CliRunner

from zerosum.client.flower.client_app import DeployedEnvironment, build_app
from zerosum.client.protocol.noise_source import SystemEntropy
from zerosum.client.spec import ClientPolicy
from zerosum.client.task import ClientInfo, TaskError
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.runs.run_folder import RunFolder
from zerosum.server.training.loop import FederatedTraining
from zerosum.simulations import api, load_experiment
from zerosum.simulations.commands.main import app
from zerosum.simulations.engine.grid import InProcessGrid, nodes
from zerosum.simulations.new import Kind
from zerosum.simulations.new.app import Asked, make_app
from zerosum.simulations.new.description import literal

FAST = ["engine=serial", "data.clients=3", "rounds=2"]


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def simulated(folder, monkeypatch, *settings):
    """Run an app as `zerosum run experiment.toml` does in its folder."""
    monkeypatch.chdir(folder)
    experiment = load_experiment("experiment.toml", [*FAST, *settings])
    return api.run(experiment, out=folder / "runs" / "one", report=False)


def asked(data, label=None):
    return Asked((str(data),), label=label)


def write(path, rows):
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(Kind))
def test_a_new_app_runs_as_it_is(tmp_path, monkeypatch, one_thread, kind):
    done = invoke("new", tmp_path / f"new-{kind}", "--kind", kind)
    assert done.exit_code == 0, done.output
    folder = tmp_path / f"new-{kind}"
    assert [entry.name for entry in tmp_path.iterdir()] == [folder.name]
    monkeypatch.chdir(folder)
    result = invoke("run", "experiment.toml", *(f"--set={value}" for value in FAST))
    assert result.exit_code == 0, result.output
    assert "test accuracy" in result.output


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kind.CSV, Kind.IMAGES])
def test_a_new_app_learns(tmp_path, monkeypatch, one_thread, kind):
    make_app(tmp_path / f"learning-{kind}", Asked(kind=kind))
    result = simulated(tmp_path / f"learning-{kind}", monkeypatch, "rounds=5")
    assert result.metrics["test_accuracy"] > {Kind.CSV: 0.9, Kind.IMAGES: 0.5}[kind]


def people(count=60):
    """Return a table with what tables have: texts, truths, gaps, an index that was written."""
    rows = ["Unnamed: 0,name,age,smoker,weight,empty,ill"]
    for i in range(count):
        weight = "" if i % 7 == 0 else 50 + i % 40
        rows.append(f"{i},n{i},{20 + i},{i % 3 == 0},{weight},,{'yes' if i > 30 else 'no'}")
    return rows


def test_columns_and_classes_are_read_off_a_table(tmp_path, monkeypatch, one_thread):
    data = write(tmp_path / "people.csv", people())
    made = make_app(tmp_path / "people-app", asked(data, "ill"))
    assert made.found.classes == ["no", "yes"]
    assert made.found.constants["features"] == '["age", "smoker", "weight"]'
    assert list(made.found.left_out) == ["Unnamed: 0", "name", "empty"]
    values = tomllib.loads((made.folder / "experiment.toml").read_text())
    assert values["data"]["path"] == data.as_posix()
    assert simulated(made.folder, monkeypatch).metrics["test_accuracy"] > 0.5


@pytest.mark.slow
def test_values_are_regressed_on(tmp_path, monkeypatch, one_thread):
    rows = [f"{i % 17},{i % 5},{2000.5 * (i % 17) + 300 * (i % 5)}" for i in range(100)]
    made = make_app(tmp_path / "prices-app", asked(write(tmp_path / "p.csv", ["a,b,price", *rows])))
    assert (made.found.classes, made.found.label_scale) == (None, 10_000.0)
    result = simulated(made.folder, monkeypatch, "rounds=5")
    prices = np.array([float(row.rpartition(",")[2]) for row in rows])
    assert made.found.label_centre == 20_000.0
    assert result.metrics["test_loss"] < prices.var() / 4, "in the label's own unit"
    assert 100 < result.metrics["test_mean_absolute_error"] < prices.std() / 2
    task: Any = api.plan(load_experiment("experiment.toml")).task  # of the app that is made
    public = task.test_data()[1].numpy() * 10_000
    loss = result.metrics["test_loss"]
    assert result.metrics["test_r2"] == pytest.approx(1 - loss / public.var(), abs=1e-4)
    said = result.summary["data"]["line"]
    assert "label price (values to regress on)" in said
    assert said.endswith("; the model gives (price - 20000) / 10000")
    assert f"{len(public)} records are public" in said
    own = write(tmp_path / "own.csv", ["a,b,price", "1,2,3000"])
    node = ClientInfo(index=0, count=2, node_config={"data-path": str(own)})
    elsewhere = type(task)(task.spec.model_copy(update={"path": str(own)}), 0)
    targets = elsewhere.data(node)[1]
    measured = elsewhere.metrics(targets[:, None], targets)
    assert measured["mean_absolute_error"].tolist() == [0.0], "a file that is too small to split"


@pytest.mark.slow
def test_numbers_that_are_filled_are_named_when_an_app_is_made_and_in_each_run(
    tmp_path, monkeypatch, one_thread
):
    made = make_app(tmp_path / "gaps-app", asked(write(tmp_path / "people.csv", people()), "ill"))
    assert "missing numbers filled: weight" in made.found.described
    said = simulated(made.folder, monkeypatch).summary["data"]["line"]
    assert "missing numbers filled: weight" in said
    assert "label ill (2 classes: no, yes)" in said
    assert "12 records are public" in said


@pytest.mark.slow
def test_texts_are_inputs_by_the_categories_that_the_code_declares(
    tmp_path, monkeypatch, one_thread
):
    rows = [f"{i % 7};{i % 5},5;{'abc'[i % 3]};note {i};{i % 3 == 0}" for i in range(60)]
    data = write(tmp_path / "t.csv", ["x;w;kind;note;label", *rows])
    done = invoke("new", tmp_path / "texts-app", "--data", data)
    assert done.exit_code == 0, done.output
    assert 'read as separator ";", decimal ","' in done.output
    assert "Left out: note (text, 60 values)" in done.output
    result = simulated(tmp_path / "texts-app", monkeypatch, "rounds=12")
    assert result.metrics["test_accuracy"] > 0.9, "only the kind tells the label"
    assert "left out: note" in result.summary["data"]["line"]
    task: Any = api.plan(load_experiment("experiment.toml")).task  # of the app that is made
    own = write(tmp_path / "own.csv", ["x,w,kind,label", "1,2.5,b,False", "3,4.5,b,True"])
    node = ClientInfo(index=0, count=2, node_config={"data-path": str(own)})
    elsewhere = type(task)(task.spec.model_copy(update={"path": str(own)}), 0)
    assert elsewhere.data(node)[0][:, 2:].tolist() == [[0, 1, 0]] * 2, (
        "another dialect, one category"
    )


@pytest.mark.slow
def test_how_a_table_is_read_can_be_said(tmp_path):
    rows = [f"{i},{'?' if i % 9 == 4 else i % 5},{i % 2}" for i in range(40)]
    data = write(tmp_path / "t.csv", ["a,b,label", *rows])
    refused = invoke("new", tmp_path / "one-app", "--data", data)
    assert refused.exit_code == 2
    assert 'are "?"; write data.missing = ["?"]' in refused.output
    done = invoke("new", tmp_path / "one-app", "--data", data, "--set", 'data.missing=["?"]')
    assert done.exit_code == 0, done.output
    assert 'READING = {"missing": ["?"]}' in (tmp_path / "one-app/one_app/data.py").read_text()
    for setting, words in {
        "data.clients=3": "--set data.clients: allowed, for tables: data.missing",
        "rounds=3": "--set rounds: allowed",
        "data.decimal=;": "data.decimal",
    }.items():
        wrong = invoke("new", tmp_path / "two-app", "--data", data, "--set", setting)
        assert wrong.exit_code == 2
        assert words in wrong.output


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "relative"])
def test_a_path_that_is_given_whole_stays_whole(tmp_path, monkeypatch, whole):
    monkeypatch.chdir(tmp_path)
    data = write(tmp_path / "people.csv", people())
    given = data if whole else data.relative_to(tmp_path)
    done = invoke("new", "paths-app", "--data", given, "--label", "ill")
    assert done.exit_code == 0, done.output
    values = tomllib.loads((tmp_path / "paths-app/experiment.toml").read_text())
    assert values["data"]["path"] == (data.as_posix() if whole else "../people.csv")


def test_names_of_columns_and_classes_are_code_whatever_they_are():
    names = ['a "b"', "c\\d", "e\nf", "$g", "", "日", "\udc80", "'"]
    for name in [*names, names, [str(number) for number in range(200)]]:
        assert eval(literal(name)) == name
    assert max(map(len, literal([str(number) for number in range(200)]).splitlines())) < 100


@pytest.mark.slow
def test_odd_names_in_a_table_run(tmp_path, monkeypatch, one_thread):
    labels = ['"a ""quoted"" one"', "$name", "日本"]
    rows = [f"{i},{i % 4},{labels[i % 3]}" for i in range(30)]
    data = write(tmp_path / "odd $path.csv", ['$package,"x\\""y","the label"', *rows])
    made = make_app(tmp_path / "odd-app", asked(data))
    assert made.found.classes == ["$name", 'a "quoted" one', "日本"]
    assert simulated(made.folder, monkeypatch).summary["rounds_abandoned"] == 0


@pytest.mark.slow
def test_arrays_of_an_npz_are_told_apart(tmp_path, monkeypatch, one_thread):
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "x": rng.random((40, 5)),
        "y": np.arange(40) % 2,
        "other": rng.random((7, 3)),
    }
    np.savez(tmp_path / "arrays.npz", **arrays)
    made = make_app(tmp_path / "arrays-app", asked(tmp_path / "arrays.npz"))
    assert made.found.constants == {"label": '"y"', "inputs": '"x"', "shape": "(5,)"}
    assert simulated(made.folder, monkeypatch).summary["rounds_abandoned"] == 0


@pytest.mark.slow
def test_images_of_any_size_and_colour_are_brought_to_one(tmp_path, monkeypatch, one_thread):
    for number, size in enumerate([(200, 100), (30, 50), (64, 64)] * 5):
        folder = tmp_path / "photos" / ("cat" if number % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        mode = "RGB" if number % 3 else "L"
        colour = 10 * number if mode == "L" else (10 * number, 0, 0)
        Image.new(mode, size, colour).save(folder / f"{number}.jpg")
    made = make_app(tmp_path / "photos-app", asked(tmp_path / "photos"))
    assert made.found.classes == ["cat", "dog"]
    assert simulated(made.folder, monkeypatch).summary["rounds_abandoned"] == 0


def test_tiffs_and_pixels_of_16_bits_keep_their_shades(tmp_path, monkeypatch, one_thread):
    shades = {"cat": 20_000, "dog": 60_000}
    for name, shade in shades.items():
        (tmp_path / "scans" / name).mkdir(parents=True)
        for number in range(10):
            values = np.full((8, 8), shade + number, np.uint16)
            end = ".TIF" if number % 2 else ".png"
            Image.fromarray(values).save(tmp_path / "scans" / name / f"{number}{end}")
        (tmp_path / "scans" / name / "note.heic").touch()
    made = make_app(tmp_path / "scans-app", asked(tmp_path / "scans"))
    assert made.found.records == 20
    assert made.found.left_out == {"files .heic": "no image's name"}
    (file,) = made.folder.rglob("data.py")
    given = runpy.run_path(str(file))
    images, targets = given["read"](tmp_path / "scans")
    assert sorted({*images[targets == 0].flat}) == [20_000 // 257]
    assert sorted({*images[targets == 1].flat}) == [60_000 // 257]
    Image.fromarray(np.ones((8, 8), np.float32)).save(tmp_path / "scans" / "cat" / "f.tif")
    with pytest.raises(TaskError, match=r"f\.tif: save it with 8 or 16 bits"):
        given["read"](tmp_path / "scans")


BAD_NAMES = {
    "my_app": 'did you mean "my-app"?',
    "9lives": "a letter first",
    "a" * 33: "up to 32",
    "x-": "no hyphen last",
    "torch": "installed package torch",
    "Torch": "installed package torch",
    "json": "another, as my-json",
    "class": "another, as my-class",
    "data": "another, as my-data",
    "no/such/app": "create it first",
    "taken": "exists already",
}


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("name", list(BAD_NAMES))
def test_a_name_that_cannot_be_is_refused_in_one_line(tmp_path, name):
    (tmp_path / "taken").mkdir()
    done = invoke("new", tmp_path / name)
    assert done.exit_code == 2
    assert BAD_NAMES[name] in done.output
    assert len(done.output.splitlines()) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]


def refused_data(folder):
    """Return what each refused use says, by its arguments."""
    write(folder / "ok.csv", ["a,b,label", *(f"{i},x,{i % 2}" for i in range(20))])
    write(folder / "one-class.csv", ["a,label", *(f"{i},1" for i in range(20))])
    write(folder / "few.csv", ["a,label", "1,2"])
    write(folder / "texts.csv", ["a,label", *(f"x,{i}" for i in range(20))])
    write(folder / "gaps.csv", ["a,label", *(f"{i},{i if i % 2 else ''}" for i in range(20))])
    for name in ("empty.csv", "bad.npz", "bad.parquet", "notes.txt"):
        (folder / name).write_text("" if name == "empty.csv" else "hello")
    np.savez(folder / "flat.npz", y=np.arange(20))
    (folder / "folder").mkdir()
    (folder / "photos" / "cat").mkdir(parents=True)
    (folder / "photos" / "cat" / "1.png").write_text("no image")
    return {
        ("--data", "absent.csv"): "nothing is there; give a .csv file",
        ("--data", "notes.txt"): 'unknown kind ".txt"',
        ("--data", "ok.csv", "--label", "labl"): 'did you mean "label"?',
        ("--data", "ok.csv", "--kind", "images"): "is a file; give a folder of images",
        ("--data", "folder", "--kind", "csv"): "is a folder; give a .csv file",
        ("--data", "folder", "--label", "x"): "leave it out",
        ("--data", "folder"): "no images in its folders",
        ("--data", "photos"): "no image",
        ("--data", "one-class.csv"): "all labels are the same",
        ("--data", "few.csv"): "1 records; allowed: 10 or more",
        ("--data", "texts.csv"): "no numeric column is left as input (a: text",
        ("--data", "gaps.csv"): "some values are missing (10 of 20",
        ("--data", "empty.csv"): "cannot be read",
        ("--data", "bad.npz"): "cannot be read",
        ("--data", "bad.parquet"): "cannot be read",
        ("--data", "flat.npz"): "no numeric array of inputs",
        ("--label", "x"): "give --data",
    }


@pytest.mark.slow
def test_data_that_fit_no_app_are_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = refused_data(tmp_path)
    before = sorted(entry.name for entry in tmp_path.iterdir())
    for arguments, message in expected.items():
        done = invoke("new", "refused-app", *arguments)
        assert done.exit_code == 2, (arguments, done.output)
        assert message in done.output
        assert len(done.output.splitlines()) == 1, done.output
    assert sorted(entry.name for entry in tmp_path.iterdir()) == before


@pytest.mark.slow
def test_what_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    def full(folder, made):
        (folder / "pyproject.toml").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zerosum.simulations.new.app._write", full)
    done = invoke("new", tmp_path / "half-app")
    assert done.exit_code == 2
    assert "No space left on device" in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_task_says_where_it_looked_for_its_data(tmp_path, monkeypatch):
    data = write(tmp_path / "people.csv", people())
    made = make_app(tmp_path / "moved-app", asked(data, "ill"))
    data.unlink()
    monkeypatch.chdir(made.folder)
    done = invoke("run", "experiment.toml")
    assert done.exit_code == 2
    assert f"data.path = '{data}': nothing is there" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    refused = invoke("run", "experiment.toml", "--set", "data.partition=natural")
    assert refused.exit_code == 2
    assert "edit data(client)" in refused.output


def deployed(folder, policy, files):
    """Run an app in a folder with deployed clients, each with a file of its own."""
    settings = [f"data.clients={len(files)}", "rounds=1"]
    planned = api.plan(load_experiment("experiment.toml", settings))
    grid = InProcessGrid(
        build_app(DeployedEnvironment),
        len(files),
        node_config=lambda index: {
            "state-dir": str(folder / "state" / str(index)),
            "policy": str(policy),
            "data-path": str(files[index]),
        },
    )
    coordinator = Coordinator(
        grid,
        Nodes(nodes(len(files)), None),
        planned.experiment.secagg,
        run_id=policy.name.encode(),
        entropy=SystemEntropy(),
    )
    run = RunFolder.create(folder / "runs" / policy.stem, planned.experiment)
    return FederatedTraining(
        planned.experiment, planned.task, len(files), coordinator, SystemEntropy(), run
    ).run()


@pytest.mark.slow
def test_a_node_trains_on_its_own_file_where_its_policy_names_the_task(
    tmp_path, monkeypatch, one_thread
):
    made = make_app(tmp_path / "nodes-app", Asked())
    table = pd.read_csv(made.folder / "data" / "sample.csv")
    files = [tmp_path / f"{index}.csv" for index in range(3)]
    for index, file in enumerate(files):
        table.iloc[index::3].to_csv(file, index=False)
    monkeypatch.chdir(made.folder)
    result = deployed(made.folder, made.folder / "policy.toml", files)
    assert result.summary["rounds_abandoned"] == 0
    assert result.metrics["test_accuracy"] > 0.8

    task: Any = api.plan(load_experiment("experiment.toml")).task  # of the app that is made
    owned = ClientInfo(index=1, count=3, node_config={"data-path": str(files[1])})
    shared = ClientInfo(index=1, count=3)
    held_out = len(task.test_data()[1])
    assert len(task.data(owned)[1]) == len(table), "all of the file that is its own"
    assert len(task.data(shared)[1]) == (len(table) - held_out) // 3

    names = ClientPolicy.model_validate(tomllib.loads((made.folder / "policy.toml").read_text()))
    assert names.tasks == ["nodes_app.task:Task"]
    strange = write(
        made.folder / "strange.toml", ['models = ["none"]', 'servers = ["semi-honest"]', LEAST_TOML]
    )
    refused = deployed(made.folder, strange, files)
    assert refused.rounds[0]["dropouts"]["contribute"] == 3
