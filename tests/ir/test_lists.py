"""Lists of attributes in arrays: sequences that compare as the elements do, by their bytes."""

from __future__ import annotations

import numpy as np
import pytest

from pyruntime.ir import Floats, Ints, Strings


def test_ints__of_any_integers__are_a_sequence_of_python_s() -> None:
    made = Ints((3, -1, 1 << 40))
    assert list(made) == [3, -1, 1 << 40]
    assert (len(made), made[1], type(made[1]), list(made[1:])) == (3, -1, int, [-1, 1 << 40])
    assert np.asarray(made, np.int64).tolist() == [3, -1, 1 << 40]
    assert not Ints(()) and Ints(()).array.dtype == np.int64


def test_numbers__of_an_array__share_it_read_only() -> None:
    array = np.arange(4, dtype=np.int32)
    made = Ints(array)
    assert np.shares_memory(made.array, array)
    with pytest.raises(ValueError, match="read-only"):
        made.array[0] = 1
    array[0] = 1  # the caller's own stays writable


def test_floats__equal_numbers_of_other_bytes__differ() -> None:
    assert Floats((0.0, float("nan"))) == Floats((0.0, float("nan")))
    assert hash(Floats((1.0,))) == hash(Floats((1.0,)))
    assert Floats((0.0,)) != Floats((-0.0,))
    assert Ints((1,)) != Floats((1.0,))
    assert Floats((1.0,)) != (1.0,)


def test_strings__of_texts__keep_each_different_one_once() -> None:
    made = Strings.of(["a", "b", "a"])
    assert (made.distinct, list(made.codes), list(made)) == (("a", "b"), [0, 1, 0], ["a", "b", "a"])
    assert (made[2], made[1:], len(made)) == ("a", ("b", "a"), 3)
    assert Strings.of(made) is made
    assert made == Strings.of(("a", "b", "a")) and hash(made) == hash(Strings.of(("a", "b", "a")))
    assert made != Strings.of(("a", "b", "b"))
