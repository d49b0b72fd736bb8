"""Calls: WGSL has no recursion, so every function is written where it is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache

from pyruntime.kernels.wasm import syntax as ast
from pyruntime.kernels.wasm.builtins import BUILTINS, LIBRARY
from pyruntime.kernels.wasm.expressions import Expressions
from pyruntime.kernels.wasm.operators import choose, scalar
from pyruntime.kernels.wasm.parser import parse
from pyruntime.kernels.wasm.values import (
    BOOL,
    SCALARS,
    Const,
    Parts,
    Place,
    Scalar,
    Type,
    Unsupported,
    Value,
    Vector,
    scalar_type,
)
from pyruntime.kernels.wgsl.library import link
from pyruntime.kernels.wgsl.module import BARRIERS, Module

__all__ = ["Calls", "Frame", "contains"]

_NOTHING = Const(BOOL, 0)
_ATOMIC = {"atomicAdd": "+", "atomicSub": "-", "atomicAnd": "&", "atomicOr": "|", "atomicXor": "^"}


@dataclass(frozen=True, slots=True)
class Frame:
    """A function that returns from several places: the end of its block, and where its result goes."""

    label: int
    result: Place | None


@lru_cache(maxsize=16)
def _library(name: str) -> ast.Source:
    """The WGSL of a built-in function, with what it needs of `shaders/lib/`."""
    return parse(link(Module.of(LIBRARY[name])))


class Calls(Expressions):
    """Results of calls.

    Attributes:
        invocations: of a workgroup. frames: functions that are being written, the innermost last.
        loops: labels of the ends of loops, and of their bodies, in the function that is being written.
    """

    invocations = 1

    def __init__(self, source: ast.Source, in_memory: set[str], scratch: int) -> None:
        super().__init__(source, in_memory, scratch)
        self.frames: list[Frame] = []
        self.loops: list[tuple[int, int]] = []

    def run(self, body: Sequence[ast.Statement]) -> None:
        """Write statements."""
        raise NotImplementedError

    def call(self, e: ast.Call) -> Value:
        """Emit a call of a function of the shader or of WGSL, and return its value; barriers have none.

        Raises:
            Unsupported: a function without a counterpart, or a barrier between several invocations.
        """
        name = e.callee.name
        if name in BARRIERS:
            if self.invocations > 1:
                raise Unsupported(f"{name}() in a workgroup of {self.invocations} invocations")
            return _NOTHING
        if name.startswith("atomic"):
            return self._atomic(name, e.arguments)
        given = [self.expr(a) for a in e.arguments]
        if name in self.source.functions:
            return self.inline(self.source.functions[name], given)
        if name == "bitcast" and isinstance(e.callee.arguments[0], ast.TypeName):
            return self.bitcast(self.type(e.callee.arguments[0]), self.concrete(given[0]))
        if name in BUILTINS:
            return BUILTINS[name](self, given)
        if name in LIBRARY:
            return self._from_library(name, given)
        if name in SCALARS or name in self.source.structs or name in self.source.aliases or name[:3] in ("vec", "arr"):
            return self.construct(e.callee, given)
        raise Unsupported(f"the WGSL function {name}")

    def _atomic(self, name: str, arguments: Sequence[ast.Expr]) -> Value:
        """An atomic function: one invocation runs at a time. The result is what was there."""
        pointer = arguments[0]
        place = self.place(pointer.operand) if isinstance(pointer, ast.Unary) and pointer.sign == "&" else None
        if place is None:
            raise Unsupported(f"{name}() of something other than an element's address")
        before = self.bind(self.load(place))
        if name == "atomicLoad":
            return before
        given = self.bind(self.as_type(self.expr(arguments[1]), place.type))
        if name in ("atomicMax", "atomicMin"):
            self.store(place, choose(before, given, scalar(">" if name == "atomicMax" else "<", given, before)))
        elif name in ("atomicStore", "atomicExchange"):
            self.store(place, given)
        elif name in _ATOMIC:
            self.store(place, scalar(_ATOMIC[name], before, given))
        else:
            raise Unsupported(f"the WGSL function {name}")
        return before

    def _from_library(self, name: str, given: Sequence[Value]) -> Value:
        """A built-in function that is WGSL itself; of vectors one by one, unless it takes a vector."""
        source = _library(name)
        function = source.functions[f"{name}_of"]
        kinds = [self.type(kind) for _, kind in function.parameters]
        if isinstance(kinds[0], Scalar) and any(isinstance(v.type, Vector) for v in given):
            rows = [self.parts(v) for v in self.unify(given)]
            lanes = [self._from_library(name, some) for some in zip(*rows, strict=True)]
            return Parts(Vector(len(lanes), scalar_type(lanes[0].type)), tuple(lanes))
        own, self.source = self.source, source
        scopes, self.scopes = self.scopes, [{}]
        made = self.bind(self.inline(function, [self.as_type(v, k) for v, k in zip(given, kinds, strict=True)]))
        self.source, self.scopes = own, scopes
        return made

    def inline(self, function: ast.Function, given: Sequence[Value]) -> Value:
        """Write a function with these arguments; returns its result."""
        bound = {
            name: self.bind(self.as_type(value, self.type(kind)))
            for (name, kind), value in zip(function.parameters, given, strict=True)
        }
        scopes, self.scopes = self.scopes, [self.scopes[0], {**bound}]
        loops, self.loops = self.loops, []
        made = self._result(function)
        self.scopes, self.loops = scopes, loops
        return made

    def _result(self, function: ast.Function) -> Value:
        result = self.type(function.result) if function.result is not None else None
        *rest, last = function.body.body or (ast.Return(None),)
        if isinstance(last, ast.Return) and not any(contains(s, ast.Return) for s in rest):
            self.run(rest)
            return self.as_type(self.expr(last.value), result) if last.value and result else _NOTHING
        if result is not None and self._is_choice(function):
            return self._choice(function.body.body, result)
        place = self.variable(result, "result") if result is not None else None
        self.frames.append(Frame(self.body.open("block"), place))
        self.run(function.body.body)
        self.body.close()
        self.frames.pop()
        return self.load(place) if place is not None else _NOTHING

    def _choice(self, body: Sequence[ast.Statement], result: Type) -> Value:
        """The result of `if (a) { return x; } return y;` without a branch."""
        first, *rest = body
        if isinstance(first, ast.If) and isinstance(first.yes.body[0], ast.Return) and first.yes.body[0].value:
            test = self.expr(first.condition)
            yes = self.as_type(self.expr(first.yes.body[0].value), result)
            no = self._choice(rest, result)
            return choose(self.bind(no), self.bind(yes), test)
        assert isinstance(first, ast.Return)
        assert first.value is not None
        return self.as_type(self.expr(first.value), result)

    def _is_choice(self, function: ast.Function) -> bool:
        """Whether all ways through a function may be computed: returns of numbers that read no memory."""
        *tests, _ = function.body.body
        for test in tests:
            if not isinstance(test, ast.If) or test.no.body or len(test.yes.body) != 1:
                return False
            if not isinstance(test.yes.body[0], ast.Return):
                return False
        scalar_result = function.result is not None and isinstance(self.type(function.result), Scalar)
        return scalar_result and self._reads_nothing(function.body)

    def _reads_nothing(self, node: object) -> bool:
        """Whether a syntax tree has no index, and calls only functions of numbers that have none."""
        if isinstance(node, ast.Index):
            return False
        if isinstance(node, ast.Call):
            name = node.callee.name
            known = self.source.functions.get(name)
            if known is not None:
                simple = all(isinstance(s, ast.Return | ast.Declare | ast.If) for s in known.body.body)
                return simple and self._reads_nothing(known.body) and self._reads_nothing(node.arguments)
            return name in (*SCALARS, "bitcast", *BUILTINS) and self._reads_nothing(node.arguments)
        if isinstance(node, tuple):
            return all(map(self._reads_nothing, node))
        return not is_dataclass(node) or all(self._reads_nothing(getattr(node, f.name)) for f in fields(node))


def contains(node: object, kind: type) -> bool:
    """Whether a syntax tree has a node of this kind."""
    if isinstance(node, kind):
        return True
    if isinstance(node, tuple):
        return any(contains(n, kind) for n in node)
    return is_dataclass(node) and any(contains(getattr(node, f.name), kind) for f in fields(node))
