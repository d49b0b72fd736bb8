"""Random operators: distribution, seeds, types."""

from __future__ import annotations

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import DType, TensorType
from pyruntime.ops.registry import find, op_class
from tests.ops.elementwise.elementwise_cases import run

NAMES = ["RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"]


def test_random_normal__moments__mean_and_scale() -> None:
    x = run("RandomNormal", [], shape=[200, 100], mean=3.0, scale=2.0, seed=1.0)
    assert x.dtype == np.float32 and x.shape == (200, 100)
    assert abs(x.mean() - 3) < 0.05 and abs(x.std() - 2) < 0.05


def test_random_uniform__range_and_mean() -> None:
    x = run("RandomUniform", [], shape=[20000], low=-2.0, high=6.0, seed=2.0, dtype=DType.DOUBLE.code)
    assert x.dtype == np.float64
    assert x.min() >= -2 and x.max() < 6 and abs(x.mean() - 2) < 0.1


@pytest.mark.parametrize("name", ["RandomNormalLike", "RandomUniformLike"])
def test_random_like__shape_and_type_of_the_input__or_dtype(name: str) -> None:
    like = np.zeros((3, 4), np.float16)
    assert run(name, [like]).dtype == np.float16
    assert run(name, [np.zeros((3, 4), np.int64)], dtype=1).dtype == np.float32
    with pytest.raises(InvalidGraph, match=name):
        op_class(name, "", 22)().infer(TensorType(DType.INT64, (3,)))


def test_bernoulli__probabilities__frequencies() -> None:
    p = np.repeat(np.array([[0.0], [0.2], [0.7], [1.0]], np.float32), 20000, axis=1)
    y = run("Bernoulli", [p], seed=3.0, dtype=DType.INT32.code)
    assert y.dtype == np.int32 and set(np.unique(y)) == {0, 1}
    np.testing.assert_allclose(y.mean(axis=1), [0, 0.2, 0.7, 1], atol=0.02)
    assert run("Bernoulli", [p]).dtype == np.float32


def test_multinomial__log_probabilities__frequencies() -> None:
    logits = np.log(np.array([[1, 2, 7], [5, 0.0001, 5]], np.float32)) + 4
    y = run("Multinomial", [logits], sample_size=20000, seed=4.0)
    assert y.dtype == np.int32 and y.shape == (2, 20000)
    frequency = [[(row == c).mean() for c in range(3)] for row in y]
    np.testing.assert_allclose(frequency, [[0.1, 0.2, 0.7], [0.5, 0, 0.5]], atol=0.02)
    assert run("Multinomial", [logits], dtype=DType.INT64.code).dtype == np.int64


def test_seed__same_numbers__other_seed_others() -> None:
    a, b, c = (run("RandomNormal", [], shape=[5], seed=s) for s in (1.0, 1.0, 2.0))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    free = [run("RandomNormal", [], shape=[5]) for _ in range(2)]
    assert (free[0] != free[1]).any()


@pytest.mark.parametrize("name", NAMES)
def test_random__never_folded_or_shared(name: str) -> None:
    cls = find(name, "", 22)
    assert cls is not None and not cls.pure and not cls.has_kernel()


def test_dropout__training__drops_and_scales() -> None:
    x = np.ones(20000, np.float32)
    y, mask = run("Dropout", [x, np.float32(0.25), np.True_], None, 22, 2, seed=5)
    np.testing.assert_array_equal(y, np.where(mask, np.float32(1 / 0.75), 0))
    assert abs(mask.mean() - 0.75) < 0.02
