"""From placed nodes to segments: what the GPU and the host do in turn, what crosses between, how long values live."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from pyruntime.compiler.lifetimes import Lifetimes, Step
from pyruntime.compiler.placement import Placed
from pyruntime.compiler.plan import Assignment, HostStep
from pyruntime.ir import Constant, Node, TensorType, TypedGraph, ValueType, upper
from pyruntime.kernels import Dispatch, Operand, Role, Target, strided_copy
from pyruntime.kernels.ir.dispatch import Repetition
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.kernels.legalize import in_parts
from pyruntime.ops.caches import overwritten

__all__ = ["Segment", "Segmentation"]


@dataclass(slots=True)
class Segment:
    """Uploads, dispatches and downloads of the GPU without a host step between; `start`: when it begins."""

    uploads: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    downloads: list[str] = field(default_factory=list)
    start: int = 0


class Segmentation:
    """What runs when, on the GPU and on the host, and how long each value lives.

    Args:
        resident_outputs: outputs to leave on the GPU, in external tensors.

    Attributes:
        segments: GPU segments and host steps in order.
        constants: values that are constants; external: values in separate memory, each with its number.
        views: values that are the bytes of another one, with that.
        time: steps so far.
    """

    def __init__(self, graph: TypedGraph, target: Target, resident_outputs: set[str]) -> None:
        self.graph, self.target = graph, target
        self.constants = dict(graph.constants)
        self._resident_outputs = resident_outputs - graph.states.keys()
        self.resident = [*sorted(graph.resident), *sorted(self._resident_outputs - graph.resident)]
        self.external = {name: i for i, name in enumerate(self.resident)}
        self.on_host = {n for n in graph.inputs if n not in graph.resident}
        self._on_gpu: set[str] = {*graph.resident}
        self.lifetimes = Lifetimes({*self.constants, *self.external})
        self.segments: list[Segment | HostStep] = []
        self.assignments: list[Assignment] = []
        self.views: dict[str, str] = {}
        self.time = 0

    def add(self, ordered: Sequence[Placed], idle: Sequence[Placed]) -> None:
        """Add all nodes: those that run in their order, then the others, which are for reports alone."""
        host_reads = {n for p in ordered if p.where in ("host", "forward") for n in p.reads}
        wanted = {n for n in self.graph.outputs if n not in self._resident_outputs and n not in self.graph.states}
        for placed in ordered:
            self._assign(placed)
            if placed.where in ("host", "forward"):
                self._host(placed)
            elif placed.alias is not None:
                self._view(placed, host_reads | wanted)
            else:
                self._gpu(placed, host_reads | wanted)
        for name in self.graph.outputs:
            self._finish(name)
        self._close()
        for placed in idle:
            self._assign(placed)

    @property
    def steps(self) -> list[Step]:
        """Return the dispatches of all GPU segments in order."""
        return [s for segment in self.segments if isinstance(segment, Segment) for s in segment.steps]

    def is_unread(self, name: str) -> bool:
        """Whether no step reads the bytes of an input."""
        if name in self.external or not isinstance(self.graph.types[name], TensorType):
            return False
        on_host = (s for s in self.segments if isinstance(s, HostStep))
        uploads = (s.uploads for s in self.segments if isinstance(s, Segment))
        return not any(name in names for names in (*uploads, *(s.node.inputs for s in on_host)))

    def _assign(self, placed: Placed) -> None:
        op = placed.node.op
        where = "none" if placed.where == "forward" else placed.where
        name = placed.node.name or next(filter(None, placed.node.outputs), "")
        outputs = tuple(replace(t, source=None) if t.is_known else t for t in placed.outputs)
        self.assignments.append(
            Assignment(name, op.title, op.domain, where, placed.reason, placed.kernels, outputs, placed.choices)
        )

    def _segment(self) -> Segment:
        """The GPU segment being filled."""
        if not self.segments or isinstance(self.segments[-1], HostStep):
            self.segments.append(Segment(start=self.time))
        last = self.segments[-1]
        assert isinstance(last, Segment)
        return last

    def _close(self) -> None:
        """End the open segment: its downloads happen one step after its last dispatch."""
        if self.segments and isinstance(self.segments[-1], Segment):
            for name in self.segments[-1].downloads:
                self.lifetimes.use(name, self.time)
            self.time += 1

    def _to_gpu(self, name: str) -> None:
        """Add an upload of `name` to the segment, unless the GPU has it."""
        if name in self._on_gpu or (name in self.constants and name not in self.external):
            return
        segment = self._segment()
        segment.uploads.append(name)
        self.lifetimes.define(name, upper(self.graph.tensor(name).nbytes), segment.start)
        self._on_gpu.add(name)

    def _to_host(self, name: str) -> None:
        """Make sure the host has `name` before its next step."""
        if name in self.on_host or name in self.constants or name in self.graph.static:
            return
        segment = next(s for s in reversed(self.segments) if isinstance(s, Segment)) if self.segments else None
        if segment is None:
            segment = self._segment()
        segment.downloads.append(name)
        self.on_host.add(name)

    def _host(self, placed: Placed) -> None:
        if self.segments and isinstance(self.segments[-1], HostStep):
            late = [n for n in placed.reads if n in self._on_gpu and n not in self.on_host]
            if late:
                self._segment()
        for name in placed.reads:
            self._to_host(name)
        self._close()
        self.segments.append(HostStep(placed.node, placed.types, placed.outputs))
        self.on_host.update(n for n in placed.node.outputs if n)

    def _view(self, placed: Placed, host_wants: set[str]) -> None:
        source, result = placed.reads[0], placed.node.outputs[0]
        self._to_gpu(source)
        if result in self.external:
            self._copy(source, result, len(self.assignments) - 1)
        else:
            self._alias(source, result)
        self._on_gpu.add(result)
        if result in host_wants:
            self._segment()
            self._to_host(result)

    def _alias(self, source: str, result: str) -> None:
        """`result` is the bytes of `source`, wherever these are."""
        self.views[result] = source
        if source in self.constants:
            self.constants[result] = _retyped(self.constants[source], self.graph.tensor(result))
            self.lifetimes.fixed.add(result)
        elif source in self.external:
            self.external[result] = self.external[source]
            self.lifetimes.fixed.add(result)
        else:
            self.lifetimes.alias(result, source)

    def _copy(self, source: str, result: str, node: int) -> None:
        kind = self.graph.tensor(result)
        operands = Operand(Role.OUTPUT, 0, kind), Operand(Role.INPUT, 0, self.graph.tensor(source))
        flat = replace(kind, shape=(kind.size,))
        y, x = (replace(o, type=flat) for o in operands)
        copy = in_parts(self.target, strided_copy(self.target, "copy", y, x, 0, contiguous(flat.shape)))
        self._dispatch(copy, [source, result], node)

    def _gpu(self, placed: Placed, host_wants: set[str]) -> None:
        for name in placed.reads:
            self._to_gpu(name)
        self._segment()
        node = len(self.assignments) - 1
        for output, given in self._overwritten(placed.node).items():
            self._alias(given, output)
        open_loops: list[tuple[Repetition, int]] = []
        for dispatch in placed.dispatches:
            self._enter(open_loops, dispatch.loops)
            values = [self._value(placed, o, node) for o in dispatch.operands]
            self._dispatch(dispatch, values, node)
        self._enter(open_loops, ())
        for name in placed.node.outputs:
            if not name or name in self.external:
                continue
            self.lifetimes.define(name, upper(self.graph.tensor(name).nbytes), max(self.time - 1, 0))
            self._on_gpu.add(name)
            if name in host_wants:
                self._to_host(name)
        self._on_gpu.update(n for n in placed.node.outputs if n)

    def _enter(self, inside: list[tuple[Repetition, int]], loops: Sequence[Repetition]) -> None:
        """Leave the loops of `inside`, each with the time of its begin, that are none of `loops`, and enter the others.

        What was made before a loop, and is used in it, is kept until all its iterations are done.
        """
        common = 0
        while common < min(len(inside), len(loops)) and inside[common][0] is loops[common]:
            common += 1
        while len(inside) > common:
            _, begin = inside.pop()
            steps = (step for step in self._segment().steps if step.time >= begin)
            for name in {name for step in steps for name in step.values}:
                if self.lifetimes.begin(name) < begin:
                    self.lifetimes.use(name, self.time)
            self.time += 1
        for loop in loops[common:]:
            self.time += 1
            inside.append((loop, self.time))

    @staticmethod
    def _overwritten(node: Node) -> dict[str, str]:
        """Outputs that are the memory of an input, which dispatches write to."""
        pairs = overwritten(node.op).items()
        return {node.outputs[output]: node.inputs[given] for output, given in pairs if node.outputs[output]}

    def _value(self, placed: Placed, operand: Operand, node: int) -> str:
        """The name of the value an operand is; scratch and the operator's own constants get names here."""
        if operand.role is Role.INPUT:
            return placed.node.inputs[operand.index]
        if operand.role is Role.OUTPUT and operand.index < len(placed.node.outputs):
            name = placed.node.outputs[operand.index]
            if name:
                return name
        name = self._unlike_any(f"{node}:{operand.role.value}{operand.index}")
        if operand.role is Role.CONSTANT and name not in self.constants:
            assert operand.data is not None
            self.constants[name] = operand.data
            self.lifetimes.fixed.add(name)
        return name

    def _unlike_any(self, name: str) -> str:
        """A name that no value of the model has: models may call theirs anything."""
        while name in self.graph.types:
            name = f":{name}"
        return name

    def _dispatch(self, dispatch: Dispatch, values: list[str], node: int) -> None:
        values = self._separate(dispatch, values, node)
        segment = self._segment()
        for name, operand, binding in zip(values, dispatch.operands, dispatch.kernel.bindings, strict=True):
            if binding.write or operand.role in (Role.SCRATCH, Role.OUTPUT):  # nothing writes those without elements
                self.lifetimes.define(name, upper(operand.type.nbytes), self.time)
            self.lifetimes.use(name, self.time)
        segment.steps.append(Step(dispatch, tuple(values), self.time, node))
        self.time += 1

    def _bytes(self, value: str) -> Hashable:
        """What tells bytes apart: two values of one answer are the same memory."""
        constant = self.constants.get(value) if value not in self.external else None
        return self.lifetimes.root(value) if constant is None else constant.key

    def _separate(self, dispatch: Dispatch, values: list[str], node: int) -> list[str]:
        """Copy an operand that is bound twice by a kernel whose two arrays cannot be one."""
        roots = [self._bytes(v) for v in values]
        if len(set(roots)) == len(roots):
            return values
        apart = self._apart(dispatch, values)
        for i, root in enumerate(roots):
            first = i if i in apart else roots.index(root)
            if first != i and not dispatch.kernel.can_share(first, i) and not dispatch.kernel.bindings[i].write:
                kind = dispatch.operands[i].type
                name = self._unlike_any(f"{node}:copy{i}@{self.time}")
                flat = replace(kind, shape=(kind.size,), source=None)
                y, x = Operand(Role.OUTPUT, 0, flat), Operand(Role.INPUT, 0, flat)
                copy = in_parts(self.target, strided_copy(self.target, "copy", y, x, 0, (1,)))
                copy = replace(copy, loops=dispatch.loops)
                self._dispatch(copy, [values[i], name], node)
                values = [*values[:i], name, *values[i + 1 :]]
                roots[i] = name
        return values

    def _apart(self, dispatch: Dispatch, values: list[str]) -> frozenset[int]:
        """Operands that are bound for themselves, whatever else is the same memory: see `Kernel.apart`."""
        if not self.target.allows("read_only_constants"):
            return frozenset()
        constants = (i for i, v in enumerate(values) if v in self.constants and v not in self.external)
        return dispatch.kernel.apart(frozenset(constants))

    def _finish(self, name: str) -> None:
        """A graph output: on the host at the end, or left on the GPU."""
        if name in self.graph.states:
            return
        if name in self._resident_outputs:
            if name not in self._on_gpu:
                self._to_gpu(name)
        elif name not in self.on_host and name in self._on_gpu:
            self._segment()
            self._to_host(name)


def _retyped(constant: Constant, kind: ValueType) -> Constant:
    """Return the bytes of a constant with another shape, without copying."""
    assert isinstance(kind, TensorType)
    return Constant(TensorType(kind.dtype, kind.shape), constant.source, constant.offset)
