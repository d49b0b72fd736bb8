"""Keep weights of 8 bits and fewer packed: their dequantization becomes part of the kernel that reads them.

    MatMul(a, DequantizeLinear(w)), Gemm       MatMulNBits, with the rows of w packed along k
    Conv(x, DequantizeLinear(w))               Int8Conv, scaled by output channel
    Gather(DequantizeLinear(w), i)             DequantizeLinear(Gather(w, i)), or GatherBlockQuantized for 4-bit w

w is a constant of 2, 4 or 8 bits. Products take one scale per tensor, per column, or per block along k of a multiple of
16; convolutions one per tensor or per output channel. A Transpose may lie between a matrix and its product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.convolution.sliding import conv_attributes
from pyruntime.ops.fused.int8_conv import Int8Conv
from pyruntime.ops.fused.repack import PackRows, SpreadRows
from pyruntime.ops.quantization.parameters import RANGES
from pyruntime.ops.registry import newest, op_class
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.quantization.dequantized import derived, shaped, value

__all__ = ["run"]

_BLOCKS = (128, 64, 32, 16)


@dataclass(frozen=True, slots=True)
class _Weight:
    """DequantizeLinear of a constant.

    Attributes:
        x, scale, zero: names of its inputs; zero may be "".
        axis: the axis along which scales differ; None if there is one scale.
        block: elements along `axis` with one scale; 0 for a scale per index.
        turned: a Transpose of the matrix follows.
    """

    x: str
    scale: str
    zero: str
    axis: int | None
    block: int
    turned: bool = False


@node_pass(requires=(Fact.INTEGER_PRODUCTS,), breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> list[Node] | None:
    """Replace a MatMul, Gemm, Conv or Gather by one that reads the packed weight."""
    graph = match.graph
    op: Any = node.op
    if op.domain or node.outputs[0] in graph.static or op.op_type not in ("MatMul", "Gemm", "Conv", "Gather"):
        return None
    if op.op_type == "Gather":
        weight = _weight(graph, node.inputs[0])
        return _gathered(graph, node, weight) if weight is not None and not weight.turned else None
    weight = _weight(graph, node.inputs[1])
    if weight is None:
        return None
    if op.op_type == "Conv":
        return None if weight.turned else _convolved(graph, node, weight)
    return _product(graph, node, weight)


def _weight(graph: TypedGraph, name: str) -> _Weight | None:
    """Match a DequantizeLinear of a constant, and a Transpose after it; None otherwise."""
    node = graph.producer(name)
    turned = False
    if node is not None and not node.op.domain and node.op.op_type == "Transpose":
        turned = graph.tensor(name).rank == 2
        perm = getattr(node.op, "perm", None)
        if not turned or (perm is not None and tuple(perm) != (1, 0)):
            return None
        node = graph.producer(node.inputs[0])
    if node is None or node.op.domain or node.op.op_type != "DequantizeLinear":
        return None
    op: Any = node.op
    x, scale = graph.tensor(node.inputs[0]), graph.tensor(node.inputs[1])
    zero = node.inputs[2] if len(node.inputs) > 2 else ""
    if not {n for n in node.inputs if n} <= graph.static or x.dtype not in RANGES or x.dtype.bits > 8:
        return None
    if graph.tensor(node.outputs[0]).dtype is not scale.dtype or not x.size:
        return None
    whole = scale.size == 1 and scale.rank <= 1
    axis = None if whole else 0 if x.rank == 1 else op.axis_of(op.axis, x.rank)
    return _Weight(node.inputs[0], node.inputs[1], zero, axis, 0 if whole else op.block_size, turned)


def _block(k: int, given: int) -> int:
    """Return the block size for scales per `given` elements of k (0: one scale for all k); 0 if there is none."""
    if given:
        return next((b for b in (1 << 14, 8192, 4096, 2048, 1024, 512, 256, *_BLOCKS) if given % b == 0), 0)
    return next((b for b in _BLOCKS if -(-k // b) * b * 8 <= 9 * k), 16)


@dataclass(frozen=True, slots=True)
class _Form:
    """Strides by which a matrix and its scales are read as those of MatMulNBits.

    Attributes:
        n, k: columns of the product, and its inner dimension.
        weights: strides of the matrix along n and k, in elements.
        block: elements along k with one scale in the product.
        scales: strides of the scales along n and along k, in elements.
        share: consecutive blocks that have the same scale.
    """

    n: int
    k: int
    weights: tuple[int, int]
    block: int
    scales: tuple[int, int]
    share: int

    @property
    def blocks(self) -> int:
        return -(-self.k // self.block)

    @staticmethod
    def of(kind: TensorType, w: _Weight, rows_are_n: bool) -> _Form | None:
        """Return the form of a matrix [n, k] or [k, n]; None if MatMulNBits cannot express its scales."""
        k_axis = 1 if rows_are_n else 0
        k, n = kind.shape[k_axis], kind.shape[1 - k_axis]
        along_k = w.axis == k_axis
        if along_k != bool(w.block):
            return None
        several = along_k and w.block < k
        block = _block(k, w.block if several else 0)
        if not block:
            return None
        weights = (k, 1) if rows_are_n else (1, n)
        per_row = -(-k // w.block) if along_k else 1
        if w.axis is None:
            scales = 0, 0
        elif not along_k:
            scales = 1, 0
        else:
            scales = (per_row, 1) if rows_are_n else (1, n)
        return _Form(n, k, weights, block, scales, w.block // block if several else -(-k // block))


def _product(graph: TypedGraph, node: Node, w: _Weight) -> list[Node] | None:
    """Replace MatMul or Gemm by MatMulNBits and an addition."""
    op: Any = node.op
    kind, a = graph.tensor(w.x), graph.tensor(node.inputs[0])
    if kind.rank != 2 or a.dtype is not graph.tensor(w.scale).dtype or not a.rank:
        return None
    gemm = op.op_type == "Gemm"
    if gemm and (op.alpha != 1.0 or op.beta != 1.0 or op.transA):
        return None
    form = _Form.of(kind, w, w.turned != bool(gemm and op.transB))
    if form is None:
        return None
    nodes: list[Node] = []
    inputs = [node.inputs[0], *_packed(graph, w, kind, form, nodes)]
    make: Any = op_class("MatMulNBits", "com.microsoft", 1)
    product = make(K=form.k, N=form.n, block_size=form.block, bits=kind.dtype.bits)
    bias = node.inputs[2] if gemm and len(node.inputs) > 2 else ""
    y = graph.tensor(node.outputs[0])
    result = graph.add_value(f"{node.outputs[0]}.product", y) if bias else node.outputs[0]
    nodes.append(Node(product, tuple(inputs), (result,), node.name))
    if bias:
        nodes.append(Node(newest("Add"), (result, bias), node.outputs, node.name))
    return nodes


def _packed(graph: TypedGraph, w: _Weight, kind: TensorType, form: _Form, nodes: list[Node]) -> list[str]:
    """Return weights, scales and any zero points in MatMulNBits' layout; appends the packing nodes to `nodes`."""
    bits, (step_n, step_k) = kind.dtype.bits, form.weights
    pitch = form.blocks * form.block * bits // 8
    weights = PackRows(rows=form.n, columns=form.k, step_n=step_n, step_c=step_k, pitch=pitch, bits=bits)
    step_n, step_b = form.scales
    over: Any = {"rows": form.n, "columns": form.blocks, "step_n": step_n, "step_c": step_b, "share": form.share}
    names = [
        derived(graph, f"{w.x}.packed", weights, w.x, nodes),
        derived(graph, f"{w.scale}.spread", SpreadRows(**over), w.scale, nodes),
    ]
    pitch = -(-form.blocks * bits // 8)
    if w.zero:
        names.append(derived(graph, f"{w.zero}.packed", PackRows(**over, pitch=pitch, bits=bits), w.zero, nodes))
    elif not kind.dtype.is_signed:
        names.append(graph.add_constant(np.zeros((form.n, pitch), np.uint8), DType.UINT8, f"{w.x}.zeros"))
    return names


def _convolved(graph: TypedGraph, node: Node, w: _Weight) -> list[Node] | None:
    """Replace Conv by Int8Conv, a scaling and an addition."""
    op: Any = node.op
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.outputs[0])
    if x.dtype is not DType.FLOAT or w.block or w.axis not in (None, 0):
        return None
    column = (-1, *(1,) * (y.rank - 2))
    conv = Int8Conv(**conv_attributes(op))
    zero = value(graph, w.zero) if w.zero else None
    sums = graph.add_value(f"{node.outputs[0]}.sums", y)
    nodes = [
        Node(conv, (node.inputs[0], w.x, *((w.zero,) if zero is not None and zero.any() else ())), (sums,), node.name)
    ]
    scale = shaped(graph, w.scale, () if w.axis is None else (y.shape[1], *column[1:]), DType.FLOAT)
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    if bias and bias not in graph.static:
        return None
    done = graph.add_value(f"{node.outputs[0]}.scaled", y) if bias else node.outputs[0]
    nodes.append(Node(newest("Mul"), (sums, scale), (done,), node.name))
    if bias:
        shift = shaped(graph, bias, (y.shape[1], *column[1:]), DType.FLOAT)
        nodes.append(Node(newest("Add"), (done, shift), node.outputs, node.name))
    return nodes


