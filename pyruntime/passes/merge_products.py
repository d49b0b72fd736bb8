"""Query, key and value projections: matrix products of one input by several constants become one product.

[x A, x B, x C] = split(x [A B C]); biases are joined too. The split costs nothing where attention reads it as views, so
only products that lead to reshapes into attention heads are merged, also where these are normalised: MatMul, and Gemm
without factors, as optimisers write it between two reshapes. The weights are joined on the GPU, once.
requires: types, no dead nodes. ensures: no two such products of one input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.match import Matcher

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class _Projection:
    """x W [+ b]: product, addition where there is one, the result's name; `turned`: W is transposed."""

    product: Node
    addition: Node | None
    bias: str
    result: str
    turned: bool = False


def run(graph: TypedGraph, target: Target) -> bool:
    """Merge every group; True where there was one."""
    match = Matcher(graph)
    groups: dict[tuple[str, str, bool], list[_Projection]] = {}
    for node in graph.nodes:
        projection = _projection(graph, match, node)
        if projection:
            key = node.inputs[0], node.op.op_type, projection.turned
            groups.setdefault(key, []).append(projection)
    gone: set[int] = set()
    instead: dict[int, list[Node]] = {}
    for projections in groups.values():
        if len(projections) > 1:
            instead[id(projections[0].product)] = _merged(graph, projections)
            gone.update(id(n) for p in projections for n in (p.product, p.addition) if n is not None)
    made: list[Node] = []
    for node in graph.nodes:
        made += instead.get(id(node), [] if id(node) in gone else [node])
    graph.nodes = made
    return bool(instead)


def _projection(graph: TypedGraph, match: Matcher, node: Node) -> _Projection | None:
    op: Any = node.op
    gemm = op.op_type == "Gemm"
    if op.domain or op.op_type not in ("MatMul", "Gemm") or node.inputs[1] not in graph.static:
        return None
    if gemm and (op.alpha != 1.0 or op.beta != 1.0 or op.transA):
        return None
    weight, y = graph.tensor(node.inputs[1]), graph.tensor(node.outputs[0])
    if weight.rank != 2 or y.rank < 2 or node.inputs[0] in graph.static or not y.dtype.is_float or y.dtype.is_wide:
        return None
    turned = bool(gemm and op.transB)
    bias, result = node.inputs[2] if len(node.inputs) > 2 else "", node.outputs[0]
    addition = match.only_reader(result, "Add") if not bias else None
    if addition is not None:
        bias, result = match.other(addition, result), addition.outputs[0]
    if bias and (bias not in graph.static or graph.tensor(bias).shape != (weight.shape[0 if turned else 1],)):
        return None
    behind = match.only_reader(result, "Mul", "Reshape")
    if behind is not None and behind.op.op_type == "Mul":
        behind = match.only_reader(behind.outputs[0], "Reshape") if match.with_scalar(behind) else None
    heads = match.only_reader(behind.outputs[0], "Transpose", "RMSNormalization") if behind is not None else None
    if heads is not None and heads.op.op_type == "RMSNormalization":
        heads = match.only_reader(heads.outputs[0], "Transpose")
    return _Projection(node, addition, bias, result, turned) if heads is not None else None


def _merged(graph: TypedGraph, projections: Sequence[_Projection]) -> list[Node]:
    first = projections[0].product
    y = graph.tensor(first.outputs[0])
    columns = 0 if projections[0].turned else 1
    widths = [graph.tensor(p.product.inputs[1]).shape[columns] for p in projections]
    depth = graph.tensor(first.inputs[1]).shape[1 - columns]
    shape = (sum(widths), depth) if projections[0].turned else (depth, sum(widths))
    weights = _join(graph, [p.product.inputs[1] for p in projections], columns, shape)
    wide = _value(graph, f"{first.outputs[0]}.merged", (*y.shape[:-1], sum(widths)), y)
    nodes = [weights, Node(first.op, (first.inputs[0], weights.outputs[0]), (wide,), first.name)]
    if any(p.bias for p in projections):
        biases = [p.bias or _zeros(graph, w, y) for p, w in zip(projections, widths, strict=True)]
        bias = _join(graph, biases, 0, (sum(widths),))
        biased = _value(graph, f"{first.outputs[0]}.biased", (*y.shape[:-1], sum(widths)), y)
        add = newest("Add")
        nodes += [bias, Node(add, (wide, bias.outputs[0]), (biased,), f"{first.name}.bias")]
        wide = biased
    sizes = graph.add_constant(np.array(widths, np.int64), DType.INT64, f"{wide}.sizes")
    results = tuple(p.result for p in projections)
    split = newest("Split", axis=y.rank - 1, present=(True,) * len(results))
    return [*nodes, Node(split, (wide, sizes), results, f"{first.name}.split")]


def _value(graph: TypedGraph, hint: str, shape: tuple[int, ...], like: TensorType) -> str:
    name = graph.fresh(hint)
    graph.types[name] = TensorType(like.dtype, shape, None, name)
    return name


def _zeros(graph: TypedGraph, width: int, like: TensorType) -> str:
    return graph.add_constant(np.zeros(width, like.dtype.numpy), like.dtype, "zeros")


def _join(graph: TypedGraph, names: Sequence[str], axis: int, shape: tuple[int, ...]) -> Node:
    """A Concat of static tensors, itself static: folded when small, else computed on the GPU once."""
    kinds = [graph.tensor(n) for n in names]
    result = graph.fresh(f"{names[0]}.joined")
    graph.types[result] = TensorType(
        kinds[0].dtype, shape, lambda: np.concatenate([k.value() for k in kinds], axis=axis), result
    )
    graph.static.add(result)
    return Node(newest("Concat", axis=axis), tuple(names), (result,), result)
