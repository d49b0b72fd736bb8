"""Operators whose invocations reduce by shuffles, with inputs: each kernel that includes parts/lanes.wgsl."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.ir import Array
from pyruntime.kernels import Dispatch, Target
from pyruntime.ops.attention.attention import Attention
from pyruntime.ops.base import Op
from pyruntime.ops.registry import newest, op_class
from pyruntime.target import SUBGROUP_SIZE
from tests.harness import typed
from tests.kernels.variant_cases import CASES as VARIANTS

__all__ = ["CASES", "lowered", "of_size", "shuffles"]

_rng = np.random.default_rng(5)


def _some(*shape: int) -> Array:
    return _rng.standard_normal(shape).astype(np.float32)


def _wide(*shape: int) -> Array:
    return _rng.integers(-(2**40), 2**40, shape)


_NORM, _SOFTMAX, _INSTANCES = newest("LayerNormalization"), newest("Softmax"), newest("InstanceNormalization")
_TURNED: Any = op_class("Gemm", "", 13)

CASES: dict[str, tuple[Op, list[Any]]] = {
    "sum": (newest("ReduceSum"), [_some(3, 3000)]),
    "sum_in_two": (newest("ReduceSum"), [_some(256, 64)]),
    "sum_of_few": (newest("ReduceSum"), [_some(70, 101)]),
    "arg": (newest("ArgMax"), [np.round(_some(900, 7))]),
    "arg_wide": (newest("ArgMin"), [_wide(777, 3)]),
    "any": (newest("ReduceMax"), [_rng.random((5, 300)) > 0.99]),
    "logarithm": (newest("ReduceLogSumExp"), [_some(7, 513)]),
    "mean_wide": (newest("ReduceMean"), [_wide(3, 777)]),
    "softmax_8": (_SOFTMAX, [_some(9, 39)]),
    "softmax_16": (_SOFTMAX, [_some(13, 100)]),
    "softmax_64": (_SOFTMAX, [_some(4, 256)]),
    "softmax_256": (_SOFTMAX, [_some(2, 5001)]),
    "norm_8": (_NORM, [_some(7, 40), _some(40), _some(40)]),
    "norm_128": (_NORM, [_some(5, 768), _some(768), _some(768)]),
    "norm_256": (newest("RMSNormalization"), [_some(3, 4096), _some(4096)]),
    "groups": (_INSTANCES, [_some(2, 3, 40, 41), _some(3), _some(3)]),
    "groups_in_two": (_INSTANCES, [_some(1, 2, 128, 80), _some(2), _some(2)]),
    "product_norm": (VARIANTS["matmul_norm"].op, VARIANTS["matmul_norm"].inputs()),
    "skinny": (newest("MatMul"), [_some(5, 300), _some(300, 41)]),
    "skinny_long": (newest("MatMul"), [_some(1, 3000), _some(3000, 40)]),
    "skinny_turned": (_TURNED(transB=1), [_some(3, 301), _some(37, 301)]),
    "skinny_turned_long": (_TURNED(transB=1), [_some(2, 3000), _some(40, 3000)]),
    "one_column": (newest("MatMul"), [_some(30, 777), _some(777, 1)]),
    "attention": (Attention(), [_some(1, 4, 2, 8), _some(1, 2, 9, 8), _some(1, 2, 9, 8)]),
    "attention_wide": (Attention(), [_some(1, 32, 1, 256), _some(1, 4, 77, 256), _some(1, 4, 77, 256)]),
    "attention_masked": (
        Attention(softcap=2.0),
        [_some(2, 8, 1, 64), _some(2, 2, 300, 64), _some(2, 2, 300, 64), _some(1, 300)],
    ),
}
"""By name: an operator and its inputs."""

_BRANCHES: Any = op_class("BranchwiseRMSNorm", "com.microsoft", 1)
CASES["norm_branches"] = (_BRANCHES(), [_some(5, 3, 768), _some(3, 768)])


def of_size(target: Target, size: int) -> Target:
    """`target` as a GPU whose subgroups all have `size` invocations, or with shuffles switched off."""
    plain = {f for f in target.features if not f.startswith(SUBGROUP_SIZE)}
    known = {"subgroups", f"{SUBGROUP_SIZE}{size or 32}"}
    return replace(target, features=frozenset(plain | known), disabled=frozenset(() if size else ("subgroup_sums",)))


def lowered(op: Op, inputs: Sequence[Any], target: Target) -> list[Dispatch]:
    """The operator's dispatches."""
    types: list[Any] = [typed(x) for x in inputs]
    return list(op.lower(target, *types))


def shuffles(op: Op, inputs: Sequence[Any], target: Target) -> bool:
    """Whether a dispatch reduces partial results by shuffles."""
    return any("reduced_lanes" in d.kernel.module.functions for d in lowered(op, inputs, target))
