"""Members that make a class a mechanism, which no other file knows."""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import pytest
from added_mechanism import AddedShares

from zerosum.client.privacy import registry
from zerosum.client.privacy.mechanism import MEMBERS, check_mechanism
from zerosum.client.privacy.skellam import SkellamWithBit

ROOT = Path(__file__).parents[3]
FILES = [path for part in ("secagg", "client", "server", "simulations")
         for path in sorted((ROOT / part / "zerosum").rglob("*.py"))]  # fmt: skip
CLASSES = {kind.__name__: kind for kind in (*dict(registry.BUILT_IN).values(), SkellamWithBit)} | {
    kind.__name__: kind for _, kind in (*registry.BUILT_IN, *registry.COUNTING)
}
NAMES = {name for name, _ in registry.BUILT_IN}
BUILDERS = {"registry.py", "local_dp_noise.py"}
"""The registry names every class, and noise inside local training is of one kind."""


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return the nodes of a source file that names a mechanism; none of any other."""
    text = path.read_text()
    named = any(name in text for name in (*CLASSES, *(f'"{name}"' for name in NAMES)))
    return list(ast.walk(ast.parse(text))) if named else []


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


def lacking(*left_out: str, **changed) -> type:
    """Return the added mechanism's class without some members, or with others."""
    members = {
        name: value
        for name, value in vars(AddedShares).items()
        if not name.startswith("__") and name not in left_out
    }
    fields = {"l2_sensitivity": float, "share_variance": float}
    return dataclass(frozen=True)(
        type("Lacking", (), {**members, **changed, "__annotations__": fields})
    )


@pytest.mark.parametrize("member", MEMBERS)
def test_a_class_without_a_member_is_refused_by_the_members_name(member: str) -> None:
    with pytest.raises(TypeError, match=rf"Lacking is no mechanism: it lacks {member};"):
        registry.register_mechanism("lacking", lacking(member))
    assert "lacking" not in registry.names()


def test_a_class_with_every_member_is_registered_once() -> None:
    registry.register_mechanism("whole", lacking())
    assert registry.names("distributed")[-1] == "whole"
    with pytest.raises(ValueError, match="'whole' is there already"):
        registry.register_mechanism("whole", lacking())
    with pytest.raises(ValueError, match="'auto'"):
        registry.register_mechanism("auto", lacking())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"added_by": "clients"}, r"added_by = 'clients'.*'share', 'client', 'server'"),
        ({"norm": "linf"}, "norm = 'linf'"),
        ({"takes_bit": 1}, "takes_bit has to be True or False"),
        ({"noise": None}, "noise has to be a method"),
    ],
)
def test_a_class_that_says_what_nobody_understands_is_refused(changed, message) -> None:
    with pytest.raises(TypeError, match=message):
        registry.register_mechanism("changed", lacking(**changed))


def test_who_adds_the_noise_is_of_the_class_and_not_of_an_object() -> None:
    @dataclass(frozen=True)
    class Varying(AddedShares):
        added_by: str = "share"  # type: ignore[misc]  # the fault that is tested

    with pytest.raises(TypeError, match=r"Varying.added_by has to be a ClassVar, not a field"):
        registry.register_mechanism("varying", Varying)  # type: ignore[arg-type]  # refused


def test_a_class_variable_without_a_value_is_missing() -> None:
    @dataclass(frozen=True)
    class Annotated(lacking("summary")):  # type: ignore[misc]  # made at run time
        summary: ClassVar[str]

    with pytest.raises(TypeError, match="it lacks summary"):
        registry.register_mechanism("annotated", Annotated)


def test_an_object_is_no_mechanism() -> None:
    with pytest.raises(TypeError, match="it has to be a class"):
        registry.register_mechanism("object", AddedShares(1.0, 1.0))  # type: ignore[arg-type]  # refused


