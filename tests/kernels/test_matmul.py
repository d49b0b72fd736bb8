"""Which configuration of a matrix product runs where."""

from __future__ import annotations

from dataclasses import replace

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target, inp, out
from pyruntime.kernels.products.matmul import Product, matmul, select
from pyruntime.kernels.products.tiling import MEDIUM

NVIDIA = Target(Limits(storage_buffers=16, workgroup_bytes=49152, invocations=1024, workgroup_x=1024), vendor="nvidia")


def test_select__less_workgroup_memory__no_slices_that_do_not_fit() -> None:
    product = Product(192, 1536, 256)
    assert select(product, NVIDIA) == replace(MEDIUM, slices=2)
    less = replace(NVIDIA, limits=replace(NVIDIA.limits, workgroup_bytes=16384))
    assert select(product, less).workgroup_bytes <= 16384


def test_matmul__slices_switched_off__something_else() -> None:
    types = [TensorType(DType.FLOAT, s) for s in ((192, 256), (256, 1536), (192, 1536))]
    a, b, y = inp(0, types[0]), inp(1, types[1]), out(0, types[2])
    product = Product(192, 1536, 256)
    assert [d.kernel.name for d in matmul(NVIDIA, y, a, b, product)] == ["matmul_m2_nn"]
    off = replace(NVIDIA, disabled=frozenset({"matmul_slices"}))
    assert not matmul(off, y, a, b, product)[0].kernel.name.startswith("matmul_m2")


def test_matmul__split_switched_off__one_dispatch() -> None:
    types = [TensorType(DType.FLOAT, s) for s in ((128, 768), (768, 3072), (128, 3072))]
    a, b, y = inp(0, types[0]), inp(1, types[1]), out(0, types[2])
    product = Product(128, 3072, 768)
    assert [d.kernel.name for d in matmul(NVIDIA, y, a, b, product)] == [
        "matmul_m1_split_nn",
        "matmul_sum_splits_vec_y1",
    ]
    off = replace(NVIDIA, disabled=frozenset({"matmul_split"}))
    assert len(matmul(off, y, a, b, product)) == 1
