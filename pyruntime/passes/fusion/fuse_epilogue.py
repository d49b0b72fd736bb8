"""Fuse bias, activation and residual into the kernel of a convolution, product or group normalization.

The chain may change the type: integer sums become floats, floats become 8-bit integers. The elementwise node has the
product's shape and is its only consumer; kernels support the broadcasting of its operands
(`kernels.ir.elementwise_epilogue.Access`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyruntime.ir import DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target, inp
from pyruntime.kernels.ir.elementwise_epilogue import Access, classify
from pyruntime.kernels.products.integer_matmul import zero_point
from pyruntime.ops.elementwise.elementwise import Elementwise
from pyruntime.ops.fused.elementwise import FusedElementwise, Source, Step
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.registry import newest
from pyruntime.passes.fusion.fuse_elementwise import as_chain
from pyruntime.passes.graph_pass import Fact, graph_pass

__all__ = ["run"]

_ROWS = (
    *(("", n) for n in ("MatMul", "Gemm", "MatMulInteger")),
    ("com.microsoft", "MatMulNBits"),
    ("pyruntime", "DepthwiseLast"),
)
_CHANNELS = (
    *(("", n) for n in ("Conv", "ConvTranspose", "GroupNormalization", "InstanceNormalization", "ConvInteger")),
    ("pyruntime", "Int8Conv"),
    ("pyruntime", "ConvIntegerChannelsLast"),
    ("pyruntime", "ConvPanels"),
)
_BIAS = {"Gemm": 2, "MatMulNBits": 5}
"""Index of the bias input of products that have one."""


@graph_pass(requires=(Fact.ELEMENTWISE_FUSED, Fact.PRODUCTS_PAIRED), ensures=(Fact.EPILOGUES_FUSED,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Fuse all matches; returns whether there were any."""
    wanted = set(graph.outputs)
    fused: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Elementwise | FusedElementwise) or node.outputs[0] in graph.static:
            continue
        producers = {b for n in node.inputs if n not in wanted and (b := graph.producer(n)) is not None}
        bases = [b for b in producers if b not in fused and graph.reads(b.outputs[0]) == 1]
        for base in sorted(bases, key=graph.position, reverse=True):
            made = _fuse(graph, base, node, target)
            if made is not None:
                fused |= {base: [], node: [made]}
                break
    return graph.substitute(fused)


def _fuse(graph: TypedGraph, base: Node, node: Node, target: Target) -> Node | None:
    """Return `base` with `node` as its epilogue, or None."""
    op: Any = base.op
    kind = (op.domain, op.op_type)
    if kind not in (*_ROWS, *_CHANNELS):
        return None
    result, final = graph.tensor(base.outputs[0]), graph.tensor(node.outputs[0])
    if result.shape != final.shape or result.rank < 2 or final.dtype.is_wide or final.dtype.bits < 8:
        return None
    if result.dtype.is_wide or not (result.dtype.is_float or result.dtype is DType.INT32):
        return None
    node = as_chain(graph, node)
    chain = node.op
    assert isinstance(chain, FusedElementwise)
    others = [n for n in node.inputs if n != base.outputs[0]]
    inputs, added = list(base.inputs), ""
    if op.op_type in _BIAS:
        split = _without_bias(base)
        if split is None:
            return None
        op, inputs, added = split
    if added:
        chain, others = _add_first(chain, node, base.outputs[0], others, added)
    else:
        chain = _result_first(chain, node, base.outputs[0], others)
    types = [graph.types[n] for n in others]
    known = {Access.FULL, Access.SCALAR, Access.MINOR if kind in _ROWS else Access.CHANNEL}
    if not all(isinstance(t, TensorType) and t.dtype.bits <= 32 and classify(t, result) in known for t in types):
        return None
    bound = (target.limits.bindings(graph.tensor(n).nbytes) for n in (*others, *node.outputs))
    if _bound(graph, base, inputs) + sum(bound) > target.limits.storage_buffers:
        return None
    return Node(WithEpilogue(base=op, count=len(inputs), chain=chain), (*inputs, *others), node.outputs, base.name)


def _bound(graph: TypedGraph, base: Node, inputs: list[str]) -> int:
    """Return the number of tensors the product binds. Scalar constant zero points become parameters."""
    if base.op.op_type != "MatMulInteger":
        return sum(map(bool, inputs))
    zeros = [zero_point(inp(i, graph.tensor(n)), 0) for i, n in enumerate(inputs[2:], 2) if n]
    return 2 + sum(zero.operand is not None for zero in zeros)


def _result_first(chain: FusedElementwise, node: Node, result: str, others: list[str]) -> FusedElementwise:
    """Return the chain with `result` as input 0, followed by `others`."""
    order = [result, *others]

    def number(i: Source) -> Source:
        return i if not isinstance(i, int) or i < 0 else order.index(node.inputs[i])

    return FusedElementwise(steps=tuple(Step(s.op, tuple(map(number, s.inputs))) for s in chain.steps))


def _without_bias(base: Node) -> tuple[Any, list[str], str] | None:
    """Return a product without its bias, the remaining inputs, and the name of the bias ("" for none).

    None for a Gemm with alpha or beta.
    """
    op: Any = base.op
    at = _BIAS[op.op_type]
    bias = base.inputs[at] if len(base.inputs) > at else ""
    if op.op_type == "Gemm" and (op.alpha != 1.0 or (bias and op.beta != 1.0)):
        return None
    inputs = list(base.inputs[:at])
    while inputs and not inputs[-1]:
        inputs.pop()
    return replace(op), inputs, bias


def _add_first(
    chain: FusedElementwise, node: Node, result: str, others: list[str], added: str
) -> tuple[FusedElementwise, list[str]]:
    """Return the chain preceded by an addition of `added` to the result."""
    add: Any = newest("Add")
    others = list(dict.fromkeys([added, *others]))
    order = [result, *others]

    def number(i: Source) -> Source:
        if not isinstance(i, int):
            return i
        if i < 0:
            return i - 1
        return -1 if node.inputs[i] == result else order.index(node.inputs[i])

    steps = [Step(s.op, tuple(map(number, s.inputs))) for s in chain.steps]
    return FusedElementwise(steps=(Step(add, (0, 1)), *steps)), others
