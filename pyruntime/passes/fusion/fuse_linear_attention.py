"""Replace loops over tokens that compute linear attention, optionally with a gated delta rule, by LinearAttention.

    S = exp(g) ⊙ S;  v = beta · (v - Sᵀ k);  S = S + k ⊗ v;  y = scale · Sᵀ q

A loop is recognized by what it computes, not by its nodes: state and output of an iteration are expanded to sums of
products (`passes/polynomials.py`) and compared with those of the formula, with or without decay and correction. g is
per head or per key component. The decay may be computed in the loop, or before it by Exp or Sigmoid. Results differ by
rounding: 16-bit states are accumulated in 32 bits. Sources: Katharopoulos et al., 2020; Yang et al., 2024.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import DType, Node, TensorType, TypedGraph, is_dim
from pyruntime.kernels import Target
from pyruntime.ops.attention.linear_attention import LinearAttention
from pyruntime.ops.fused.repeat import Repeat
from pyruntime.ops.registry import newest
from pyruntime.passes.computed import Values
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.polynomials import NotPolynomial, Polynomial, add, multiply, same, summed
from pyruntime.passes.writer import reshaped

__all__ = ["run"]

LEAST = (1.2e-38, 6e-8)
"""Minimum of a decay given as a factor before its logarithm is taken: for float32, and for float16."""

RULES = {(False, False): "linear", (True, False): "gated", (False, True): "delta", (True, True): "gated_delta"}


@node_pass(breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> list[Node] | None:
    """Replace a loop that computes linear attention by LinearAttention and transposes of its operands."""
    op = node.op
    if not isinstance(op, Repeat) or op.states != 1 or len(op.body.outputs) != 2 or any(op.backward):
        return None
    try:
        found = _recognized(op)
    except NotPolynomial:
        return None
    if found is None or 4 * found.sizes[0] > target.limits.workgroup_bytes:
        return None
    return _Writer(match, node, op, found).nodes()


@dataclass(frozen=True, slots=True)
class _Attention:
    """Roles of the values in a loop.

    Attributes:
        batch: dimensions of the state other than `axes`.
        axes, sizes: dimensions of keys and values in the state, and their sizes.
        leaves: atoms of query, key, value, beta and decay; None if absent.
        places: for each leaf, the dimension of the state of each of its dimensions.
        rows: the dimension of the state of each dimension of the output.
    """

    batch: tuple[int, ...]
    axes: tuple[int, int]
    sizes: tuple[int, int]
    leaves: dict[str, Any]
    places: dict[str, tuple[int | None, ...]]
    rows: tuple[int | None, ...]
    scale: float


def _recognized(op: Repeat) -> _Attention | None:
    """Return the roles in the loop's body, or None if it is not linear attention."""
    body: TypedGraph = op.body
    values = Values(body)
    made, out = (values.value(name) for name in body.outputs)
    kind = body.tensor(body.inputs[1])
    state = body.inputs[1]
    dims = made.dims
    if len(dims) != kind.rank or any(is_dim(n) for n in kind.shape[1:]):
        return None
    axes = [d for d, i in enumerate(dims) if i is not None]
    for k in axes:
        for v in axes:
            if k == v or (is_dim(kind.shape[k]) or is_dim(kind.shape[v])):
                continue
            batch = tuple(d for d in axes if d not in (k, v))
            leaves = _leaves(state, made, out, dims[k], dims[v])
            found = None if leaves is None else _proved(kind, state, made, out, batch, (k, v), leaves)
            if found is not None:
                return found
    return None


