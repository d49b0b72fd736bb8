"""Constants, whose bytes are read when they are needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyruntime.ir import Constant, DType, TensorType, has_dims, known
from pyruntime.ir.symbolic.sizes import Sizes


class _Unreadable:
    def read(self, offset: int, length: int) -> bytes:
        raise AssertionError(f"{length} bytes at {offset} were read")


def test_has_dims__constant__is_not_read() -> None:
    kind = TensorType(DType.FLOAT, (1 << 20, 64))
    constant = Constant(kind, _Unreadable())
    assert not has_dims(replace(kind, source=constant.numpy, name="w"))


def test_has_dims__values_computed_while_planning__are_looked_at() -> None:
    sizes = Sizes()
    size = sizes.add("n", 3, 1, 8)
    kind = TensorType(DType.INT64, (2,))
    assert has_dims(known(kind, np.array([size, 1], dtype=object)))
    assert not has_dims(known(kind, np.array([2, 1], np.int64)))
    assert not has_dims(kind) and not has_dims(None)
