"""Reverse-mode differentiation: replaces Gradient nodes by the nodes that compute them.

For y = f(xs, zs) the outputs of Gradient are dx = d sum(y) / dx. The nodes between xs and y are visited backwards from
y; the rule of each operator computes the gradients of its inputs from those of its outputs (vector-Jacobian product).
Where Gradient has other inputs than the tensors its attributes name, those nodes are copied first. All nodes that rules
emit have rules, so higher derivatives work.

Source: ai.onnx.preview.training.Gradient; Griewank and Walther, Evaluating Derivatives, chapter 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.errors import Fail, InvalidGraph, NotImplemented
from pyruntime.ir import Array, Constant, Graph, Node
from pyruntime.ops.registry import newest
from pyruntime.ops.training.gradient import Gradient, SumTo

__all__ = ["RULES", "expand_gradients"]


def expand_gradients(graph: Graph, most: int) -> None:
    """Replace the Gradient nodes of a main graph, in place; `graph.nodes` stays topologically ordered.

    Raises:
        Fail: the graph would have more than `most` nodes: higher derivatives grow without bound.
        InvalidGraph: y or one of xs is not a value of the graph, or the number of inputs is not that of xs and zs.
        NotImplemented: an operator between xs and y has no rule; the message names the node.
    """
    done: list[Node] = []
    for node in graph.nodes:
        if not isinstance(node.op, Gradient):
            done.append(node)
            continue
        try:
            done += _Tape(graph, done, node.outputs[0] or node.name).differentiate(node, node.op)
        except (InvalidGraph, NotImplemented) as error:
            raise type(error)(f"node {node.label}: {error}") from error
        if len(done) > most:
            raise Fail(
                f"node {node.label}: the model has more than {most} nodes, with its gradients written out; "
                "raise the limit `nodes` (SessionOptions.limits) if it is trusted"
            )
    graph.nodes = done


class _Tape:
    """Collects the nodes that replace one Gradient node."""

    def __init__(self, graph: Graph, before: Sequence[Node], label: str) -> None:
        self._graph, self._before, self._label = graph, before, label
        self._count = 0
        self.nodes: list[Node] = []

    def differentiate(self, node: Node, op: Gradient) -> list[Node]:
        names = (*op.xs, *(op.zs or ()))
        if len(node.inputs) != len(names):
            raise InvalidGraph(f"expected an input for each of xs and zs, {len(names)}, got {len(node.inputs)}")
        known = self._values()
        for name in (*names, op.y):
            if name not in known:
                raise InvalidGraph(f"{name!r} is not a value of the graph before this node")
        section, y, xs = self._section(op, node.inputs)
        gradients = {y: self.ones_like(y)}
        depends = _dependents(section, xs)
        for inner in reversed(section):
            self._backward(inner, gradients, depends)
        for x, output in zip(xs, node.outputs, strict=False):
            if output:
                gradient = gradients.get(x) or self.emit("Mul", x, self.zero_like(x))
                self.nodes.append(Node(newest("Identity"), (gradient,), (output,), f"{node.name}/{x}"))
        return self.nodes

    def _values(self) -> set[str]:
        graph = self._graph
        stated = {value.name for value in (*graph.inputs, *graph.overridable)}
        return stated | set(graph.constants) | {name for node in self._before for name in node.outputs}

    def _section(self, op: Gradient, inputs: Sequence[str]) -> tuple[list[Node], str, tuple[str, ...]]:
        """Return the nodes between xs and y, then y and xs: the graph's own, or copies that read `inputs` instead."""
        names = (*op.xs, *(op.zs or ()))
        reached = {*names}
        section = []
        for node in self._before:
            if not reached.isdisjoint(node.inputs) and reached.isdisjoint(node.outputs):
                section.append(node)
                reached.update(filter(None, node.outputs))
        needed = {op.y}
        for node in reversed(section[:]):
            if needed.isdisjoint(node.outputs):
                section.remove(node)
            else:
                needed.update(node.inputs)
        if tuple(inputs) == names:
            return section, op.y, op.xs
        now = dict(zip(names, inputs, strict=True))
        for node in section:
            now |= {name: self._name(name) for name in node.outputs if name}
        copies = [
            replace(n, inputs=tuple(now.get(i, i) for i in n.inputs), outputs=tuple(now.get(o, o) for o in n.outputs))
            for n in section
        ]
        self.nodes += copies
        return copies, now.get(op.y, op.y), tuple(now[x] for x in op.xs)

    def _backward(self, node: Node, gradients: dict[str, str], depends: set[str]) -> None:
        """Add the contributions of `node` to the gradients of its inputs."""
        outgoing = [gradients.get(name, "") for name in node.outputs]
        wanted = [name in depends for name in node.inputs]
        if not any(outgoing) or not any(wanted):
            return
        rule = RULES.get(node.op.op_type) if node.op.domain in ("", "pyruntime") else None
        if rule is None:
            raise NotImplemented(
                f"{node.label} cannot be differentiated; operators that can: {', '.join(sorted(RULES))}"
            )
        for name, wants, part in zip(node.inputs, wanted, rule(self, node, outgoing), strict=False):
            if wants and part:
                gradients[name] = self.emit("Add", gradients[name], part) if name in gradients else part

    def _name(self, hint: str) -> str:
        self._count += 1
        return f"{self._label}/{hint}_{self._count}"

    def emit(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of the newest ai.onnx operator; return its output."""
        name = self._name(op_type)
        self.nodes.append(Node(newest(op_type, **attributes), inputs, (name,), name))
        return name

    def constant(self, value: Array) -> str:
        name = self._name("constant")
        self._graph.constants[name] = Constant.from_array(value)
        return name

    def number(self, value: float, like: str) -> str:
        """Emit a scalar constant of the type of `like`."""
        return self.emit("CastLike", self.constant(np.array(value, np.float32)), like)

    def ones_like(self, x: str) -> str:
        return self.emit("Expand", self.number(1, x), self.emit("Shape", x))

    def zero_like(self, x: str) -> str:
        return self.number(0, x)

    def sum_to(self, gradient: str, like: str) -> str:
        name = self._name("SumTo")
        self.nodes.append(Node(SumTo(), (gradient, like), (name,), name))
        return name

    def swap(self, x: str) -> str:
        """Emit a transposition of the last two axes of x."""
        return self.emit("Einsum", x, equation="...ij->...ji")


def _dependents(section: Sequence[Node], xs: Sequence[str]) -> set[str]:
    found = set(xs)
    for node in section:
        if not found.isdisjoint(node.inputs):
            found.update(filter(None, node.outputs))
    return found


Rule = Callable[[_Tape, Node, Sequence[str]], Sequence[str]]
"""Computes the gradients of a node's inputs from those of its outputs, given the tape and the node; '': no gradient."""

Unary = Callable[[_Tape, str, str, str], str]
"""Computes dx from the tape, x, y and dy."""


def _unary(rule: Unary) -> Rule:
    return lambda t, node, dys: (rule(t, node.inputs[0], node.outputs[0], dys[0]),)


def _binary(left: Unary, right: Unary) -> Rule:
    """Return a rule for two broadcast inputs from a rule for each, which gets a, b and dy."""

    def rule(t: _Tape, node: Node, dys: Sequence[str]) -> Sequence[str]:
        a, b = node.inputs
        return t.sum_to(left(t, a, b, dys[0]), a), t.sum_to(right(t, a, b, dys[0]), b)

    return rule


def _pow_base(t: _Tape, a: str, b: str, dy: str) -> str:
    exponent = t.emit("CastLike", b, a)
    lower = t.emit("Pow", a, t.emit("Sub", exponent, t.number(1, a)))
    return t.emit("Mul", dy, t.emit("Mul", exponent, lower))


def _pow_exponent(t: _Tape, a: str, b: str, dy: str) -> str:
    return t.emit("CastLike", t.emit("Mul", dy, t.emit("Mul", t.emit("Pow", a, b), t.emit("Log", a))), b)


def _variadic(t: _Tape, node: Node, dys: Sequence[str]) -> Sequence[str]:
    return [t.sum_to(dys[0], name) for name in node.inputs]


def _reshaped(t: _Tape, node: Node, dys: Sequence[str]) -> Sequence[str]:
    return (t.emit("Reshape", dys[0], t.emit("Shape", node.inputs[0]), allowzero=1),)


def _transposed(t: _Tape, node: Node, dys: Sequence[str]) -> Sequence[str]:
    perm = getattr(node.op, "perm", None)
    if perm is None:
        return (t.emit("Transpose", dys[0]),)
    return (t.emit("Transpose", dys[0], perm=tuple(int(axis) for axis in np.argsort(perm))),)


def _reduced(mean: bool) -> Rule:
    """Return the rule of y = sum or mean of x over axes: dx is dy, divided for the mean by the number of elements."""

    def rule(t: _Tape, node: Node, dys: Sequence[str]) -> Sequence[str]:
        x, y = node.inputs[0], node.outputs[0]
        op: Any = node.op
        kept = t._name("kept")
        t.nodes.append(Node(replace(op, keepdims=1), node.inputs, (kept,), kept))
        dy = t.emit("Reshape", dys[0], t.emit("Shape", kept), allowzero=1)
        dx = t.emit("Expand", dy, t.emit("Shape", x))
        if mean:
            share = t.emit("Div", t.emit("CastLike", t.emit("Size", y), x), t.emit("CastLike", t.emit("Size", x), x))
            dx = t.emit("Mul", dx, share)
        return (dx,)

    return rule


def _matmul(t: _Tape, node: Node, dys: Sequence[str]) -> Sequence[str]:
    """y = a b, each of two or more dimensions: da = dy bᵀ, db = aᵀ dy."""
    a, b = node.inputs
    da = t.emit("MatMul", dys[0], t.swap(b))
    db = t.emit("MatMul", t.swap(a), dys[0])
    return t.sum_to(da, a), t.sum_to(db, b)


def _gemm(t: _Tape, node: Node, dys: Sequence[str]) -> Sequence[str]:
    """y = alpha a' b' + beta c, where a' and b' are a and b or their transposes."""
    op: Any = node.op
    (a, b), (dy, *_) = node.inputs[:2], dys
    ta, tb, alpha = op.transA, op.transB, op.alpha
    da = t.emit("Gemm", *((b, dy) if ta else (dy, b)), alpha=alpha, transA=tb if ta else 0, transB=1 if ta else 1 - tb)
    db = t.emit("Gemm", *((dy, a) if tb else (a, dy)), alpha=alpha, transA=1 if tb else 1 - ta, transB=ta if tb else 0)
    if len(node.inputs) < 3 or not node.inputs[2]:
        return da, db
    return da, db, t.sum_to(t.emit("Mul", dy, t.number(op.beta, dy)), node.inputs[2])


def _softmax(t: _Tape, node: Node, dys: Sequence[str]) -> Sequence[str]:
    """dx = y (dy - sum(y dy)) along the axis; for opset 13 and later."""
    op: Any = node.op
    if op.opsets.start < 13:
        raise NotImplemented(f"{node.label} before opset 13 cannot be differentiated; convert the model to opset 13")
    y, axes = node.outputs[0], t.constant(np.array([op.axis]))
    total = t.emit("ReduceSum", t.emit("Mul", y, dys[0]), axes)
    return (t.emit("Mul", y, t.emit("Sub", dys[0], total)),)


def _where(t: _Tape, node: Node, dys: Sequence[str]) -> Sequence[str]:
    condition, a, b = node.inputs
    zero = t.zero_like(dys[0])
    return (
        "",
        t.sum_to(t.emit("Where", condition, dys[0], zero), a),
        t.sum_to(t.emit("Where", condition, zero, dys[0]), b),
    )


def _constant(t: _Tape, node: Node, dys: Sequence[str]) -> Sequence[str]:
    """The gradient is zero, or the output depends on no differentiable input."""
    return [""] * len(node.inputs)


def _einsum(t: _Tape, node: Node, dys: Sequence[str]) -> Sequence[str]:
    if getattr(node.op, "equation", "") != "...ij->...ji":
        raise NotImplemented(f"{node.label} cannot be differentiated; use MatMul and Transpose")
    return (t.swap(dys[0]),)


def _times(t: _Tape, dy: str, factor: str) -> str:
    return t.emit("Mul", dy, factor)


RULES: dict[str, Rule] = {
    "Abs": _unary(lambda t, x, y, dy: _times(t, dy, t.emit("Sign", x))),
    "Add": _binary(lambda t, a, b, dy: dy, lambda t, a, b, dy: dy),
    "CastLike": lambda t, node, dys: (t.emit("CastLike", dys[0], node.inputs[0]), ""),
    "Ceil": _constant,
    "Cos": _unary(lambda t, x, y, dy: _times(t, dy, t.emit("Neg", t.emit("Sin", x)))),
    "Div": _binary(
        lambda t, a, b, dy: t.emit("Div", dy, b),
        lambda t, a, b, dy: t.emit("Neg", _times(t, dy, t.emit("Div", a, t.emit("Mul", b, b)))),
    ),
    "Einsum": _einsum,
    "Exp": _unary(lambda t, x, y, dy: _times(t, dy, y)),
    "Expand": lambda t, node, dys: (t.sum_to(dys[0], node.inputs[0]), ""),
    "Flatten": _reshaped,
    "Floor": _constant,
    "Gemm": _gemm,
    "Identity": _unary(lambda t, x, y, dy: dy),
    "Log": _unary(lambda t, x, y, dy: t.emit("Div", dy, x)),
    "MatMul": _matmul,
    "Mul": _binary(lambda t, a, b, dy: _times(t, dy, b), lambda t, a, b, dy: _times(t, dy, a)),
    "Neg": _unary(lambda t, x, y, dy: t.emit("Neg", dy)),
    "Pow": _binary(_pow_base, _pow_exponent),
    "Reciprocal": _unary(lambda t, x, y, dy: t.emit("Neg", _times(t, dy, t.emit("Mul", y, y)))),
    "ReduceMean": _reduced(mean=True),
    "ReduceSum": _reduced(mean=False),
    "Relu": _unary(lambda t, x, y, dy: t.emit("Where", t.emit("Greater", x, t.zero_like(x)), dy, t.zero_like(dy))),
    "Reshape": _reshaped,
    "Shape": _constant,
    "Sigmoid": _unary(lambda t, x, y, dy: _times(t, dy, t.emit("Mul", y, t.emit("Sub", t.number(1, y), y)))),
    "Sign": _constant,
    "Sin": _unary(lambda t, x, y, dy: _times(t, dy, t.emit("Cos", x))),
    "Size": _constant,
    "Softmax": _softmax,
    "Sqrt": _unary(lambda t, x, y, dy: t.emit("Div", dy, t.emit("Add", y, y))),
    "Squeeze": _reshaped,
    "Sub": _binary(lambda t, a, b, dy: dy, lambda t, a, b, dy: t.emit("Neg", dy)),
    "Sum": _variadic,
    "SumTo": lambda t, node, dys: (t.emit("Expand", dys[0], t.emit("Shape", node.inputs[0])), ""),
    "Tanh": _unary(lambda t, x, y, dy: _times(t, dy, t.emit("Sub", t.number(1, y), t.emit("Mul", y, y)))),
    "Transpose": _transposed,
    "Unsqueeze": _reshaped,
    "Where": _where,
}
"""Rules by operator."""
