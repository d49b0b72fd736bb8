"""An operator for each kernel variant, with inputs: how a variant's absence is seen, natively and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyruntime.ir import Array
from pyruntime.kernels import Dispatch, Target
from pyruntime.kernels.legalize import legalize
from pyruntime.kernels.products.integer_matmul import PACKED_DOT
from pyruntime.ops.attention.attention import Attention
from pyruntime.ops.base import Op
from pyruntime.ops.fused.attention_product import AttentionProduct
from pyruntime.ops.fused.elementwise import FusedElementwise, Step
from pyruntime.ops.fused.normed_product import NormedProduct
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.fused.with_norm import WithNorm
from pyruntime.ops.registry import newest, op_class
from pyruntime.target import MATRIX_UNIT, SHADER_F16, SUBGROUP_MATRIX

__all__ = ["CASES", "Case", "lowered", "runnable", "target_of"]


@dataclass(frozen=True)
class Case:
    """An operator and the shapes of its inputs.

    Attributes:
        kernel: what a dispatch's name begins with only while the variant is on, or a test of the dispatches.
        software: seen on adapters that run on a processor alone.
        tolerance: of the outputs with the variant against those without.
    """

    op: Op
    shapes: tuple[tuple[int, ...], ...]
    kernel: str | Callable[[list[Dispatch]], bool]
    software: bool = False
    tolerance: float = 1e-4
    packed: tuple[int, ...] = ()
    """The inputs that hold packed weights, any bytes."""
    given: tuple[Array | None, ...] | None = None
    """The inputs instead of random ones."""
    features: frozenset[str] = frozenset()
    """What a device must have."""

    def inputs(self) -> list[Array | None]:
        """Small random numbers, where none are given."""
        if self.given is not None:
            return list(self.given)
        rng = np.random.default_rng(11)
        made: list[Array | None] = [(rng.standard_normal(s) / 4).astype(np.float32) for s in self.shapes]
        for i in self.packed:
            made[i] = rng.integers(0, 256, self.shapes[i]).astype(np.uint8)
        return made

    def uses(self, dispatches: list[Dispatch]) -> bool:
        """True where the variant is among the dispatches."""
        if callable(self.kernel):
            return self.kernel(dispatches)
        return any(d.kernel.name.startswith(self.kernel) for d in dispatches)


def target_of(target: Target, case: Case, *disabled: str) -> Target:
    """`target` as a GPU with 32 KiB of workgroup memory, or a processor, without the variants named."""
    limits = replace(target.limits, storage_buffers=10, workgroup_bytes=32768)
    return replace(target, vendor="google" if case.software else "", limits=limits, disabled=frozenset(disabled))


def lowered(target: Target, case: Case, types: list[Any]) -> list[Dispatch]:
    """The operator's dispatches."""
    return list(case.op.lower(target, *types))


def runnable(target: Target, case: Case, types: list[Any]) -> list[Dispatch]:
    """The operator's dispatches, as a plan has them."""
    return list(legalize(target, lowered(target, case, types)))


def _has(text: str) -> Callable[[list[Dispatch]], bool]:
    return lambda dispatches: any(text in d.kernel.name for d in dispatches)


def _norm_after_product() -> Op:
    add: Any = newest("Add")
    chain = FusedElementwise(steps=(Step(add, (0, 1)),))
    base = WithEpilogue(base=newest("MatMul"), count=2, chain=chain)
    return WithNorm(base=base, count=3, norm=newest("RMSNormalization"), present=(True, True))


def _packed_product(accuracy_level: int = 0) -> Op:
    made: Any = op_class("MatMulNBits", "com.microsoft", 1)
    return made(K=300, N=52, block_size=32, accuracy_level=accuracy_level)  # type: ignore[no-any-return]


def _normed_product() -> Op:
    base: Any = _packed_product()
    norm: Any = newest("RMSNormalization")
    return NormedProduct(base=base, count=3, norm=norm)


def _attention_product() -> Op:
    attention: Any = type(newest("Attention"))
    base: Any = op_class("MatMulNBits", "com.microsoft", 1)
    product = base(K=32, N=52, block_size=16)
    return AttentionProduct(attention=attention(q_num_heads=4, kv_num_heads=2), base=product, count=3)


