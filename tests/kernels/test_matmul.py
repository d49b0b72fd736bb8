"""Which configuration of a matrix product runs where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target, inp, out
from pyruntime.kernels.matmul import MEDIUM, SMALL, Product, Tiling, matmul, select

NVIDIA = Limits(storage_buffers=16, workgroup_bytes=49152, invocations=1024, workgroup_x=1024)


@pytest.mark.parametrize(
    ("shape", "tiling"),
    [
        ((128, 3072, 768), replace(MEDIUM, slices=4)),  # bert: 96 tiles
        ((197, 3072, 768), replace(MEDIUM, slices=4)),  # vit: 192
        ((128, 2304, 768), replace(MEDIUM, splits=8)),  # 72 would leave half of the GPU idle
        ((1500, 384, 1536), replace(MEDIUM, splits=4)),  # 144 are little more than one wave
        ((128, 768, 768), replace(MEDIUM, splits=8)),
        ((16, 768, 768), replace(SMALL, slices=4, splits=2)),
    ],
)
def test_select__shape__configuration(shape: tuple[int, int, int], tiling: Tiling) -> None:
    assert select(Product(*shape), NVIDIA) == tiling


def test_select__less_workgroup_memory__fewer_slices() -> None:
    product = Product(128, 3072, 768)
    assert select(product, replace(NVIDIA, workgroup_bytes=32768)) == replace(MEDIUM, slices=2)
    assert select(product, Limits()) == replace(MEDIUM, splits=4)
    assert select(product, NVIDIA, frozenset({"matmul_slices"})) == replace(MEDIUM, splits=4)


def test_matmul__slices_switched_off__splits_again() -> None:
    types = [TensorType(DType.FLOAT, s) for s in ((128, 768), (768, 3072), (128, 3072))]
    a, b, y = inp(0, types[0]), inp(1, types[1]), out(0, types[2])
    product = Product(128, 3072, 768)
    names = [d.kernel.name for d in matmul(Target(NVIDIA, vendor="nvidia"), y, a, b, product)]
    assert names == ["matmul_m4_nn"]
    off = Target(NVIDIA, vendor="nvidia", disabled=frozenset({"matmul_slices"}))
    assert [d.kernel.name for d in matmul(off, y, a, b, product)] == ["matmul_m1_split4_nn", "matmul_sum_splits_vec_y1"]
