"""Which configuration of a matrix product runs where."""

from __future__ import annotations

from dataclasses import replace

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target, inp, out
from pyruntime.kernels.matmul import Product, matmul, select
from pyruntime.kernels.tiling import MEDIUM

NVIDIA = Target(Limits(storage_buffers=16, workgroup_bytes=49152, invocations=1024, workgroup_x=1024), vendor="nvidia")


def test_select__less_workgroup_memory__no_slices_that_do_not_fit() -> None:
    product = Product(128, 3072, 768)
    assert select(product, NVIDIA) == replace(MEDIUM, slices=4)
    for nbytes in (16384, 32768):
        less = replace(NVIDIA, limits=replace(NVIDIA.limits, workgroup_bytes=nbytes))
        assert select(product, less) == replace(MEDIUM, splits=4)


def test_matmul__slices_switched_off__splits_again() -> None:
    types = [TensorType(DType.FLOAT, s) for s in ((128, 768), (768, 3072), (128, 3072))]
    a, b, y = inp(0, types[0]), inp(1, types[1]), out(0, types[2])
    product = Product(128, 3072, 768)
    assert [d.kernel.name for d in matmul(NVIDIA, y, a, b, product)] == ["matmul_m4_nn"]
    off = replace(NVIDIA, disabled=frozenset({"matmul_slices"}))
    assert [d.kernel.name for d in matmul(off, y, a, b, product)] == ["matmul_m1_split4_nn", "matmul_sum_splits_vec_y1"]
    none = replace(off, disabled=frozenset({"matmul_slices", "matmul_split"}))
    assert len(matmul(none, y, a, b, product)) == 1
