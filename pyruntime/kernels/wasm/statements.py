"""Statements of WGSL as instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from pyruntime.kernels.wasm import syntax as ast
from pyruntime.kernels.wasm.calls import Calls
from pyruntime.kernels.wasm.code import op
from pyruntime.kernels.wasm.operators import scalar
from pyruntime.kernels.wasm.values import Code, Const, Memory, Unsupported, Value, code_of, zero

__all__ = ["Statements"]

MOST_TRIPS = 8
"""Trips of a loop that is written out."""


class Statements(Calls):
    """Writes statements into the function's body."""

    def run(self, body: Sequence[ast.Statement]) -> None:
        """Write statements up to one after which none is reached."""
        for statement in body:
            self._statement(statement)
            if isinstance(statement, ast.Return | ast.Break | ast.Continue):
                break

    def _statement(self, s: ast.Statement) -> None:
        if isinstance(s, ast.Declare):
            self._declare(s)
        elif isinstance(s, ast.Assign):
            self._assign(s)
        elif isinstance(s, ast.Evaluate):
            self.expr(s.call)
        elif isinstance(s, ast.Block):
            with self.scope():
                self.run(s.body)
        elif isinstance(s, ast.If):
            self._if(s)
        elif isinstance(s, ast.Loop):
            with self.scope():
                if not self._written_out(s):
                    self._loop(s)
        elif isinstance(s, ast.Switch):
            self._switch(s)
        elif isinstance(s, ast.Return):
            frame = self.frames[-1]
            if s.value is not None and frame.result is not None:
                self.store(frame.result, self.expr(s.value))
            self.body.branch(frame.label)
        else:
            end, trip = self.loops[-1]
            self.body.branch(end if isinstance(s, ast.Break) else trip)

    def _declare(self, s: ast.Declare) -> None:
        kind = self.type(s.type) if s.type is not None else None
        value = self.expr(s.value) if s.value is not None else None
        if value is not None and kind is not None:
            value = self.as_type(value, kind)
        elif value is not None and s.word != "const":
            value = self.concrete(value)
        if s.word != "var":
            if value is None:
                raise Unsupported(f"{s.word} {s.name} without a value")
            self.scopes[-1][s.name] = self.bind(value)
            return
        if kind is None:
            if value is None:
                raise Unsupported(f"var {s.name} without a type and a value")
            kind = value.type
        place = self.variable(kind, s.name)
        self.store(place, value if value is not None else zero(kind))
        self.scopes[-1][s.name] = place

    def _assign(self, s: ast.Assign) -> None:
        if s.target == ast.Name("_"):
            self.expr(s.value)
            return
        place = self.place(s.target)
        if place is None:
            raise Unsupported(f"an assignment to {s.target}")
        if isinstance(place, Memory):
            place = self.bound(place)
        self.store(place, self.expr(s.value))

    def _if(self, s: ast.If) -> None:
        test = self.expr(s.condition)
        if isinstance(test, Const):
            self._statement(s.yes if test.value else s.no)
            return
        self.body.code += code_of(test)
        self.body.open("if")
        self._statement(s.yes)
        if s.no.body:
            self.body.code += op("else")
            self._statement(s.no)
        self.body.close()

    def _loop(self, s: ast.Loop) -> None:
        if s.start is not None:
            self._statement(s.start)
        end, top = self.body.open("block"), self.body.open("loop")
        if s.condition is not None:
            self.body.branch(end, code_of(self.expr(s.condition)) + op("i32.eqz"))
        self.loops.append((end, self.body.open("block")))
        self._statement(s.body)
        self.loops.pop()
        self.body.close()
        if s.update is not None:
            self._statement(s.update)
        self.body.branch(top)
        self.body.close()
        self.body.close()

    def _written_out(self, s: ast.Loop) -> bool:
        """Write out a loop of few trips whose counter is known in each; False where it is none."""
        trips = self._trips(s)
        if trips is None or not isinstance(s.start, ast.Declare):
            return False
        for value in trips:
            self.scopes[-1][s.start.name] = value
            self._statement(s.body)
        return True

    def _trips(self, s: ast.Loop) -> list[Const] | None:
        """The counter in each trip."""
        start, update = s.start, s.update
        if not isinstance(start, ast.Declare) or not isinstance(update, ast.Assign) or start.value is None:
            return None
        if s.condition is None or update.target != ast.Name(start.name) or _disturbs(s.body, start.name):
            return None
        value = self.expr(start.value)
        value = self.as_type(value, self.type(start.type)) if start.type is not None else self.concrete(value)
        trips = list[Const]()
        while isinstance(value, Const) and len(trips) <= MOST_TRIPS:
            with self.scope(), self.body.apart():
                self.scopes[-1][start.name] = value
                test, following = self.expr(s.condition), self.expr(update.value)
            if not isinstance(test, Const):
                return None
            if not test.value:
                return trips
            trips.append(value)
            value = following
        return None

    def _switch(self, s: ast.Switch) -> None:
        selector = self.bind(self.concrete(self.expr(s.selector)))
        end = self.body.open("block")
        self.loops.append((end, self.loops[-1][1] if self.loops else 0))
        other: ast.Block | None = None
        for values, block in s.cases:
            if None in values:
                other = block
                continue
            self.body.code += code_of(self._is_one_of(selector, values))
            self.body.open("if")
            self._statement(block)
            self.body.branch(end)
            self.body.close()
        if other is not None:
            self._statement(other)
        self.loops.pop()
        self.body.close()

    def _is_one_of(self, selector: Value, values: Sequence[ast.Expr | None]) -> Const | Code:
        tests = [scalar("==", selector, self.as_type(self.expr(v), selector.type)) for v in values if v is not None]
        made, *rest = tests
        for test in rest:
            made = scalar("|", made, test)
        return made


def _disturbs(node: object, name: str, inner: bool = False) -> bool:
    """Whether a loop's body assigns its counter, or ends the loop or a trip early."""
    if isinstance(node, ast.Break | ast.Continue):
        return not inner
    if isinstance(node, ast.Assign):
        root = node.target
        while isinstance(root, ast.Member | ast.Index):
            root = root.base
        return root == ast.Name(name)
    if isinstance(node, tuple):
        return any(_disturbs(n, name, inner) for n in node)
    if isinstance(node, ast.Block | ast.If | ast.Loop | ast.Switch):
        within = inner or isinstance(node, ast.Loop | ast.Switch)
        return any(_disturbs(getattr(node, f.name), name, within) for f in fields(node))
    return False
