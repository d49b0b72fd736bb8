"""SkipNorm on the GPU: what is added, which outputs are wanted, types, row lengths."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pyruntime.ir import Array
from pyruntime.ops.normalization.skip_norm import SkipNorm
from tests.harness import run_op
from tests.sampling import matrix

TOLERANCE = {"float32": (1e-4, 1e-4), "float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2)}


@pytest.mark.parametrize(
    ("length", "dtype", "device"), matrix([1, 7, 64, 130, 1024, 1030], list(TOLERANCE), ["gpu", "software"])
)
def test_skip_norm__terms_and_outputs__follow_the_formula(
    device: str, dtype: str, length: int, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    rng = np.random.default_rng(length)
    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)

    def draw(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(kind)

    x = draw(2, 3, length)
    for rms, shift, skip, bias, present in [
        (1, None, draw(2, 3, length), None, (True, False, False, True)),
        (0, draw(length), draw(3, length), draw(length), (True, False, False, True)),
        (0, draw(length), None, draw(length), (True, True, True)),
        (1, None, draw(1, 3, length), draw(length), (True,)),
        (0, None, draw(length), None, (True, False, True, False)),
    ]:
        scale = draw(length)
        op = SkipNorm(epsilon=1e-3, rms=rms, present=present)
        made = run_op(op, [x, scale, shift, skip, bias], gpu)
        wide = [None if a is None else a.astype(np.float64) for a in (x, scale, shift, skip, bias)]
        expected = _reference(rms, *wide)
        for mine, theirs in zip(made, (e for e, p in zip(expected, present, strict=False) if p), strict=True):
            np.testing.assert_allclose(mine, theirs, *TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("length", "pieces", "dtype", "device"),
    matrix([16, 33, 64, 132, 1024], [1, 2, 4], ["float32", "float16"], ["gpu", "software"]),
)
def test_skip_norm__rows_in_another_order__are_read_and_written_so(
    length: int, pieces: int, dtype: str, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    rng = np.random.default_rng(length)
    pieces = pieces if length % pieces == 0 and (length // pieces) % 4 == 0 else 1
    rows, piece = 7, length // pieces
    wide = rng.standard_normal((9 * pieces, piece))
    skip, scale, shift = rng.standard_normal((rows, length)), rng.standard_normal(length), rng.standard_normal(length)
    order, places = rng.permutation(9 * pieces)[: rows * pieces], rng.permutation(rows)
    x, skip, scale, shift = (a.astype(dtype) for a in (wide.reshape(3, 3, length), skip, scale, shift))
    taken = x.reshape(-1, piece)[order].reshape(rows, length)
    tables = order.astype(np.uint32), places.astype(np.uint32)
    for added, read, written in [(skip, True, True), (None, True, False), (skip, True, False), (None, False, True)]:
        op = SkipNorm(epsilon=1e-3, shape=(rows, length) if read else (), present=(True, False, False, True))
        given = x if read else taken
        inputs = [given, scale, shift, added, None, tables[0] if read else None, tables[1] if written else None]
        y, total = run_op(op, inputs, gpu)
        terms = [None if a is None else a.astype(np.float64) for a in (taken, scale, shift, added, None)]
        wanted, _, _, sum_wanted = _reference(0, *terms)
        np.testing.assert_allclose(y[places] if written else y, wanted, *TOLERANCE[dtype])
        np.testing.assert_allclose(total, sum_wanted, *TOLERANCE[dtype])


def _reference(rms: int, x: Any, scale: Any, shift: Any, skip: Any, bias: Any) -> tuple[Array, ...]:
    """The formula in float64."""
    total = x + (0 if skip is None else skip) + (0 if bias is None else bias)
    mean = total.mean(-1, keepdims=True) * (1 - rms)
    inv = 1 / np.sqrt(((total - mean) ** 2).mean(-1, keepdims=True) + 1e-3)
    return (total - mean) * inv * scale + (0 if shift is None else shift), mean, inv, total
