"""One dispatch as a function: a kernel, with its parameters, memory and grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyruntime.kernels.wasm import syntax as ast
from pyruntime.kernels.wasm.calls import Frame
from pyruntime.kernels.wasm.code import const_i32, get, op
from pyruntime.kernels.wasm.operators import scalar
from pyruntime.kernels.wasm.parser import parse
from pyruntime.kernels.wasm.places import RESERVED, NeedsMemory
from pyruntime.kernels.wasm.statements import Statements
from pyruntime.kernels.wasm.values import U32, Const, Memory, Parts, Unsupported, Value, Vector, stable, zero

__all__ = ["RESERVED", "Compiled", "Dispatch", "compile_dispatch"]

_PLACES = frozenset(("workgroup_id", "local_invocation_id", "local_invocation_index"))


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A kernel with everything that is known before a run.

    Attributes:
        text: WGSL.
        buffers: the address of each storage binding, in their order. Addresses begin at `RESERVED`.
        params: the bytes of the uniform binding.
        grid: workgroups.
        scratch: the address of memory for arrays of the kernel's own.
    """

    text: str
    buffers: Sequence[int]
    params: bytes
    grid: tuple[int, int, int]
    scratch: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """A function's body, and the end of the memory for arrays that it uses."""

    body: bytes
    end: int


def compile_dispatch(dispatch: Dispatch) -> Compiled:
    """Compile a dispatch into a function without parameters.

    Raises:
        Unsupported: the kernel has barriers between invocations, or WGSL that is not compiled here.
    """
    in_memory = set[str]()
    while True:
        kernel = _Kernel(dispatch, in_memory)
        try:
            return Compiled(kernel.function(), kernel.scratch)
        except NeedsMemory as needed:
            in_memory.add(needed.name)


class _Kernel(Statements):
    """A kernel's entry point, with loops over its invocations."""

    def __init__(self, dispatch: Dispatch, in_memory: set[str]) -> None:
        try:
            source = parse(dispatch.text)
        except ValueError as error:
            raise Unsupported(str(error)) from None
        super().__init__(source, in_memory, dispatch.scratch)
        self.dispatch = dispatch

    def function(self) -> bytes:
        """The function's body."""
        entry = next(f for f in self.source.functions.values() if f.workgroup is not None)
        size = [self._number(part) for part in entry.workgroup or ()]
        size += [1] * (3 - len(size))
        self.invocations = math.prod(size)
        buffers = iter(self.dispatch.buffers)
        for variable in sorted(self.source.globals, key=lambda g: g.binding):
            if variable.space == "storage":
                self.scopes[0][variable.name] = Memory(self.type(variable.type), Const(U32, 0), next(buffers))
            elif variable.space == "uniform":
                params = self.dispatch.params
                self.scopes[0][variable.name] = Memory(self.type(variable.type), Const(U32, 0), 0, params)
        self._over_grid(entry, size)
        return self.body.finished()

    def _number(self, e: ast.Expr) -> int:
        value = self.expr(e)
        if not isinstance(value, Const):
            raise Unsupported("a workgroup size that is not constant")
        return int(value.value)

    def _over_grid(self, entry: ast.Function, size: Sequence[int]) -> None:
        grid = self.dispatch.grid
        if _PLACES.intersection(entry.builtins):
            self._over([*size, *grid], lambda ids: self._invocation(entry, self._placed(size, ids[:3], ids[3:])))
        else:
            whole = [g * s for g, s in zip(grid, size, strict=True)]
            self._over(whole, lambda ids: self._invocation(entry, {"global_invocation_id": _vector(ids)}))

    def _over(self, counts: Sequence[int], write: Callable[[list[Value]], None]) -> None:
        """Loops over numbers below `counts`, the first of them innermost."""
        if not counts:
            write([])
            return
        *inner, count = counts
        if count == 1:
            self._over(inner, lambda ids: write([*ids, Const(U32, 0)]))
            return
        counter = self.local(U32).number
        self.body.set(counter, const_i32(0))
        top = self.body.open("loop")
        self._over(inner, lambda ids: write([*ids, stable(U32, counter)]))
        self.body.set(counter, get(counter) + const_i32(1) + op("i32.add"))
        self.body.branch(top, get(counter) + const_i32(count) + op("i32.lt_u"))
        self.body.close()

    @staticmethod
    def _placed(size: Sequence[int], local: Sequence[Value], group: Sequence[Value]) -> dict[str, Value]:
        """The built-in values of an invocation of a workgroup."""
        index = scalar("+", local[1], scalar("*", local[2], Const(U32, size[1])))
        index = scalar("+", local[0], scalar("*", index, Const(U32, size[0])))
        whole = [scalar("+", scalar("*", g, Const(U32, s)), n) for g, s, n in zip(group, size, local, strict=True)]
        return {
            "workgroup_id": _vector(group),
            "local_invocation_id": _vector(local),
            "local_invocation_index": index,
            "global_invocation_id": _vector(whole),
        }

    def _invocation(self, entry: ast.Function, known: dict[str, Value]) -> None:
        known["num_workgroups"] = _vector([Const(U32, n) for n in self.dispatch.grid])
        for variable in self.source.globals:
            if variable.space in ("private", "workgroup"):
                kind = self.type(variable.type)
                place = self.variable(kind, variable.name)
                self.scopes[0][variable.name] = place
                if variable.space == "private":
                    self.store(place, self.expr(variable.value) if variable.value is not None else zero(kind))
        self.frames.append(Frame(self.body.open("block"), None))
        with self.scope():
            for (name, _), builtin in zip(entry.parameters, entry.builtins, strict=True):
                self.scopes[-1][name] = self.bind(known[builtin])
            self.run(entry.body.body)
        self.frames.pop()
        self.body.close()


def _vector(parts: Sequence[Value]) -> Parts:
    return Parts(Vector(3, U32), tuple(parts))
