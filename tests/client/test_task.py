"""A name becomes a task, or one line that says what to change."""

import subprocess
import sys
from pathlib import Path

import pytest

from zerosum.client.spec import DataSpec, ModelSpec
from zerosum.client.task import ClientInfo, Task, TaskError, error_line, population, resolve_task

METHODS = """
    def model(self): return "a model"
    def data(self, client): return client.index
    def test_data(self): return None
    def loss(self, outputs, targets): return outputs
"""
EXAMPLES = Path(__file__).parents[2] / "examples"


def resolve(name: str) -> Task:
    return resolve_task(name, DataSpec(), ModelSpec(), 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, module: str, text: str) -> None:
    (folder / f"{module}.py").write_text(text)


def test_a_quoted_error_is_one_line_of_bounded_length_whatever_it_says() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert error_line(KeyError()) == "KeyError"
    assert error_line(ValueError("\n first\nsecond")) == "ValueError: first"
    assert error_line(Mute()) == "Mute: its message cannot be read"
    long = error_line(ValueError("x" * 10**7))
    assert len(long) < 1100
    assert long.endswith("x…")


def test_importing_the_module_imports_no_torch() -> None:
    code = "import sys, zerosum.client.task; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_object_in_the_current_directory_is_the_task(here: Path) -> None:
    write(here, "task_object", f"class Mine:{METHODS}\ntask = Mine()")
    path = list(sys.path)
    task = resolve("task_object:task")
    assert task.data(ClientInfo(3, 9)) == 3  # type: ignore[comparison-overlap]
    assert sys.path == path


def test_a_class_or_a_function_without_arguments_is_called(here: Path) -> None:
    write(here, "task_class", f"class Mine:{METHODS}\ndef make(): return Mine()")
    assert resolve("task_class:Mine").model() == "a model"  # type: ignore[comparison-overlap]
    assert resolve("task_class:make").model() == "a model"  # type: ignore[comparison-overlap]