def _leaves(state: str, made: Polynomial, out: Polynomial, k: Any, v: Any) -> dict[str, Any] | None:
    """Find the leaf of each role by the indices of keys and values that it has."""
    leaves: dict[str, Any] = dict.fromkeys(("query", "key", "value", "beta", "decay"))
    plain = [atoms for _, atoms in made.products if all(name != state for name, _ in atoms)]
    kept = [a for _, a in made.products if any(n == state and k in at and v in at for n, at in a)]
    if len(plain) != 1 or not kept:
        return None
    for name, at in plain[0]:
        role = {(True, False): "key", (False, True): "value", (False, False): "beta"}.get((k in at, v in at))
        if role is None or leaves[role] is not None:
            return None
        leaves[role] = name, at
    shortest = min(kept, key=len)
    decays = [atom for atom in shortest if atom[0] != state]
    known = {name for atoms in (a for _, a in made.products) for name, _ in atoms}
    asked = {name: at for _, atoms in out.products for name, at in atoms if name not in known}
    if len(decays) > 1 or len(asked) != 1 or leaves["key"] is None or leaves["value"] is None:
        return None
    leaves["query"] = next(iter(asked.items()))
    leaves["decay"] = decays[0] if decays else None
    return leaves


def _proved(
    kind: TensorType,
    state: str,
    made: Polynomial,
    out: Polynomial,
    batch: tuple[int, ...],
    axes: tuple[int, int],
    leaves: dict[str, Any],
) -> _Attention | None:
    """Return the attention if the formula with these leaves has the same products as state and output, else None."""
    wanted = {"query": (*batch, axes[0]), "key": (*batch, axes[0]), "value": (*batch, axes[1]), "beta": batch}
    of_state = {i: d for d, i in enumerate(made.dims) if i is not None}
    names, places = {}, {}
    tensors: dict[str, Polynomial] = {}
    for role, found in leaves.items():
        if found is None:
            continue
        name, at = found
        if role == "query":  # the output sums over the query's key index
            at = _of_query(at, out, made, axes, batch)
        where = tuple(None if i is None else of_state.get(i, -1) for i in at)
        indices = {d for d in where if d is not None}
        allowed = [set(batch), {*batch, axes[0]}] if role == "decay" else [set(wanted[role])]
        if indices not in allowed:
            return None
        names[role], places[role] = name, where
        tensors[role] = Polynomial(_spread(kind.rank, where), ((1.0, ((name, where),)),))
    rows = _rows(out, made, axes, batch)
    if rows is None:
        return None
    every = tuple(d if i is not None else None for d, i in enumerate(made.dims))
    now = Polynomial(every, ((1.0, ((state, every),)),))
    if "decay" in tensors:
        now = multiply(now, tensors["decay"])
    value = tensors["value"]
    if "beta" in tensors:
        recalled = summed(multiply(now, tensors["key"]), kind.shape, [axes[0]], True)
        value = multiply(tensors["beta"], add(value, recalled, -1.0))
    now = add(now, multiply(tensors["key"], value))
    if not same(now, made):
        return None
    read = summed(multiply(now, tensors["query"]), kind.shape, [axes[0]], True)
    expected = Polynomial(tuple(None if d is None else read.dims[d] for d in rows), read.products)
    scale = _ratio(out, expected)
    if scale is None or not same(expected.scaled(scale), out):
        return None
    sizes = kind.shape[axes[0]], kind.shape[axes[1]]
    return _Attention(batch, axes, sizes, names, places, rows, scale)


def _spread(rank: int, where: Sequence[int | None]) -> tuple[int | None, ...]:
    """Return the dimensions of a tensor that is broadcast to the state."""
    return tuple(d if d in where else None for d in range(rank))


def _of_query(
    at: Sequence[int | None], out: Polynomial, made: Polynomial, axes: tuple[int, int], batch: tuple[int, ...]
) -> tuple[int | None, ...]:
    """Return the query's indices in terms of those of the state."""
    rows = _rows(out, made, axes, batch)
    if rows is None:
        raise NotPolynomial
    names = {i: made.dims[d] for i, d in zip(out.dims, rows, strict=True) if i is not None and d is not None}
    return tuple(None if i is None else names.get(i, made.dims[axes[0]]) for i in at)