@pytest.mark.parametrize(
    "name",
    ["", " ", "two words", "line\nend", "\x1b[31m", "<b>", 3, pytest.param("a" * 65, id="long")],
)
def test_a_mechanisms_name_is_a_word(name) -> None:
    with pytest.raises(ValueError, match="name is a word"):
        registry.register_mechanism(name, lacking())


def test_a_class_that_is_not_frozen_is_refused() -> None:
    members = {k: v for k, v in vars(AddedShares).items() if not k.startswith("__")}
    kinds: list[type] = [type("Plain", (), members), dataclass(type("Plain", (), members))]
    for kind in kinds:
        with pytest.raises(TypeError, match="frozen dataclass"):
            check_mechanism(kind)


def test_deriving_from_the_protocol_gives_no_member() -> None:
    from zerosum.client.privacy.mechanism import Mechanism

    kind: type = dataclass(frozen=True)(type("Derived", (Mechanism,), {}))
    with pytest.raises(TypeError, match="it lacks added_by, apply, bit_std"):
        check_mechanism(kind)


def test_what_from_spec_builds_is_checked_as_well(monkeypatch) -> None:
    from zerosum.client.protocol.protection import Protection
    from zerosum.client.spec import EncodingSpec, PrivacySpec

    short = lacking("slack")
    whole = lacking(from_spec=classmethod(lambda cls, *args: short(1.0, 1.0)))
    registry.register_mechanism("changing", whole)
    with pytest.raises(TypeError, match="it lacks slack"):
        Protection.build(
            PrivacySpec(mechanism="changing"), EncodingSpec(),
            cohort=10, dimension=5, rotation_seed=bytes(32),
        )  # fmt: skip


@pytest.mark.parametrize(("member", "value"), [("added_by", "server"), ("norm", "l1")])
def test_what_from_spec_builds_claims_what_the_registered_class_claims(member, value) -> None:
    from zerosum.client.protocol.protection import Protection
    from zerosum.client.spec import EncodingSpec, PrivacySpec

    other = lacking(**{member: value})
    kind = lacking(from_spec=classmethod(lambda cls, *args: other(1.0, 1.0)))
    registry.register_mechanism("lying", kind)
    with pytest.raises(TypeError, match=rf"whose {member} is {value!r} and not"):
        Protection.build(
            PrivacySpec(mechanism="lying"), EncodingSpec(),
            cohort=10, dimension=5, rotation_seed=bytes(32),
        )  # fmt: skip


def test_no_file_but_its_own_knows_a_mechanisms_class() -> None:
    """The control: the registry and a class's own file are found to know it."""
    found: dict[str, set[str]] = {}
    for path in FILES:
        for node in nodes_of(path):
            name = getattr(node, "id", getattr(node, "attr", None))
            if isinstance(node, ast.Name | ast.Attribute) and name in CLASSES:
                found.setdefault(path.name, set()).add(name)
    own = {f"{kind.__module__.rpartition('.')[2]}.py" for kind in CLASSES.values()}
    assert found["registry.py"] == set(CLASSES) - {"SkellamWithBit"}
    assert found["local_dp_noise.py"] == {"BinnedGaussian"}
    assert set(found) <= own | BUILDERS


def names_a_law(node: ast.AST) -> bool:
    """Test whether a comparison is with a query's law, which receipts and answers are made by."""
    return any(getattr(each, "id", getattr(each, "attr", None)) == "law" for each in ast.walk(node))


def test_no_file_compares_with_a_mechanisms_name() -> None:
    # The benchmark of samplers names laws of its own table, not mechanisms; so do queries, of which
    # one has a name that is a mechanism's too.
    others = (path for path in FILES if path.parts[-2:] != ("bench", "noise.py"))
    for path in (path for path in others if "analytics" not in path.parts):
        for node in nodes_of(path):
            if isinstance(node, ast.Compare | ast.match_case) and not names_a_law(node):
                constants = {
                    each.value for each in ast.walk(node) if isinstance(each, ast.Constant)
                }
                assert not constants & NAMES, f"{path}:{node}"
