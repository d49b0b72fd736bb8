"""What nodes are lowered to: each problem once in a stage, however many of its nodes have it.

Models repeat their layers, and `Op.lower` looks at nothing but the operator and the types it is given. Where it asked
for the value of an input, what it gave is that node's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from pyruntime.ir import DType, TensorType, upper
from pyruntime.kernels import Dispatch, Kernel, Role, Target
from pyruntime.kernels.ir.node import for_node
from pyruntime.kernels.legalize import in_parts, legalize
from pyruntime.kernels.selection.candidates import Choices, Kernels, Noted
from pyruntime.kernels.wgsl.module import BARRIERS, CUSTOM
from pyruntime.ops.base import Op
from pyruntime.ops.fused.repeat import Repeat

__all__ = ["Lowered", "Lowerings"]


class Lowered(NamedTuple):
    """What nodes of one problem have in common.

    Attributes:
        choices: what kernels were chosen for.
        reads: the numbers of the inputs that are read.
        too_large: why the device cannot run the dispatches; "" where it can.
    """

    dispatches: tuple[Dispatch, ...]
    choices: tuple[Noted, ...]
    reads: tuple[int, ...]
    too_large: str


class Lowerings:
    """Lowers nodes for a device.

    What it keeps has the types of the first node of its kind, which know the graph's constants: it must not outlive it.

    Args:
        shared: equal problems are lowered once. Not where types have Dims, which are not compared without a trace.
        kernels: those of the plans made before.
    """

    def __init__(self, target: Target, shared: bool = True, kernels: Kernels | None = None) -> None:
        self.target = target
        self._shared = shared
        self._known: dict[Hashable, Lowered] = {}
        self._kernels = Kernels(kernels, target.is_software) if target.allows("shared_kernels") else None

    def key(self, op: Op, types: Sequence[TensorType | None]) -> Hashable:
        """The same for nodes that are one problem; None for a node of its own."""
        key = (exact(op), *map(_kind, types)) if self._shared and op.pure else None
        try:
            hash(key)
        except TypeError:  # a field of the operator that cannot be compared
            return None
        return key

    def of(self, op: Op, types: Sequence[TensorType | None], key: Hashable = ..., times: int = 1) -> Lowered:
        """The dispatches of an operator on inputs of these types, those that have nothing to do left out.

        Args:
            key: what `key` says of them, where it was asked. times: how many nodes have it.

        Raises:
            Unsupported, ValueNeeded: see `Op.lower`.
        """
        if key is ...:
            key = self.key(op, types)
        found = self._known.get(key) if key is not None else None
        if found is None:
            looked: list[str] = []
            found = self._lower(op, [_watched(t, looked) if key is not None else t for t in types], times)
            if key is not None and not looked:
                self._known[key] = found
        return found

    def _lower(self, op: Op, types: Sequence[TensorType | None], times: int) -> Lowered:
        target, limits = self.target, self.target.limits
        while True:
            choices = Choices(self._kernels, op.title, times)
            dispatches = op.lower(for_node(target, choices=choices), *types)
            if isinstance(op, Repeat):  # its nodes' dispatches are legal; what moves rows is not
                dispatches = tuple(in_parts(self.target, d) for d in dispatches)
            else:
                dispatches = legalize(self.target, dispatches)
            made = tuple(d for d in dispatches if not d.is_empty)
            buffers = target.limits.storage_buffers // 2
            if buffers < 2 or all(d.bound <= max(limits.storage_buffers, len(d.operands)) for d in made):
                break
            # Operators such as Concat bind as many tensors as the device takes, and some of these are bound in parts.
            target = replace(target, limits=replace(limits, storage_buffers=buffers))
        if op.is_custom:
            made = tuple(replace(d, kernel=_marked(d.kernel)) for d in made)
        reads = dict.fromkeys(o.index for d in made for o in d.operands if o.role is Role.INPUT)
        return Lowered(made, tuple(choices.problems), tuple(reads), _over_limit(made, self.target))


def _marked(kernel: Kernel) -> Kernel:
    """A kernel whose WGSL says that it is a user's."""
    return replace(kernel, body=f"{kernel.body}\n\n{CUSTOM}")


