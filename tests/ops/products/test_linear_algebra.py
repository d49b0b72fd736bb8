"""MatMul, Gemm, MatMulInteger, QLinearMatMul, Einsum on the host; how products are planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target, inp, out
from pyruntime.kernels.ir.epilogue import Epilogue, attach, hook_of
from pyruntime.kernels.ir.template import template
from pyruntime.kernels.products.matmul import Product, matmul, product_of, select
from pyruntime.kernels.products.tiling import LARGE, MEDIUM, SMALL, Tiling
from pyruntime.kernels.wgsl.unroll import unroll
from pyruntime.ops.products.einsum import Einsum
from pyruntime.ops.products.gemm import Gemm
from pyruntime.ops.products.matmul import MatMul
from tests.harness import run_op
from tests.oracle import check_against_ort

RNG = np.random.default_rng(0)


SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 1, 3, 4), (5, 4, 6)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
    ((0, 4), (4, 5)),
    ((2, 1, 3, 1, 2, 3, 4), (1, 2, 1, 3, 1, 4, 5)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_matmul__shapes__as_onnxruntime(a: tuple[int, ...], b: tuple[int, ...], dtype: Any) -> None:
    x, y = (RNG.integers(-9, 9, s).astype(dtype) for s in (a, b))
    check_against_ort("MatMul", [x, y], opset=13)


def test_matmul__six_batch_dimensions_that_broadcast_in_turn__copied_and_multiplied_on_the_gpu() -> None:
    a, b = TensorType(DType.FLOAT, (2, 1, 3, 1, 2, 1, 3, 4)), TensorType(DType.FLOAT, (1, 2, 1, 3, 1, 2, 4, 5))
    *copies, product = MatMul().lower(Target(), a, b)
    assert [c.writes[0].type.size for c in copies] == [144 * 3 * 4, 144 * 4 * 5]
    assert product.writes[0].type.size == 144 * 3 * 5


def test_matmul__no_inner_dimension__zeros() -> None:
    assert run_op(MatMul(), [np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)])[0].tolist() == [[0] * 3] * 2


@pytest.mark.parametrize(("a", "b"), [((2, 3), (4, 5)), ((2, 3, 4), (3, 4, 5)), ((), (3,))])
def test_matmul__shapes_that_do_not_fit__invalid_graph(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraph, match="MatMul"):
        MatMul().infer(TensorType(DType.FLOAT, a), TensorType(DType.FLOAT, b))


def test_matmul__mixed_types__invalid_graph() -> None:
    with pytest.raises(InvalidGraph, match="one type"):
        MatMul().infer(TensorType(DType.FLOAT, (2, 2)), TensorType(DType.FLOAT16, (2, 2)))


@pytest.mark.parametrize("c", [(), (1,), (5,), (1, 5), (3, 1), (3, 5)])
@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm__bias_shapes__as_onnxruntime(c: tuple[int, ...], trans: tuple[int, int]) -> None:
    a = RNG.random((4, 3) if trans[0] else (3, 4)).astype(np.float32)
    b = RNG.random((5, 4) if trans[1] else (4, 5)).astype(np.float32)
    bias = np.asarray(RNG.random(c), np.float32)
    check_against_ort("Gemm", [a, b, bias], opset=13, transA=trans[0], transB=trans[1], alpha=0.5, beta=-2.0)
    check_against_ort("Gemm", [a, b, bias], opset=7, transA=trans[0], transB=trans[1])


def test_gemm__int32__exact() -> None:
    a, b = (np.full(s, 2**20, np.int32) for s in ((1, 2), (2, 1)))
    assert run_op(Gemm(), [a, b, np.array([7], np.int32)])[0] == (2 * 2**40 + 7) % 2**32


@pytest.mark.parametrize("c", [(2,), (5, 3), (1, 1, 5)])
def test_gemm__bias_that_does_not_broadcast__invalid_graph(c: tuple[int, ...]) -> None:
    x = TensorType(DType.FLOAT, (3, 5))
    with pytest.raises(InvalidGraph, match="broadcast"):
        Gemm(transB=1).infer(x, TensorType(DType.FLOAT, (5, 5)), TensorType(DType.FLOAT, c))


@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
def test_matmul_integer__zero_points__as_onnxruntime(types: tuple[Any, Any]) -> None:
    a, b = (RNG.integers(0, 100, s).astype(t) for s, t in zip(((2, 3, 4), (4, 5)), types, strict=True))
    check_against_ort("MatMulInteger", [a, b], opset=10)
    scalar = np.array(3, types[0])
    check_against_ort("MatMulInteger", [a, b, scalar, np.array(5, types[1])], opset=10)
    check_against_ort("MatMulInteger", [a, b, scalar, RNG.integers(0, 9, 5).astype(types[1])], opset=10)


@pytest.mark.parametrize("signed", [False, True])
def test_qlinear_matmul__per_column_scale__as_onnxruntime(signed: bool) -> None:
    kind = np.int8 if signed else np.uint8
    a, b = (RNG.integers(0, 120, s).astype(kind) for s in ((3, 8), (8, 5)))
    scale = RNG.random(5).astype(np.float32) * 0.1
    inputs = [a, np.float32(0.02), kind(4), b, scale, np.full(5, 3, kind), np.float32(0.3), kind(7)]
    check_against_ort("QLinearMatMul", [np.asarray(x) for x in inputs], opset=10)


EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("bij , bjk -> bik", (2, 3, 4), (2, 4, 5)),
    ("ij,ij->", (3, 4), (3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("...ij,...jk->...ik", (2, 5, 3, 4), (2, 5, 4, 2)),
    ("...ij->...ji", (2, 3, 4)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)),
    ("bfnh,btnh->bnft", (2, 3, 4, 5), (2, 6, 4, 5)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)),
    ("ab,cd->c", (2, 3), (4, 5)),
    ("ijk->j", (2, 3, 4)),
    ("bi,ij,bj->b", (3, 4), (4, 5), (3, 5)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda c: str(c[0]).replace(" ", ""))
def test_einsum__equation__as_onnxruntime(case: Any) -> None:
    equation, *shapes = case
    inputs = [RNG.random(s).astype(np.float32) for s in shapes]
    check_against_ort("Einsum", inputs, opset=12, equation=equation)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ij,jk->ik", [(2, 3)]), ("ij,jk", [(2, 3), (4, 5)]), ("ij->k", [(2, 3)]), ("i1->i", [(2, 3)]), ("i", [(2, 3)])],
)
def test_einsum__malformed__invalid_graph(equation: str, shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(InvalidGraph, match="Einsum"):
        Einsum(equation=equation).infer(*(TensorType(DType.FLOAT, s) for s in shapes))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((2, 3), (3, 4), Product(2, 4, 3)),
        ((5, 2, 3), (3, 4), Product(10, 4, 3)),
        ((5, 6, 2, 3), (5, 6, 3, 4), Product(2, 4, 3, (30,), (6,), (12,))),
        ((5, 6, 2, 3), (6, 3, 4), Product(2, 4, 3, (5, 6), (36, 6), (0, 12))),
        ((1, 2, 3), (1, 3, 4), Product(2, 4, 3)),
    ],
)
def test_product_of__shapes__merged(a: tuple[int, ...], b: tuple[int, ...], expected: Product) -> None:
    assert product_of(a, b) == expected


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        (Product(4096, 4096, 4096), LARGE),
        (Product(1024, 1024, 1024), LARGE),
        (Product(256, 1536, 384), replace(MEDIUM, slices=2)),
        (Product(128, 768, 768), replace(SMALL, slices=4)),
        (Product(49, 512, 2048), replace(SMALL, slices=4, splits=8)),
        (Product(10, 10, 10), SMALL),
        (Product(128, 128, 64, (96,)), replace(MEDIUM, splits=1)),
    ],
)
def test_select__shape__configuration(product: Product, expected: Tiling) -> None:
    assert select(product, Target(Limits(workgroup_bytes=32768))) == expected


def test_select__least_device__fits_workgroup_memory() -> None:
    assert select(Product(49, 512, 2048), Target()).slices == 2


def test_matmul__every_row_count__one_kernel_each() -> None:
    x = TensorType(DType.FLOAT, (8, 64))
    for m, name in ((1, "skinny"), (8, "skinny"), (9, "s1")):
        p = Product(m, 64, 64)
        (made,) = matmul(Target(), out(0, x), inp(0, x), inp(1, x), p)
        assert name in made.kernel.name


def test_attach__relu__replaces_finish_once() -> None:
    x = TensorType(DType.FLOAT, (64, 64))
    (plain,) = matmul(Target(), out(0, x), inp(0, x), inp(1, x), Product(64, 64, 64))
    relu = Epilogue("relu", "return max(value, vec4<T>()) * params.gain;", {}, (("gain", "f32"),), {"gain": 2.0})
    fused = attach(plain, relu)
    assert hook_of(plain) is not None and hook_of(fused) is None
    assert "max(value, vec4<T>())" in fused.kernel.body and len(fused.params) == len(plain.params) + 16
    with pytest.raises(ValueError, match="epilogue"):
        attach(fused, relu)


def test_unroll__by_a_define__where_it_is_true() -> None:
    written, looped = (template("matmul_tiled", UNROLL=u).wgsl().count("for (var quad") for u in (1, 0))
    assert (written, looped) == (0, 1)


def test_unroll__nested__constant_indices() -> None:
    text = (
        "const N: u32 = 2u;\n//#unroll\nfor (var i = 0u; i < N * 2u / 2u; i++) {\n"
        "  //#unroll\n  for (var j = 0u; j < 3u; j++) {\n    s[i] += j;\n  }\n}\n"
    )
    whole, partly = unroll(text), unroll(text.replace("  //#unroll\n", ""))
    assert whole.count("s[i] += j;") == 6 and "for" not in whole
    assert partly.count("for (var j") == 2 and partly.count("const i = ") == 2
    chosen = (
        "const N: u32 = 9u;\n//#unroll\nfor (var i = 0u; i < max(N / 5u, min(N, 3u, 7u) - 1u); i++) {\n  f(i);\n}\n"
    )
    assert unroll(chosen).count("f(i);") == 2
    with pytest.raises(ValueError, match="not closed"):
        unroll(chosen.replace("7u)", "7u"))
    with pytest.raises(ValueError, match="without a loop"):
        unroll("//#unroll\nlet x = 1;\n")