def _gathered(graph: TypedGraph, node: Node, w: _Weight) -> list[Node] | None:
    """Gather rows before they are dequantized."""
    op: Any = node.op
    kind, scale, y = graph.tensor(w.x), graph.tensor(w.scale), graph.tensor(node.outputs[0])
    if kind.rank != 2 or op.axis_of(op.axis, 2) != 0 or (w.block and w.axis != 1):
        return None
    if w.axis == 0 and not w.block:
        # One scale per row is one per block of all its elements.
        shape = (kind.shape[0], 1)
        scales = shaped(graph, w.scale, shape, scale.dtype)
        zero = shaped(graph, w.zero, shape, kind.dtype) if w.zero else ""
        w = _Weight(w.x, scales, zero, 1, kind.shape[1])
    if kind.dtype in (DType.INT4, DType.UINT4) and w.block:
        make: Any = op_class("GatherBlockQuantized", "com.microsoft", 1)
        gather = make(bits=4, block_size=w.block, gather_axis=0, quantize_axis=1)
        inputs = (w.x, node.inputs[1], w.scale, *((w.zero,) if w.zero else ()))
        return [Node(gather, inputs, node.outputs, node.name)]
    nodes: list[Node] = []
    names = []
    for name in (w.x, w.scale, w.zero):
        if name and (name == w.x or w.block):
            part = graph.tensor(name)
            rows = graph.add_value(f"{name}.rows", TensorType(part.dtype, (*y.shape[:-1], part.shape[1])))
            nodes.append(Node(newest("Gather", axis=0), (name, node.inputs[1]), (rows,), node.name))
            names.append(rows)
        elif name:
            names.append(name)
    back = newest("DequantizeLinear", axis=y.rank - 1, block_size=w.block)
    return [*nodes, Node(back, tuple(names), node.outputs, node.name)]
