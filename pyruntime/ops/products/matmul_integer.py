"""MatMulInteger and QLinearMatMul: products of 8-bit matrices. Source: ONNX operators of these names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyruntime.ir import Array, Constant, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, constant, elementwise, out, scratch
from pyruntime.kernels.products.integer_matmul import BYTES, IntegerMatmul, zero_point
from pyruntime.kernels.products.matmul import Matmul, product_of
from pyruntime.ops.base import LATEST, Op, broadcasts_to, op
from pyruntime.ops.operands import bound, named, reshaped
from pyruntime.ops.products.matmul import as_matrices, matmul_shape, stacked
from pyruntime.ops.quantization.requantize import finished


def per_row(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return the shape in which a left operand's zero point or scale broadcasts: a vector holds one value per row."""
    return (*shape, 1) if len(shape) == 1 and shape != (1,) and rank > 1 else shape


def _zero_shape(node: Op, x: TensorType, zero: TensorType | None, left: bool) -> tuple[int, ...]:
    """Return the shape in which `zero` broadcasts to x. Raises InvalidGraph if it does not."""
    if zero is None:
        return ()
    shape = per_row(zero.shape, x.rank) if left else zero.shape
    if not broadcasts_to(shape, x.shape):
        node.fail("a scalar zero point, or one per row (left) or column (right)", f"{zero} for {x}")
    return shape


def exact_product(a: Array, b: Array) -> Array:
    """Return a @ b of small integers as int32, exact in float32 if its 24 bits suffice, else in float64."""
    largest = int(np.abs(a).max(initial=0)) * int(np.abs(b).sum(axis=max(b.ndim - 2, 0)).max(initial=0))
    wide = np.float32 if largest < 1 << 24 else np.float64
    exact: Array = np.matmul(a.astype(wide), b.astype(wide))
    return exact.astype(np.int64).astype(np.int32)


def shifted(x: Array, zero: Array | None, left: bool) -> Array:
    """Return x minus its zero point, as int32, or as float32 for float inputs."""
    wide = np.dtype(np.float32) if x.dtype.kind == "f" else np.dtype(np.int32)
    if zero is None:
        return x.astype(wide)
    shape = per_row(zero.shape, x.ndim) if left else zero.shape
    result: Array = x.astype(wide) - zero.reshape(shape).astype(wide)
    return result


class _Shifter:
    """Builder of dispatches that subtract zero points where the product kernel does not support them."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.before: list[Dispatch] = []

    def take(
        self, x: Operand, zero: Operand | None, shape: tuple[int, ...], simple: bool
    ) -> tuple[Operand, Operand | None]:
        """Return the operand and zero point for the product kernel. Unless `simple`, subtract the zero point before."""
        if zero is None or simple:
            return x, zero
        wide = DType.FLOAT if x.type.dtype.is_float else DType.INT32
        made = scratch(wide, *x.type.shape)
        kind = wide.compute
        expr = f"{kind}(x) - {kind}(zero)"
        operands = {"x": x, "zero": reshaped(zero, *shape)}
        self.before.append(elementwise(self.target, "subtract_zero", operands, made, expr))
        return made, None


def integer_product(
    node: Op, target: Target, y: Operand, a: Operand, b: Operand, a_zero: Operand | None, b_zero: Operand | None
) -> tuple[Dispatch, ...]:
    """Return dispatches of y = (a - a_zero) @ (b - b_zero), y in int32 (float32 for float8 operands)."""
    product = product_of(*as_matrices(a.type.shape, b.type.shape))
    shape_a = _zero_shape(node, a.type, a_zero.type if a_zero else None, True)
    shape_b = _zero_shape(node, b.type, b_zero.type if b_zero else None, False)
    size_a, size_b = (z.type.size if z else 1 for z in (a_zero, b_zero))
    shifter = _Shifter(target)
    rows_only = size_a == product.m and shape_a[-2:] == (product.m, 1)
    cols_only = size_b == product.n and (b.type.rank == 1 or shape_b[-1:] == (product.n,))
    a, a_zero = shifter.take(a, a_zero, shape_a, size_a == 1 or rows_only)
    b, b_zero = shifter.take(b, b_zero, shape_b, size_b == 1 or cols_only)
    product, a, b, copies = stacked(target, a, b)
    before = (*shifter.before, *copies)
    if a.type.dtype in BYTES and b.type.dtype in BYTES:
        zeros = zero_point(a_zero, int(size_a > 1)), zero_point(b_zero, int(size_b > 1))
        return (*before, *IntegerMatmul(product, y, a, b, *zeros).lower(target))
    left, right = ((z, int(n > 1)) if z else None for z, n in ((a_zero, size_a), (b_zero, size_b)))
    return (*before, *Matmul(product, y, a, b, a_zero=left, b_zero=right).lower(target))


@op("MatMulInteger", opsets=range(10, LATEST + 1))
class MatMulInteger(Op):
    """y = (a - a_zero_point) @ (b - b_zero_point), exact in int32."""

    operands = named("a b", optional="a_zero b_zero")

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        a, b, a_zero, b_zero = self.operands(*inputs)
        if a.dtype not in BYTES or b.dtype not in BYTES:
            self.fail("matrices of int8 or uint8", f"{a} and {b}")
        _zero_shape(self, a, a_zero, True)
        _zero_shape(self, b, b_zero, False)
        return (TensorType(DType.INT32, matmul_shape(self, a, b)),)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        a, b, a_zero, b_zero = self.operands(*inputs)
        return (exact_product(shifted(a, a_zero, True), shifted(b, b_zero, False)),)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        (y,) = self.infer(*inputs)
        return integer_product(self, target, out(0, y), *bound(self.operands, inputs))


def _scale_shapes(rank: int, a: tuple[int, ...], b: tuple[int, ...], y: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the shapes in which scales broadcast: vectors of a and y have a value per row, those of b per column."""
    return per_row(a, rank), b, per_row(y, rank)


