"""Units of movement, and what copies make of them."""

from __future__ import annotations

import pytest

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Target, Unit, fill, for_each, inp, out, strided_copy

TARGET = Target()


@pytest.mark.parametrize(
    ("dtype", "runs", "width", "bits"),
    [
        (DType.FLOAT, (8, 4), 4, 128),
        (DType.FLOAT, (6,), 2, 64),
        (DType.FLOAT, (8, 3), 1, 32),
        (DType.FLOAT16, (8, 0), 8, 128),
        (DType.FLOAT16, (10, 4), 2, 32),
        (DType.INT8, (2, 6), 2, 16),
        (DType.INT4, (32,), 32, 128),
        (DType.INT4, (1,), 1, 4),
        (DType.DOUBLE, (2,), 2, 128),
        (DType.UINT2, (-64,), 64, 128),
        (DType.BOOL, (), 16, 128),
    ],
)
def test_widest_unit__runs__divides_all_of_them(dtype: DType, runs: tuple[int, ...], width: int, bits: int) -> None:
    assert Unit.widest(dtype, *runs) == Unit(width, bits)


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        (Unit(1, 16), "e"),
        (Unit(2, 32), "(e * 65537u)"),
        (Unit(4, 32), "(e * 16843009u)"),
        (Unit(2, 8), "(e * 17u)"),
        (Unit(2, 64), "vec2<u32>(e)"),
        (Unit(16, 128), "vec4<u32>((e * 16843009u))"),
        (Unit(1, 64), "e"),
        (Unit(2, 128), "vec4<u32>(e, e)"),
    ],
)
def test_splat__element__fills_the_unit(unit: Unit, text: str) -> None:
    assert unit.splat("e") == text


def copied(dtype: DType, shape: tuple[int, ...], base: int, strides: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Kernel name and grid of a copy out of 4096 elements."""
    x = TensorType(dtype, (4096,))
    dispatch = strided_copy(TARGET, "copy", out(0, TensorType(dtype, shape)), inp(0, x), base, strides)
    return dispatch.kernel.name, dispatch.grid


def test_strided_copy__contiguous__vectors_even_of_an_odd_count() -> None:
    assert copied(DType.INT8, (3, 333), 0, (333, 1)) == ("copy_r1_128", (1, 1, 1))
    assert copied(DType.FLOAT, (4096,), 0, (1,)) == ("copy_r1_128", (16, 1, 1))


def test_strided_copy__rows__units_by_run_base_and_strides() -> None:
    assert copied(DType.FLOAT16, (4, 16), 8, (64, 1))[0] == "copy_r2_128"
    assert copied(DType.FLOAT16, (4, 16), 2, (64, 1))[0] == "copy_rows_r2_32"
    assert copied(DType.FLOAT16, (4, 16), 1, (64, 1))[0] == "copy_rows_r2_16"
    assert copied(DType.FLOAT16, (4, 7), 0, (64, 1))[0] == "copy_r2_16"
    assert copied(DType.FLOAT, (4, 4), 0, (64, 1))[0] == "copy_r1_128"


def test_strided_copy__equal_layouts__share_a_pipeline() -> None:
    def body(rows: int, columns: int) -> str:
        x, y = TensorType(DType.FLOAT, (rows, columns)), TensorType(DType.FLOAT, (columns, rows))
        return strided_copy(TARGET, "copy", out(0, y), inp(0, x), 0, (1, columns)).kernel.wgsl()

    assert body(4, 5) == body(8, 9)


def test_fill__any_size__whole_vectors() -> None:
    dispatch = fill(TARGET, "clear", out(0, TensorType(DType.INT8, (5,))), bytes(range(16)))
    assert dispatch.params[16:32] == bytes(range(16))


def test_for_each__address_of_an_element_taken__array_is_atomic() -> None:
    words = out(0, TensorType(DType.UINT32, (4,)))
    code = for_each(TARGET, "count", 9, {}, {"y": words}, "atomicAdd(&y[i & 3u], 1u);").kernel.wgsl()
    assert "var<storage, read_write> y: array<atomic<u32>>;" in code