def test_from_specs_gets_the_sections_and_the_seed(here: Path) -> None:
    write(
        here,
        "task_specs",
        f"class Mine:{METHODS}\n    @classmethod\n    def from_specs(cls, data, model, seed):\n"
        "        made = cls(); made.got = (data.clients, model.name, seed); return made",
    )
    task = resolve_task("task_specs:Mine", DataSpec(clients=7), ModelSpec(name="cnn"), 5)
    assert task.got == (7, "cnn", 5)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mnist5", ['task = "mnist5"', "digits", "module:object", 'did you mean "mnist5k"?']),
        ("a_modul:task", ['"a_modul:task"', "no module a_modul", 'did you mean "a_module"?']),
        ("a_module:tsk", ["a_module has no tsk", 'did you mean "task"?']),
        ("a_module:partial", ["lacks data, test_data, loss"]),
        ("a_module:Needy", ["Needy needs arguments"]),
        ("a_module:", ["module:object"]),
        ("needs_more:task", ["imports nowhere_to_be_found", "install it"]),
        ("broken:task", ["importing broken fails"]),
        (".relative:task", ["without leading dots"]),
    ],
)
def test_a_wrong_name_is_one_line_with_a_cure(here: Path, name: str, words: list[str]) -> None:
    write(
        here,
        "a_module",
        f"class Whole:{METHODS}\n    pass\ntask = Whole()\n"
        "class Partial:\n    def model(self): ...\npartial = Partial()\n"
        f"class Needy:{METHODS}\n    def __init__(self, x): ...\n",
    )
    write(here, "needs_more", "import nowhere_to_be_found")
    write(here, "broken", "def (")
    path = list(sys.path)
    with pytest.raises(TaskError) as caught:
        resolve(name)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    assert sys.path == path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "divides:task",
            ["importing divides fails with ZeroDivisionError", "(divides.py, line 1)"],
        ),
        ("leaves:task", ["importing leaves fails with SystemExit: 3", "(leaves.py, line 2)"]),
        ("broken:task", ["importing broken fails with SyntaxError", "(broken.py, line 1)"]),
        ("raises:make", ["make fails with ValueError: first", "(raises.py, line 3)"]),
        ("raises:leave", ["leave fails with SystemExit: bye", "(raises.py, line 4)"]),
        ("raises:Specs", ["Specs.from_specs fails with KeyError: 'x'"]),
        ("raises:Asks.lazy", ["Asks.lazy fails with RuntimeError: not now"]),
    ],
)
def test_whatever_the_users_code_raises_is_one_line_with_its_cause(
    here: Path, name: str, words: list[str]
) -> None:
    write(here, "divides", "def f(): return 1 / 0\nx = f()")
    write(here, "leaves", "import sys\nsys.exit(3)")
    write(here, "broken", "def (")
    write(
        here,
        "raises",
        "import sys\ndef inner(): "
        "\n    raise ValueError('first\\nsecond')\ndef leave(): sys.exit('bye')\n"
        "def make(): inner()\nclass Specs:\n    @classmethod\n"
        "    def from_specs(cls, *sections): raise KeyError('x')\n"
        "class Meta(type):\n    @property\n    def lazy(cls): raise RuntimeError('not now')\n"
        "class Asks(metaclass=Meta): pass",
    )
    with pytest.raises(TaskError) as caught:
        resolve(name)
    for word in [f'task = "{name}"', *words]:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_a_fault_inside_the_package_names_no_file_of_the_users(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zerosum.simulations.data import heart

    for name in heart.HOSPITALS:
        (here / f"heart_{name}.csv").touch()
    monkeypatch.setattr(heart, "_records", lambda *given: heart._inputs(None))  # type: ignore[arg-type]
    with pytest.raises(TaskError) as caught:
        resolve_task("heart", DataSpec(path=str(here)), ModelSpec(), 0)
    assert "HeartTask.from_specs fails with TypeError" in str(caught.value)
    assert "heart.py" not in str(caught.value)
    assert "check the keys under [data]" in str(caught.value)


def test_a_task_error_of_the_users_code_passes_unchanged_and_so_does_an_interrupt(
    here: Path,
) -> None:
    write(
        here,
        "passes",
        "from zerosum.client.task import TaskError\ndef make(): raise TaskError('mine')\n"
        "def stop(): raise KeyboardInterrupt",
    )
    with pytest.raises(TaskError, match=r"^mine$"):
        resolve("passes:make")
    with pytest.raises(KeyboardInterrupt):
        resolve("passes:stop")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sys:exit", ["exit is no task", "that sys defines"]),
        ("os:abort", ["abort is no task"]),  # it would end the process
        ("factories:make", ["make is no task", "(elsewhere does)"]),
        ("builtins:int.from_bytes", ["from_bytes is no task"]),
        ("sys:maxsize.x", ["sys has no maxsize.x"]),
        ("types:ModuleType", ["module needs arguments"]),
        ("a_mod\nule:x", ["a_mod\\nule"]),
    ],
)
def test_what_the_named_module_does_not_define_is_not_called(
    here: Path, name: str, words: list[str]
) -> None:
    write(here, "elsewhere", "def make(): raise RuntimeError('called')")
    write(here, "factories", "from elsewhere import make")
    with pytest.raises(TaskError) as caught:
        resolve(name)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_population_is_configured_or_suggested(here: Path) -> None:
    write(here, "task_count", f"class Mine:{METHODS}\n    def num_clients(self): return 12")
    write(here, "task_silent", f"class Mine:{METHODS}")
    assert population(resolve("task_count:Mine"), DataSpec()) == 12
    assert population(resolve("task_count:Mine"), DataSpec(clients=5)) == 5
    with pytest.raises(TaskError, match=r"data\.clients is absent"):
        population(resolve("task_silent:Mine"), DataSpec())


def test_the_example_is_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    task = resolve("my_task:task")
    assert population(task, DataSpec()) == 100
    parts = [task.data(ClientInfo(i, 100)) for i in range(100)]
    assert sum(len(part[1]) for part in parts) == 1500