def _decoding_step() -> tuple[Array | None, ...]:
    """Packed queries, keys and values [1, 1, 4 · 8], caches of five rows, lengths, angles."""
    rng = np.random.default_rng(11)
    shapes = ((1, 1, 32), (1, 1, 5, 8), (1, 1, 5, 8), (9, 4), (9, 4))
    query, key, value, cosines, sines = ((rng.standard_normal(s) / 4).astype(np.float32) for s in shapes)
    return query, None, None, key, value, np.array([5], np.int32), np.array(6, np.int32), cosines, sines


def _halves(*shapes: tuple[int, ...]) -> tuple[Array, ...]:
    """Small random numbers in float16."""
    rng = np.random.default_rng(11)
    return tuple((rng.standard_normal(s) / 4).astype(np.float16) for s in shapes)


_GROUP_QUERY: Any = op_class("GroupQueryAttention", "com.microsoft", 1)
_MATMUL = newest("MatMul")

CASES = {
    "software": Case(_MATMUL, ((16, 32), (32, 24)), "matmul_direct", software=True),
    "half_loads": Case(
        newest("Softmax"),
        (),
        lambda dispatches: any(d.kernel.converts for d in dispatches),
        given=_halves((5, 33)),
        tolerance=0,
        features=frozenset({SHADER_F16}),
    ),
    "fallback_kernels": Case(
        _MATMUL, ((100, 64), (64, 48)), lambda dispatches: any("// <fallback>" in d.kernel.body for d in dispatches)
    ),
    "attention_flash": Case(Attention(), ((1, 2, 35, 128), (1, 2, 9, 128), (1, 2, 9, 128)), "attention_flash"),
    "attention_few": Case(Attention(), ((1, 4, 2, 8), (1, 2, 9, 8), (1, 2, 9, 8)), "attention_few_queries"),
    "attention_prepare": Case(
        _GROUP_QUERY(num_heads=2, kv_num_heads=1, do_rotary=1, present=(True,) * 3),
        (),
        "prepare_heads",
        given=_decoding_step(),
    ),
    "attention_new_row": Case(
        op_class("GroupQueryAttentionInPlace", "pyruntime", 1)(  # type: ignore[call-arg]
            num_heads=2, kv_num_heads=1, do_rotary=1, present=(True,) * 3
        ),
        (),
        _has("_new_row1"),
        given=_decoding_step(),
    ),
    "attention_tiled": Case(Attention(), ((4, 32, 32, 8), (4, 32, 16, 8), (4, 32, 16, 8)), "attention_tiled"),
    "attention_half": Case(
        Attention(),
        (),
        _has("_half1"),
        given=_halves((4, 32, 32, 128), (4, 32, 16, 128), (4, 32, 16, 128)),
        tolerance=1e-3,
        features=frozenset({SHADER_F16}),
    ),
    "attention_split": Case(Attention(), ((1, 64, 64, 8), (1, 64, 1024, 8), (1, 64, 1024, 8)), "attention_merge"),
    "matmul_tiled": Case(_MATMUL, ((40, 64), (64, 48)), "matmul_s"),
    "matmul_skinny": Case(_MATMUL, ((3, 64), (64, 40)), "matmul_skinny"),
    "matmul_half": Case(
        _MATMUL,
        (),
        _has("matmul_half_"),
        given=_halves((40, 256), (256, 48)),
        tolerance=6e-3,
        features=frozenset({SHADER_F16}),
    ),
    "matmul_matrix": Case(
        _MATMUL,
        (),
        _has("matmul_matrix_"),
        given=_halves((40, 256), (256, 48)),
        tolerance=6e-3,
        features=frozenset({SHADER_F16, SUBGROUP_MATRIX, f"{MATRIX_UNIT}16x16x16"}),
    ),
    "conv_half": Case(
        newest("Conv", pads=(1, 1, 1, 1)),
        (),
        _has("_half1"),
        given=_halves((1, 32, 9, 11), (40, 32, 3, 3)),
        tolerance=6e-3,
        features=frozenset({SHADER_F16}),
    ),
    "matmul_large": Case(_MATMUL, ((1024, 128), (128, 1024)), "matmul_l"),
    "matmul_slices": Case(_MATMUL, ((192, 256), (256, 1536)), "matmul_m2"),
    "matmul_split": Case(_MATMUL, ((64, 2048), (2048, 256)), "matmul_sum_splits"),
    "matmul_norm": Case(_norm_after_product(), ((64, 2048), (2048, 256), (256,), (256,)), "matmul_sum_norm"),
    "normed_skinny": Case(
        _normed_product(),
        ((5, 300), (52, 10, 16), (52, 10), (300,)),
        "matmul_4bits_skinny_normed",
        packed=(1,),
        tolerance=1e-3,
    ),
    "merging_skinny": Case(
        _attention_product(),
        ((1, 2, 32), (1, 600, 16), (1, 600, 16), (52, 2, 8), (52, 2)),
        "matmul_4bits_skinny_merged",
        packed=(3,),
        tolerance=1e-3,
    ),
    "packed_skinny": Case(
        _packed_product(), ((5, 300), (52, 10, 16), (52, 10)), "matmul_4bits_skinny", packed=(1,), tolerance=1e-3
    ),
    "packed_dot": Case(
        _packed_product(accuracy_level=4),
        ((20, 300), (52, 10, 16), (52, 10)),
        "matmul_dot",
        packed=(1,),
        tolerance=0.1,
        features=frozenset({PACKED_DOT}),
    ),
    "subgroup_sums": Case(
        _packed_product(),
        ((5, 300), (52, 10, 16), (52, 10)),
        lambda dispatches: any("subgroupShuffleXor" in d.kernel.body for d in dispatches),
        packed=(1,),
        tolerance=0,
    ),
    "integer_skinny": Case(
        newest("MatMulInteger"), ((5, 300), (300, 52)), "matmul_integer_skinny", packed=(0, 1), tolerance=0
    ),
    "integer_large": Case(
        newest("MatMulInteger"), ((700, 36), (36, 768)), "matmul_integer_m", packed=(0, 1), tolerance=0
    ),
    "conv_depthwise": Case(newest("Conv", group=8), ((1, 8, 12, 12), (8, 1, 3, 3)), "conv_depthwise"),
    "conv_direct": Case(newest("Conv", group=2), ((2, 4, 9, 9), (4, 2, 3, 3)), "conv_direct"),
    "conv_gemm": Case(newest("Conv"), ((1, 32, 20, 20), (64, 32, 3, 3)), "conv_implicit_gemm"),
    "conv_matmul": Case(newest("Conv"), ((1, 128, 60, 60), (128, 128, 1, 1), (128,)), "conv_matmul_m"),
    "conv_large": Case(newest("Conv"), ((1, 3, 130, 130), (64, 3, 3, 3), (64,)), _has("side16")),
    "conv_split": Case(newest("Conv"), ((1, 256, 7, 7), (64, 256, 3, 3)), "conv_split_sum"),
    "conv_int8": Case(
        newest("ConvInteger"),
        ((1, 16, 10, 10), (24, 16, 3, 3)),
        "conv_matmul_integer",
        packed=(0, 1),
        tolerance=0,
    ),
    "conv_int8_direct": Case(
        newest("ConvInteger"),
        ((2, 12, 7, 8), (10, 12, 1, 1)),
        "conv_matmul_integer_direct",
        software=True,
        packed=(0, 1),
        tolerance=0,
    ),
    "normalize_split": Case(newest("InstanceNormalization"), ((1, 2, 128, 80), (2,), (2,)), "normalize_moments"),
    "row_lanes": Case(newest("Softmax"), ((4, 256),), _has("shared1")),
    "reduce_lanes": Case(newest("ReduceSum"), ((3, 300),), _has("rows")),
    "reduce_split": Case(newest("ReduceSum"), ((64, 1024),), _has("_rest")),
    "transpose_tiled": Case(newest("Transpose"), ((40, 52),), "transpose_tiled"),
}
"""By the variant's name."""
