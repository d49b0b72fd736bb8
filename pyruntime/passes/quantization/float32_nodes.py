"""Select the nodes that stay in float32 under `precision: 'float16'`, each with its reason."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyruntime.errors import OrtError
from pyruntime.ir import DType, Node, TensorType, TypedGraph, Unsupported, ValueNeeded, ValueType
from pyruntime.kernels import Target
from pyruntime.ops.base import Op
from pyruntime.ops.caches import CacheOp
from pyruntime.ops.elementwise.elementwise import Elementwise
from pyruntime.passes.quantization.float16_range import LARGEST, SMALLEST, SMALLEST_NORMAL, largest

__all__ = ["Float32Nodes", "float32_operands", "is_static", "named", "values_after"]

_FOLDERS = """
attention convolution elementwise fused indexing microsoft movement normalization products reduction vision
"""

_FAMILIES = frozenset(_FOLDERS.split())
"""Folders of `pyruntime.ops` whose operators may compute in float16."""

_LOCAL = frozenset(["elementwise", "indexing", "movement", "reduction"])
"""Folders of operators through which positions and masks pass unchanged in kind."""

_LISTED = """
Acos AffineGrid Asin Atan Ceil Cos Cosh CumProd CumSum DeformConv Det DynamicQuantizeLSTM
DynamicQuantizeMatMul Exp Floor FusedElementwise Int8Conv Log MatMulIntegerToFloat MaxRoiPool Mod
NonMaxSuppression Pow QAttention Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceProd
ReduceSum ReduceSumSquare Repeat RoiAlign Round Sin Sinh Softplus Tan TopK Unique
"""

_OPERATORS = frozenset(_LISTED.split())
"""Operators whose arguments or results need more digits or a wider range than float16 has."""

_SUMS = """
CumProd CumSum Exp Pow Reciprocal ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSum ReduceSumSquare
"""

_UNBOUNDED = frozenset(_SUMS.split())
"""Those of `_OPERATORS` whose results may exceed the float16 range even if their arguments do not."""

_SQUARES = frozenset(("Pow", "Exp"))

_QUANTIZERS = frozenset(("DynamicQuantizeLinear", "QuantizeLinear", "Quantize"))
"""Consumers that take float32: in a model with mostly integer products, they read the floats between the products."""

_HEAVY = 64 << 10
"""Least size of a weight, in bytes, that makes it worth casting the inputs and results of its node."""

_OPERANDS: dict[str, tuple[int, ...]] = {
    "FusedAttention": (3,),
    "GridSample": (1,),
    "GroupQueryAttention": (12, 13),
    "Resize": (1, 2),
    "Upsample": (1,),
}
"""Indices of inputs that stay in float32, by operator: masks, coordinates, scales."""

_DERIVED = "it computes positions, masks or other numbers derived from integers"
_WIDE = "it reads values that may exceed float16's range"


def float32_operands(op: Op) -> tuple[int, ...]:
    """Return the indices of the inputs that stay in float32 when `op` computes in float16."""
    return _OPERANDS.get(op.op_type, ())


def is_static(graph: TypedGraph, node: Node) -> bool:
    """Return whether all outputs of a node are constants of the session."""
    return all(n in graph.static for n in node.outputs if n)


def named(node: Node) -> str:
    """Return the name of a node, or its first output if it has no name."""
    return node.name or next(filter(None, node.outputs), "")


def values_after(graph: TypedGraph, target: Target) -> list[list[str]]:
    """Return, for each node named by the session option, its outputs and all values computed from them, nearest first.

    Passes may replace the node: the first of these values that still exists then identifies its replacement.
    """
    half = target.half
    return [_values_after(graph, node) for node in graph.nodes if half is not None and half.keeps(named(node))]


def _values_after(graph: TypedGraph, node: Node) -> list[str]:
    found = dict.fromkeys(filter(None, node.outputs))
    for name in (waiting := list(found)):
        made = [n for reader in graph.consumers(name) for n in reader.outputs if n and n not in found]
        found.update(dict.fromkeys(made))
        waiting += made
    return list(found)


def _family(op: object) -> str:
    """Return the folder of `pyruntime.ops` that declares an operator, "" for a custom operator."""
    name = type(op).__module__
    return name.split(".")[2] if name.startswith("pyruntime.ops.") else ""


@dataclass(slots=True)
class Float32Nodes:
    """Classifies the nodes of a graph that compute floats into float16 and float32.

    Attributes:
        computing: nodes with a float32 output that is computed in each run.
        reasons: those of `computing` that stay in float32, with the reason.
        derived: float32 values of unlimited magnitude: positions, masks.
    """

    graph: TypedGraph
    target: Target
    computing: list[Node] = field(default_factory=list)
    reasons: dict[Node, str] = field(default_factory=dict)
    derived: set[str] = field(default_factory=set)
    _wide: set[str] = field(default_factory=set)
    _caches: set[str] = field(default_factory=set)
    _given: set[str] = field(default_factory=set)
    _largest: dict[str, float] = field(default_factory=dict)
    _kernels: dict[Hashable, bool] = field(default_factory=dict)
    _named: set[Node] = field(default_factory=set)
    _quantizes: bool = False

    def find(self) -> None:
        """Classify all nodes; fills the attributes."""
        self._named = set(self._named_nodes())
        quantizers = sum(node.op.op_type in _QUANTIZERS for node in self.graph.nodes)
        self._quantizes = quantizers > sum(map(self._has_heavy_weights, self.graph.nodes))
        for node in self.graph.nodes:
            if is_static(self.graph, node) or not any(self._is_float(n) for n in node.outputs):
                continue
            self.computing.append(node)
            reason = self._reason(node)
            if reason:
                self.reasons[node] = reason
        for node in reversed(self.computing):
            if node not in self.reasons and self._is_read_in_float32(node):
                self.reasons[node] = "its neighbors are in float32"

    def _is_float(self, name: str) -> bool:
        return bool(name) and _is_float(self.graph.types[name])

    def _floats(self, node: Node) -> list[str]:
        """Return the float32 inputs of a node that are not constants."""
        return [n for n in node.inputs if self._is_float(n) and n not in self.graph.static]

    def _named_nodes(self) -> Iterator[Node]:
        """Yield the nodes named by the session option, or the nodes that passes fused them into."""
        for values in self.graph.float32_values:
            node = next((found for name in values if (found := self.graph.producer(name)) is not None), None)
            while node is not None:
                yield node
                node = self.graph.producer(node.inputs[0]) if _family(node.op) == "movement" else None

    def _reason(self, node: Node) -> str:
        """Return why a node stays in float32 whatever its consumers, "" if it may be converted."""
        op, family = node.op, _family(node.op)
        assert isinstance(op, Op)
        floats = self._floats(node)
        listed = family not in _FAMILIES or op.op_type in _OPERATORS or self._sums_squares(node)
        local = family in _LOCAL or (op.op_type in ("MatMul", "Einsum") and self._is_outer(node))
        if self._follows_from_integers(node, floats, local or listed):
            self.derived.update(filter(self._is_float, node.outputs))
            return _DERIVED
        if node in self._named:
            return "the session's options name it"
        if self._caches.intersection(floats) or self._is_cache(node):
            if family in _LOCAL or isinstance(op, CacheOp):
                self._caches.update(node.outputs if family in _LOCAL else node.outputs[1:])
            return "its cache is declared as float32"
        if local and self._wide.intersection(floats):
            self._widen(node, floats)
            return _WIDE
        if listed:
            if op.op_type in _UNBOUNDED:
                self._wide.update(node.outputs)
            return f"{op.op_type} needs float32"
        prepares = self._prepares_inputs(node, floats, local or family == "normalization")
        if prepares:
            self._given.update(node.outputs)
        if wrong := self._wrong_constant(node, op):
            return wrong
        if prepares:
            return "it preprocesses inputs, which are float32"
        if self._quantizes and not self._has_heavy_weights(node):
            return "the model quantizes its activations from float32"
        return "" if self._has_kernel(node, op) else "it has no float16 kernel"

    def _wrong_constant(self, node: Node, op: Op) -> str:
        """Return why a constant of a node cannot be float16, "" if all can."""
        stay = float32_operands(op)
        for i, name in enumerate(node.inputs):
            if i in stay or name not in self.graph.static or not self._is_float(name):
                continue
            most = largest(self.graph, name, self._largest)
            if most > LARGEST:
                self._wide.update(node.outputs)
                self.derived.update(filter(self._is_float, node.outputs))
                return f"its constant '{name}' has {most:.3g}, and float16 ends at {LARGEST:.0f}"
            if 0 < most < (SMALLEST if self._is_bias(op, self.graph.tensor(name)) else SMALLEST_NORMAL):
                return f"its constant '{name}' has nothing above {most:.3g}, which may become 0"
        return ""

    def _is_bias(self, op: Op, kind: TensorType) -> bool:
        """Return whether a constant is an added vector, which loses no more digits than rounding takes from a sum."""
        if isinstance(op, Elementwise):
            return op.op_type in ("Add", "Sub") and kind.size > 1
        return kind.rank <= 1

    def _has_heavy_weights(self, node: Node) -> bool:
        """Return whether a node reads a float32 constant of more than `_HEAVY` bytes."""
        names = (n for n in node.inputs if n in self.graph.static and self._is_float(n))
        return any(self.graph.tensor(n).nbytes > _HEAVY for n in names)

    def _follows_from_integers(self, node: Node, floats: list[str], is_open: bool) -> bool:
        """Return whether the outputs of a node depend on integers or sizes only."""
        if any(self.graph.types[n].is_known for n in node.outputs if n):
            return True
        if floats:
            return is_open and self.derived.issuperset(floats)
        return _family(node.op) in ("creation", "elementwise", "reduction")

    def _prepares_inputs(self, node: Node, floats: list[str], is_light: bool) -> bool:
        """Return whether a node without large weights reads only graph inputs and values preprocessed from them."""
        reads_inputs = all(n in self._given or n in self.graph.inputs for n in floats)
        return is_light and bool(floats) and reads_inputs and not self._has_heavy_weights(node)

    def _widen(self, node: Node, floats: list[str]) -> None:
        """Record the outputs of a node with an out-of-range input, if they may be out of range, too."""
        if node.op.op_type in ("Div", "Mul") and not self._wide.issuperset(floats):
            return  # the result is normalized, so within the range
        made = list(filter(self._is_float, node.outputs))
        self._wide.update(made)
        if not self.derived.isdisjoint(floats):
            self.derived.update(made)

    def _is_outer(self, node: Node) -> bool:
        """Return whether a product has no sum: an inner dimension of 1."""
        return node.op.op_type == "Einsum" or self.graph.tensor(node.inputs[0]).shape[-1:] == (1,)

    def _sums_squares(self, node: Node) -> bool:
        """Return whether a node is a mean of squares or powers, whose sum may overflow float16."""
        source = self.graph.producer(node.inputs[0]) if node.op.op_type == "ReduceMean" else None
        if source is None:
            return False
        return source.op.op_type in _SQUARES or (source.op.op_type == "Mul" and len(set(source.inputs)) == 1)

    def _is_cache(self, node: Node) -> bool:
        """Return whether a node appends to a float32 cache: a graph input, updated as a graph output."""
        op = node.op
        if not isinstance(op, CacheOp):
            return False
        types: Any = [self.graph.types[n] if n else None for n in node.inputs]
        try:
            found = [input for input, _ in op.appends(*types).values()]
            found += [rewritten.input for rewritten in op.rewrites(*types).values()]
        except (Unsupported, ValueNeeded, OrtError):
            return False
        pasts = {node.inputs[i] for i in found if i < len(node.inputs)}
        given = {n for n in pasts if self._is_float(n) and n in self.graph.inputs}
        return bool(given) and not set(self.graph.outputs).isdisjoint(node.outputs)

    def _has_kernel(self, node: Node, op: Op) -> bool:
        """Return whether a node has a float16 kernel."""
        stay = float32_operands(op)
        types = [
            _halved(self.graph.types[n]) if n and i not in stay else self.graph.types.get(n)
            for i, n in enumerate(node.inputs)
        ]
        key: Hashable = None
        if self.graph.sizes is None:
            key = op, tuple(t and (getattr(t, "dtype", None), getattr(t, "shape", None)) for t in types)
        try:
            found = self._kernels.get(key) if key is not None else None
        except TypeError:  # a field of the operator cannot be hashed
            key = found = None
        if found is None:
            found = self._lowers(node, op, types)
            if key is not None:
                self._kernels[key] = found
        return found

    def _lowers(self, node: Node, op: Op, types: list[ValueType | None]) -> bool:
        inputs: Any = types
        try:
            made = op.infer(*inputs)
            if not all(_fits(self.graph.types[n], kind) for n, kind in zip(node.outputs, made, strict=False) if n):
                return False
            if op.alias(*inputs) is None:
                op.lower(self.target, *inputs)
        except (Unsupported, ValueNeeded, OrtError):
            return False
        return True

    def _is_read_in_float32(self, node: Node) -> bool:
        """Return whether a cheap node has float32 consumers only, or lies between float32 nodes and a graph output."""
        simple = isinstance(node.op, Elementwise) or _family(node.op) == "movement"
        readers = [r for n in node.outputs if self._is_float(n) for r in self.graph.consumers(n)]
        if not simple or not all(r in self.reasons or self._reads_in_float32(r) for r in readers):
            return False
        return set(self.graph.outputs).isdisjoint(node.outputs) or all(map(self._is_in_float32, self._floats(node)))

    def _is_in_float32(self, name: str) -> bool:
        """Return whether a value is a graph input or the output of a node that stays in float32."""
        maker = self.graph.producer(name)
        return maker is None or maker in self.reasons

    def _reads_in_float32(self, node: Node) -> bool:
        """Return whether a node has no float32 output: a comparison, or a conversion to integers."""
        return not any(self._is_float(n) for n in node.outputs) and not is_static(self.graph, node)


def _is_float(kind: ValueType) -> bool:
    return isinstance(kind, TensorType) and kind.dtype is DType.FLOAT


def _halved(kind: ValueType) -> ValueType:
    return TensorType(DType.FLOAT16, kind.shape, kind.source, kind.name) if _is_float(kind) else kind  # type: ignore[union-attr]


def _fits(before: ValueType, now: ValueType) -> bool:
    """Return whether a type is unchanged, apart from float16 in the place of float32."""
    if not _is_float(before):
        return before == now
    return isinstance(now, TensorType) and now.dtype in (DType.FLOAT, DType.FLOAT16) and now.rank == before.rank  # type: ignore[union-attr]