@op("QLinearMatMul", opsets=range(10, LATEST + 1))
class QLinearMatMul(Op):
    """y = saturate(round((a - a_zero) · a_scale @ (b - b_zero) · b_scale / y_scale) + y_zero).

    Scales and zero points: scalar, per row of a, or per column of b. Sums are exact in int32 (float8: in float32);
    rescaling is in float32, rounded half to even.
    """

    operands = named("a a_scale a_zero b b_scale b_zero y_scale y_zero")

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        if len(inputs) != 8 or any(x is None for x in inputs):
            self.fail("all 8 inputs", sum(x is not None for x in inputs))
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
        if not all(t.size for t in (a_scale, b_scale, y_scale, y_zero)):
            self.fail("scales and a zero point with elements", ", ".join(map(str, inputs)))
        _zero_shape(self, a, a_zero, True)
        _zero_shape(self, b, b_zero, False)
        y = TensorType(y_zero.dtype, matmul_shape(self, a, b))
        self._check_scales(y, inputs)
        return (y,)

    def _check_scales(self, y: TensorType, inputs: Any) -> None:
        """Raise InvalidGraph where the scales, or the zero point of y, do not broadcast to y."""
        _, a_scale, _, _, b_scale, _, y_scale, y_zero = inputs
        rank = max(y.rank, 2)
        shapes = _scale_shapes(rank, a_scale.shape, b_scale.shape, y_scale.shape)
        for what, kind, shape in (
            ("a_scale", a_scale, shapes[0]),
            ("b_scale", b_scale, shapes[1]),
            ("y_scale", y_scale, shapes[2]),
            ("y_zero_point", y_zero, per_row(y_zero.shape, rank)),
        ):
            if kind.size != 1 and not broadcasts_to(shape, y.shape):
                self.fail(f"{what} for y of shape {list(y.shape)}", kind)

    def evaluate(self, *inputs: Array) -> tuple[Array, ...]:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
        left, right = shifted(a, a_zero, True), shifted(b, b_zero, False)
        exact: Callable[[Array, Array], Array] = np.matmul if left.dtype.kind == "f" else exact_product
        total = exact(left, right).astype(np.float32)
        rank = max(total.ndim, 2)
        shapes = _scale_shapes(rank, a_scale.shape, b_scale.shape, y_scale.shape)
        sa, sb, sy = (s.astype(np.float32).reshape(v) for s, v in zip((a_scale, b_scale, y_scale), shapes, strict=True))
        zero = y_zero.reshape(per_row(y_zero.shape, rank))
        value = total * (sa * sb / sy)
        if y_zero.dtype.kind == "f":
            return (value + zero,)
        limits = np.iinfo(y_zero.dtype)
        rounded = np.rint(value).astype(np.float64) + zero.astype(np.float64)
        return (np.clip(rounded, limits.min, limits.max).astype(y_zero.dtype).reshape(total.shape),)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        (y,) = self.infer(*inputs)
        given = bound(self.operands, inputs)
        total = scratch(DType.FLOAT if given.a.type.dtype.is_float else DType.INT32, *y.shape)
        made = integer_product(self, target, total, given.a, given.b, given.a_zero, given.b_zero)
        rank = max(y.rank, 2)
        operands = {"zero": reshaped(given.y_zero, *per_row(given.y_zero.type.shape, rank))}
        scales = {"sa": given.a_scale, "sb": given.b_scale, "sy": given.y_scale}
        factor = "(sa * sb / sy)"
        # Constant scales are combined on the host: a WGSL division may be off by 2.5 ULP.
        if all(s.type.is_known and (name == "sb" or s.type.size == 1) for name, s in scales.items()):
            sa, sb, sy = (s.type.value().astype(np.float32).reshape(-1) for s in scales.values())
            operands["factor"] = constant(Constant.from_array(np.asarray(sa * sb / sy, np.float32)))
            factor = "factor"
        else:
            shapes = _scale_shapes(rank, *(s.type.shape for s in scales.values()))
            operands |= {name: reshaped(s, *shape) for (name, s), shape in zip(scales.items(), shapes, strict=True)}
        if y.dtype.is_float:
            expr = f"x * {factor} + zero"
        else:
            low, high = (-128, 127) if y.dtype.is_signed else (0, 255)
            kind = y.dtype.compute
            value = f"clamp(round(f32(x) * {factor}) + f32(zero), {low}.0, {high}.0)"
            expr = f"{kind}({value})"
        return finished(target, made, total, out(0, y), f"requantize_{y.dtype.onnx_name}", operands, expr)