def _rows(
    out: Polynomial, made: Polynomial, axes: tuple[int, int], batch: tuple[int, ...]
) -> tuple[int | None, ...] | None:
    """Return the dimension of the state of each output dimension: the same order without the key dimension."""
    left = iter(sorted((*batch, axes[1])))
    rows = tuple(None if i is None else next(left, -1) for i in out.dims)
    return rows if -1 not in rows and next(left, None) is None else None


def _ratio(a: Polynomial, b: Polynomial) -> float | None:
    """Return the ratio of the factors of a product that both have."""
    first, second = a.canonical(), b.canonical()
    return next((first[key] / second[key] for key in first if key in second), None)


class _Writer:
    """Builder of the LinearAttention that replaces a loop."""

    def __init__(self, match: Matcher, node: Node, op: Repeat, found: _Attention) -> None:
        self._graph, self._node, self._op, self._found = match.graph, node, op, found
        self._made: list[Node] = []

    def nodes(self) -> list[Node] | None:
        """Return the nodes, or None if an operand is not available outside the loop."""
        found, node = self._found, self._node
        sources = {role: self._source(leaf) for role, leaf in found.leaves.items()}
        if any(source is None for source in sources.values()):
            return None
        kind = self._op.body.tensor(self._op.body.inputs[1])
        batch = kind.shape[found.batch[0]] if len(found.batch) > 1 else 1
        heads = math.prod(kind.shape[d] for d in found.batch[1 if len(found.batch) > 1 else 0 :])
        if is_dim(heads):
            return None
        operands = {}
        for role, source in sources.items():
            assert source is not None
            operands[role] = self._tokens(source, found.places[role], batch, heads)
        first = self._moved(node.inputs[0], (*found.batch, *found.axes), (batch, heads, *found.sizes))
        rule = RULES["decay" in operands, "beta" in operands]
        op = LinearAttention(
            kv_num_heads=heads, q_num_heads=heads, scale=found.scale, update_rule=rule, present=(True, True)
        )
        names = [operands["query"], operands["key"], operands["value"], first]
        names += [operands.get("decay", ""), operands.get("beta", "")]
        dtype = kind.dtype
        y = self._value("y", TensorType(dtype, (batch, self._op.times, heads * found.sizes[1])))
        state = self._value("state", TensorType(dtype, (batch, heads, *found.sizes)))
        self._made.append(Node(op, tuple(names), (y, state), node.name))
        self._end_state(state, kind)
        self._end_rows(y, batch, heads)
        return self._made

    def _source(self, leaf: Any) -> str | None:
        """Return the tensor of all tokens that a leaf is a slice of.

        None if there is none, or if a decay may be negative.
        """
        is_power = isinstance(leaf, tuple)
        name = leaf[2] if is_power else leaf
        slices = self._op.body.inputs[2 : 2 + self._op.sliced]
        if name not in slices:
            return None
        source = self._node.inputs[1 + slices.index(name)]
        if leaf != self._found.leaves.get("decay"):
            return None if is_power else source
        kind = self._graph.tensor(source)
        if is_power:
            return source if leaf[1] == 1 else self._apply("Mul", kind, source, self._number(leaf[1], kind))
        if not self._is_positive(source):
            return None
        least = self._apply("Max", kind, source, self._number(LEAST[kind.dtype is DType.FLOAT16], kind))
        return self._apply("Log", kind, least)

    def _is_positive(self, name: str) -> bool:
        """Whether a value, possibly reshaped or transposed, comes from Exp or Sigmoid."""
        node = self._graph.producer(name)
        while node is not None and node.op.op_type in ("Reshape", "Transpose", "Unsqueeze", "Squeeze", "Identity"):
            node = self._graph.producer(node.inputs[0])
        return node is not None and node.op.domain == "" and node.op.op_type in ("Exp", "Sigmoid")

    def _number(self, value: float, kind: TensorType) -> str:
        return self._graph.add_constant(np.asarray(value, kind.dtype.numpy), kind.dtype, "number")

    def _value(self, hint: str, kind: TensorType) -> str:
        return self._graph.add_value(f"{self._node.outputs[0] or self._node.name}.{hint}", kind)

    def _apply(self, op_type: str, kind: TensorType, *inputs: str) -> str:
        made = self._value(op_type, kind)
        self._made.append(Node(newest(op_type), inputs, (made,), self._node.name))
        return made

    def _tokens(self, source: str, places: Sequence[int | None], batch: Any, heads: int) -> str:
        """Rearrange [tokens, dimensions of the leaf] to [batch, tokens, heads * components]."""
        found = self._found
        order = [d for d in (*found.batch, *found.axes) if d in places]
        kind = self._graph.tensor(source)
        at = {d: 1 + n for n, d in enumerate(places) if d is not None}
        ones = [1 + n for n, d in enumerate(places) if d is None]
        front = [at[order[0]]] if len(found.batch) > 1 else []
        perm = [*front, 0, *(at[d] for d in order[len(front) :]), *ones]
        size = math.prod(kind.shape[at[d]] for d in order if d in found.axes)
        moved = self._transposed(source, perm)
        result = self._value("tokens", TensorType(kind.dtype, (batch, self._op.times, heads * size)))
        self._made.append(reshaped(self._graph, moved, result, (batch, self._op.times, heads * size)))
        return result

    def _moved(self, source: str, order: Sequence[int], shape: Sequence[Any]) -> str:
        """Transpose `source` so that the dimensions `order` come first, and reshape it."""
        kind = self._graph.tensor(source)
        perm = [*order, *(d for d in range(kind.rank) if d not in order)]
        moved = self._transposed(source, perm)
        result = self._value("placed", TensorType(kind.dtype, tuple(shape)))
        self._made.append(reshaped(self._graph, moved, result, shape))
        return result

    def _transposed(self, source: str, perm: Sequence[int]) -> str:
        if list(perm) == list(range(len(perm))):
            return source
        kind = self._graph.tensor(source)
        made = self._value("turned", TensorType(kind.dtype, tuple(kind.shape[p] for p in perm)))
        self._made.append(Node(newest("Transpose", perm=tuple(perm)), (source,), (made,), self._node.name))
        return made

    def _end_state(self, state: str, kind: TensorType) -> None:
        """Write the last state in the loop's layout."""
        if not self._node.outputs[0]:
            return
        order = (*self._found.batch, *self._found.axes)
        self._placed(state, order, kind.shape, self._node.outputs[0])

    def _end_rows(self, y: str, batch: Any, heads: int) -> None:
        """Write the output of all tokens in the loop's layout."""
        name = self._node.outputs[1] if len(self._node.outputs) > 1 else ""
        if not name:
            return
        found, graph = self._found, self._graph
        kind = self._op.body.tensor(self._op.body.inputs[1])
        tokens = self._op.times
        split = [*(kind.shape[d] for d in found.batch), found.sizes[1]]
        order = [*found.batch, found.axes[1]]
        front = 1 if len(found.batch) > 1 else 0
        apart = self._value("rows", TensorType(kind.dtype, (*split[:front], tokens, *split[front:])))
        self._made.append(reshaped(graph, y, apart, (*split[:front], tokens, *split[front:])))
        at = {d: n if n < front else n + 1 for n, d in enumerate(order)}
        turned = self._transposed(apart, [front, *(at[d] for d in found.rows if d is not None)])
        self._made.append(reshaped(graph, turned, name, graph.tensor(name).shape))

    def _placed(self, source: str, order: Sequence[int], shape: Sequence[Any], name: str) -> None:
        """Transpose `source`, whose dimensions are in `order`, to ascending order and write it to `name`."""
        kind = self._graph.tensor(source)
        apart = self._value("apart", TensorType(kind.dtype, tuple(shape[d] for d in order)))
        self._made.append(reshaped(self._graph, source, apart, [shape[d] for d in order]))
        turned = self._transposed(apart, [order.index(d) for d in sorted(order)])
        self._made.append(reshaped(self._graph, turned, name, shape))
