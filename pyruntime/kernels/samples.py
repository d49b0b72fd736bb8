"""Kernels of a family without a model around them, for measuring: operands are whole tensors, numbers do not matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyruntime.ir import DType, TensorType
from pyruntime.kernels.attention.attention import attend
from pyruntime.kernels.attention.candidates import ATTENTIONS
from pyruntime.kernels.attention.description import AttentionProblem, AttentionTensors
from pyruntime.kernels.convolution.candidates import CONVOLUTIONS, ConvProblem
from pyruntime.kernels.convolution.convolution import convolve, convolve_transposed
from pyruntime.kernels.convolution.operands import Convolution
from pyruntime.kernels.ir.dispatch import Dispatch, inp, out
from pyruntime.kernels.ir.node import for_node
from pyruntime.kernels.legalize import legalize
from pyruntime.kernels.products.candidates import PRODUCTS, TILES, ProductProblem
from pyruntime.kernels.products.description import Product
from pyruntime.kernels.products.matmul import Matmul, product_of
from pyruntime.kernels.products.packed_dot import CHUNK, DOTS, dot_product
from pyruntime.kernels.products.packed_weights import integers
from pyruntime.kernels.products.tiling import AnyTiling
from pyruntime.kernels.rows.groups import Groups, normalize_groups
from pyruntime.kernels.rows.groups_candidates import GroupsProblem
from pyruntime.kernels.rows.reduce import Fold, reduction
from pyruntime.kernels.rows.reduce_candidates import REDUCTIONS, ReductionProblem
from pyruntime.kernels.rows.rows import Norm, Rows, Scan, normalize_rows, rows_of, scan_rows, softmax_rows
from pyruntime.kernels.rows.rows_candidates import SCANS, SOFTMAX, RowsProblem
from pyruntime.kernels.rows.split_norm import sum_and_normalize
from pyruntime.kernels.selection.candidates import Family, Noted
from pyruntime.target import Target, Winners

__all__ = ["sample"]


def sample(noted: Noted, candidate: str, target: Target) -> tuple[Dispatch, ...]:
    """The dispatches of a candidate for a problem.

    Raises:
        LookupError: a family that has no samples, or a candidate that it does not have.
    """
    family, problem = noted.family, noted.problem
    chooser = PRODUCTS if family is TILES else family
    forced = replace(target, winners=Winners({(chooser.name, problem.key): candidate}))
    if family in (PRODUCTS, TILES) and isinstance(problem, ProductProblem):
        return legalize(target, _product(forced, problem, family.named(candidate).way.tiling))
    if family is DOTS and isinstance(problem, ProductProblem):
        return legalize(target, _packed(forced, problem))
    if family is CONVOLUTIONS and isinstance(problem, ConvProblem):
        return legalize(target, _convolution(forced, problem))
    if family is ATTENTIONS and isinstance(problem, AttentionProblem):
        return legalize(target, _attention(forced, problem))
    if family is REDUCTIONS and isinstance(problem, ReductionProblem):
        return legalize(target, _reduction(forced, problem))
    if isinstance(problem, RowsProblem):
        return legalize(target, (_rows(forced, family, problem),))
    if isinstance(problem, GroupsProblem):
        x = TensorType(DType.FLOAT, (problem.rows, problem.length))
        return legalize(target, normalize_groups(forced, out(0, x), inp(0, x), Groups(problem.rows, 1e-5)))
    raise LookupError(f"kernels of {family.name} have no sample")


def _product(target: Target, p: ProductProblem, tiling: AnyTiling | None) -> tuple[Dispatch, ...]:
    """A product of whole tensors."""
    stack = (p.batches,) if p.batches > 1 else ()
    b_shape = (p.n, p.k) if p.trans_b else (p.k, p.n)
    kind = DType.FLOAT16 if p.half else DType.FLOAT
    y, a, b = (TensorType(kind, (*stack, *shape)) for shape in ((p.m, p.n), (p.m, p.k), b_shape))
    forced = for_node(target, norm_follows=p.norm_follows)
    product = product_of(a.shape, b.shape, trans_b=p.trans_b)
    made = Matmul(product, out(0, y), inp(0, a), inp(1, b), tiling=tiling).lower(forced)
    return _with_norm(forced, made, y) if p.norm_follows else made


def _packed(target: Target, p: ProductProblem) -> tuple[Dispatch, ...]:
    """A product with packed weights, a scale for each chunk."""
    blocks = -(-p.k // CHUNK)
    weights = TensorType(DType.UINT8, (p.n, blocks, CHUNK * p.bits // 8))
    scales = TensorType(DType.FLOAT, (p.n, blocks))
    b = integers(inp(1, weights), inp(2, scales), None, None, p.bits, CHUNK, p.k)
    y, a = (TensorType(DType.FLOAT, (p.m, width)) for width in (p.n, p.k))
    return dot_product(target, out(0, y), inp(0, a), b, Product(p.m, p.n, p.k, trans_b=True))


def _attention(target: Target, p: AttentionProblem) -> tuple[Dispatch, ...]:
    """Attention of whole tensors, without a mask."""
    shared = p.heads // p.group
    shapes = ((p.heads, p.queries, p.size), (shared, p.keys, p.size), (shared, p.keys, p.v_size))
    queries, keys = (DType.FLOAT16 if half else DType.FLOAT for half in (p.half_q, p.half))
    kinds = (queries, keys, keys)
    q, k, v = (inp(i, TensorType(kind, (1, *s))) for i, (kind, s) in enumerate(zip(kinds, shapes, strict=True)))
    y = out(0, TensorType(queries, (1, p.heads, p.queries, p.v_size)))
    return attend(target, p.form, AttentionTensors(q, k, v, y))


def _reduction(target: Target, p: ReductionProblem) -> tuple[Dispatch, ...]:
    """A sum of floats."""
    fold = Fold("sample", "f32", "0.0", "x", "a + b", state=None if p.once else DType.FLOAT)
    x = TensorType(DType.FLOAT, (p.outputs, p.count) if p.adjacent else (p.count, p.outputs))
    y = TensorType(DType.FLOAT, (p.outputs,))
    return reduction(target, fold, out(0, y), inp(0, x), (1,) if p.adjacent else (0,))


def _rows(target: Target, family: Family[Any, Any], p: RowsProblem) -> Dispatch:
    """Floats along rows."""
    kind = TensorType(DType.FLOAT, (p.outer, p.length, p.inner))
    y, x, rows = out(0, kind), inp(0, kind), Rows(p.outer, p.length, p.inner)
    if family is SOFTMAX:
        return softmax_rows(target, y, x, rows)
    if family is SCANS:
        return scan_rows(target, y, x, rows, Scan())
    return normalize_rows(target, y, x, rows, Norm(1e-5, scale=inp(1, TensorType(DType.FLOAT, (p.length,)))))


def _convolution(target: Target, p: ConvProblem) -> tuple[Dispatch, ...]:
    """A convolution of whole tensors, without bias.

    Raises:
        LookupError: of integers that are no bytes.
    """
    if p.kind == "integer":
        raise LookupError("convolutions of integers have no sample")
    floats = DType.FLOAT16 if p.half else DType.FLOAT
    x_type, y_type = (DType.INT8, DType.INT32) if p.kind == "bytes" else (floats, floats)
    w, rows, channels = p.window, p.group * p.rows, p.group * p.channels
    weights = (channels, p.rows) if p.transposed else (rows, p.channels)
    conv = Convolution(
        replace(w, input=w.output, output=w.input) if p.transposed else w,
        p.group,
        p.channels,
        p.rows,
        inp(0, TensorType(x_type, (p.images, channels, *w.input))),
        inp(1, TensorType(x_type, (*weights, *w.kernel))),
        out(0, TensorType(y_type, (p.images, rows, *w.output))),
    )
    return (convolve_transposed if p.transposed else convolve)(target, conv)


def _with_norm(target: Target, made: tuple[Dispatch, ...], kind: TensorType) -> tuple[Dispatch, ...]:
    """The dispatches of a product and the normalisation after it, as `ops.fused.with_norm` joins them."""
    y, p = out(1, kind), out(0, kind)
    norm = Norm(1e-5, False, inp(2, TensorType(kind.dtype, kind.shape[-1:])), None)
    joined = sum_and_normalize(target, made, y, None, norm)
    rows = rows_of(kind.shape, kind.rank - 1, flatten=True)
    return joined if joined is not None else (*made, normalize_rows(target, y, p, rows, norm))
