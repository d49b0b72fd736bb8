"""Nodes of com.microsoft whose inputs do not fit: what the error says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph, RuntimeException
from pyruntime.ir import DType, TensorType
from pyruntime.ops.contrib.dynamic_time_warping import DynamicTimeWarping
from pyruntime.ops.contrib.mrotary_embedding import MRotaryEmbedding
from pyruntime.ops.contrib.unfold_tensor import UnfoldTensor
from tests.harness import run_op


@pytest.mark.parametrize(
    ("attributes", "shape", "message"),
    [
        ({"size": 5}, (3, 4), "a size of 1 to 4"),
        ({"size": 0}, (3, 4), "a size of 1 to 4"),
        ({"size": 1, "dim": 0}, (0, 4), "a size of 1 to 0"),
        ({"size": 2, "step": 0}, (3, 4), "a step of at least 1, got 0"),
        ({"size": 2, "dim": 2}, (3, 4), r"an axis in \[-2, 1\], got 2"),
        ({"size": 1}, (), "rank 1 or more"),
    ],
)
def test_unfold_tensor__windows_that_do_not_fit__invalid_graph(
    attributes: dict[str, Any], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InvalidGraph, match=f"UnfoldTensor: .*{message}"):
        UnfoldTensor(**attributes).infer(TensorType(DType.FLOAT, shape))


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (1, 1, 3, 4)])
def test_dynamic_time_warping__no_matrix__invalid_graph(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraph, match=r"\[M, N\] or \[1, M, N\]"):
        run_op(DynamicTimeWarping(), [np.zeros(shape, np.float32)])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 0, 3)])
def test_dynamic_time_warping__empty_matrix__no_steps(shape: tuple[int, ...]) -> None:
    (y,) = run_op(DynamicTimeWarping(), [np.zeros(shape, np.float32)])
    assert (y.shape, y.dtype) == ((2, 0), np.int32)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mrope_section": (2, 1)}, "three numbers with the sum 4"),
        ({"mrope_section": (2, 1, 2)}, "three numbers with the sum 4"),
        ({"mrope_section": (5, -1, 0)}, "three numbers with the sum 4"),
        ({"mrope_layout": 2}, "an mrope_layout of 0 or 1, got 2"),
        ({"num_heads": None}, "num_heads that divide"),
        ({"num_heads": 3}, "num_heads that divide"),
        ({"rotary_embedding_dim": 5}, "an even number of components that turn, at most 8"),
        ({"rotary_embedding_dim": 10}, "an even number of components that turn, at most 8"),
        ({"rotary_embedding_dim": 6, "mrope_section": (1, 1, 1)}, r"caches of one shape \[positions, 3\]"),
        ({"positions": (2, 3)}, r"position_ids of int64 \[3, 2, 3\]"),
        ({"x": (3, 16)}, "rank 3 or 4"),
        ({"x": (2, 2, 3, 8), "num_heads": None, "rotary_embedding_dim": 8}, "num_heads with rotary_embedding_dim"),
    ],
)
def test_mrotary_embedding__attributes_that_do_not_fit__invalid_graph(changed: dict[str, Any], message: str) -> None:
    given = {"mrope_section": (2, 1, 1), "num_heads": 2, "x": (2, 3, 16), "positions": (3, 2, 3), **changed}
    x, table = TensorType(DType.FLOAT, given.pop("x")), TensorType(DType.FLOAT, (9, 4))
    positions = TensorType(DType.INT64, given.pop("positions"))
    with pytest.raises(InvalidGraph, match=f"MRotaryEmbedding: .*{message}"):
        MRotaryEmbedding(**given).infer(x, positions, table, table)


@pytest.mark.parametrize("place", [-1, 9])
def test_mrotary_embedding__position_behind_the_caches__is_named(place: int) -> None:
    table, positions = np.ones((9, 4), np.float32), np.zeros((3, 1, 2), np.int64)
    positions[1, 0, 1] = place
    x = np.ones((1, 1, 2, 8), np.float32)
    with pytest.raises(RuntimeException, match=rf"positions in \[0, 8\].*got {place} at \[1, 0, 1\]"):
        run_op(MRotaryEmbedding(mrope_section=(2, 1, 1)), [x, positions, table, table])
