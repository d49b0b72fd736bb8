"""Dataclasses that are frozen for type checkers alone are otherwise what the standard library makes of them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from pyruntime.ir import DType, TensorType
from pyruntime.ir.unguarded import dataclass, replace
from pyruntime.plan.plan import Region


@dataclass(frozen=True, slots=True)
class Light:
    a: int
    b: tuple[int, ...] = (1, 2)
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Guarded:
    a: int
    b: tuple[int, ...] = (1, 2)
    note: str = dataclasses.field(default="", compare=False)


def test_equality_hash_and_shape_are_the_standard_ones() -> None:
    assert Light(1, note="x") == Light(1, note="y") != Light(2)
    assert hash(Light(1, (3,), "x")) == hash(Guarded(1, (3,), "y"))
    assert repr(Light(1)) == repr(Guarded(1)).replace("Guarded", "Light")
    assert Light.__slots__ == Guarded.__slots__
    assert Light.__match_args__ == Guarded.__match_args__


def test_copies_and_replacements() -> None:
    light = Light(1, (3,), "x")
    for other in (copy.copy(light), copy.deepcopy(light), pickle.loads(pickle.dumps(light))):
        assert (other.a, other.b, other.note) == (1, (3,), "x")
    assert dataclasses.replace(light, a=2) == Light(2, (3,))


def test_replace__is_what_the_standard_library_makes() -> None:
    @dataclass(frozen=True, slots=True)
    class Single:
        a: tuple[int, ...] = ()
        seen: list[int] = dataclasses.field(init=False, compare=False, default_factory=list)

    @dataclass(slots=True)
    class Empty:
        pass

    light, single = Light(1, (3,), "x"), Single((1, 2))
    for changes in ({}, {"a": 2}, {"note": "y", "b": ()}):
        made: Any = replace(light, **changes)
        assert dataclasses.astuple(made) == dataclasses.astuple(dataclasses.replace(light, **changes))
    single.seen.append(1)
    assert (replace(single).a, replace(single).seen, replace(single, a=(3,)).a) == ((1, 2), [], (3,))
    assert replace(Empty()) == Empty()
    for wrong in ("c", "seen"):
        unknown: dict[str, Any] = {wrong: 1}
        with pytest.raises(TypeError, match=wrong):
            replace(single, **unknown)


def test_making_one_does_not_go_by_setattr() -> None:
    assert Light.__setattr__ is object.__setattr__
    assert Guarded.__setattr__ is not object.__setattr__
    assert Region.__setattr__ is object.__setattr__


def test_a_type_that_users_get__cannot_be_assigned_to() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TensorType(DType.FLOAT, (1,)).shape = (2,)  # type: ignore[misc]


def test_hashes_only_where_the_standard_library_makes_one() -> None:
    @dataclass(slots=True)
    class Mutable:
        a: int

    @dataclass(frozen=True, eq=False)
    class Own:
        a: int

    @dataclass(frozen=True)
    class Explicit:
        a: int

        def __hash__(self) -> int:
            return 7

    @dataclass(frozen=True)
    class Compared:
        a: int

        def __eq__(self, other: Any) -> bool:
            return isinstance(other, Compared)

    with pytest.raises(TypeError, match="unhashable"):
        hash(Mutable(1))
    one = Own(1)
    assert hash(one) == object.__hash__(one)
    assert one != Own(1)
    assert hash(Explicit(1)) == 7
    assert hash(Compared(1)) == hash((1,))
    assert Compared(1) == Compared(2)