def exact(value: Any) -> Hashable:
    """What tells values apart, those too that compare equal: 0.0 and -0.0, 1 and True."""
    kind: Any = type(value)
    if kind is tuple:
        return tuple(map(exact, value))
    if kind is float:
        return float.hex(value)
    read = _reader(kind)
    return (kind, value) if read is None else (kind, *map(exact, read(value)))


@lru_cache(maxsize=1024)
def _reader(kind: Any) -> Callable[[Any], tuple[Any, ...]] | None:
    """What gives the fields of a dataclass whose objects are what these hold; None for other types."""
    if not is_dataclass(kind) or kind.__eq__ is object.__eq__:
        return None
    names = [f.name for f in fields(kind)]
    read = attrgetter(*names) if names else lambda _: ()
    return read if len(names) != 1 else lambda value: (read(value),)


def _over_limit(dispatches: Iterable[Dispatch], target: Target) -> str:
    """Why the device cannot run these, or nothing."""
    limits = target.limits
    for dispatch in dispatches:
        name, bound = dispatch.kernel.name, dispatch.bound
        if any(b.dtype is DType.DOUBLE for b in dispatch.kernel.bindings):
            return "float64 is exact on the host"
        for b in dispatch.kernel.bindings:
            if not 8 <= b.dtype.bits <= 32 and "load4" in dispatch.kernel.accessors(b.name):
                return f"{name} reads four elements at a time, which is not for {b.dtype.onnx_name}"
        module = dispatch.kernel.module
        if target.is_serial and module.invocations != 1 and not module.names.keys().isdisjoint(BARRIERS):
            return f"{name} has barriers, which WebAssembly has not"
        if module.workgroup_bytes > limits.workgroup_bytes:
            taken = f"{module.workgroup_bytes:,} bytes of workgroup memory"
            return f"{name} takes {taken}; the device has {limits.workgroup_bytes:,}"
        if module.invocations > limits.invocations:
            return f"{name} has workgroups of {module.invocations} invocations; the device takes {limits.invocations}"
        if module.workgroup_size[0] > limits.workgroup_x:
            return f"{name} has workgroups of {module.workgroup_size[0]} in x; the device takes {limits.workgroup_x}"
        for operand, b in zip(dispatch.operands, dispatch.kernel.bindings, strict=True):
            nbytes = upper(operand.type.nbytes)
            if nbytes > limits.buffer_bytes:
                return f"a tensor of {nbytes:,} bytes exceeds the device's buffer limit of {limits.buffer_bytes:,}"
            if nbytes > limits.binding_bytes and b.parts == 1:
                return f"a tensor of {nbytes:,} bytes exceeds the device's binding limit of {limits.binding_bytes:,}"
        if bound > limits.storage_buffers:
            what = "tensors" if bound == len(dispatch.operands) else "buffers, as tensors above a binding are in parts"
            return f"{name} binds {bound} {what}; the device takes {limits.storage_buffers}"
        if max(map(upper, dispatch.grid)) > limits.workgroups:
            return f"{name} needs {dispatch.grid} workgroups; the device takes {limits.workgroups} a dimension"
    return ""


def _kind(kind: TensorType | None) -> Hashable:
    return None if kind is None else (kind.dtype, kind.shape, kind.source is None)


def _watched(kind: TensorType | None, looked: list[str]) -> TensorType | None:
    """The same type; `looked` hears when its value is asked for."""
    if kind is None or kind.source is None:
        return kind
    source, name = kind.source, kind.name

    def read() -> Any:
        looked.append(name)
        return source()

    return TensorType(kind.dtype, kind.shape, read, name)
