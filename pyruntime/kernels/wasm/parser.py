"""Parser of WGSL: the subset that kernels are written in.

Left out: pointers but those that atomic functions take, `override`, `continuing`, matrices. Source: WGSL specification,
sections 3, 8 and 9.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from pyruntime.kernels.wasm.syntax import (
    Assign,
    Binary,
    Block,
    Break,
    Call,
    Continue,
    Declare,
    Evaluate,
    Expr,
    Function,
    Global,
    If,
    Index,
    Literal,
    Loop,
    Member,
    Name,
    Return,
    Source,
    Statement,
    Switch,
    TypeName,
    Unary,
)

__all__ = ["parse"]

_SKIPPED = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.S)
_TOKEN = re.compile(
    r"(?P<number>0[xX][0-9a-fA-F]+[iu]?|(?:\d+\.\d*|\.\d+|\d+(?=[eE][+-]?\d|f\b))(?:[eE][+-]?\d+)?[fh]?|\d+[iu]?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><<=|>>=|->|&&|\|\||<<|<=|>=|==|!=|\+\+|--|[-+*/%&|^]=|[-+*/%&|^!~<>=(){}\[\];:,.@])"
)
_LEVELS = ("||", "&&", "|", "^", "&", "== !=", "< > <= >=", "<< >>", "+ -", "* / %")
_PRECEDENCE = {sign: level for level, signs in enumerate(_LEVELS) for sign in signs.split()}
_GENERIC = frozenset(("array", "vec2", "vec3", "vec4", "bitcast", "atomic"))
_COMPOUND = frozenset(("+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="))


@lru_cache(maxsize=256)
def parse(text: str) -> Source:
    """Return the syntax tree of a module.

    Raises:
        ValueError: the text has something that this subset leaves out.
    """
    return _Parser(_tokens(text)).module()


def _tokens(text: str) -> list[str]:
    found, at = list[str](), 0
    while at < len(text):
        if (blank := _SKIPPED.match(text, at)) is not None:
            at = blank.end()
            continue
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"WGSL: {text[at : at + 30]!r} is no token")
        found.append(token[0])
        at = token.end()
    return found


class _Parser:
    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = [*tokens, ""]
        self._at = 0

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, token: str) -> bool:
        if self._next != token:
            return False
        self._at += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            near = " ".join(self._tokens[max(0, self._at - 5) : self._at + 5])
            raise ValueError(f"WGSL: expected {token!r}, got {self._next!r} in {near!r}")

    def _close_angle(self) -> None:
        """Take one '>' of a token that begins with it: the '>>' of nested types is two."""
        token = self._next
        if token.startswith(">") and len(token) > 1:
            self._tokens[self._at] = token[1:]
        else:
            self._expect(">")

    def module(self) -> Source:
        made = Source({}, {}, {}, {}, ())
        variables = list[Global]()
        while self._next:
            attributes = self._attributes()
            word = self._take()
            if word == "fn":
                function = self._function(attributes)
                made.functions[function.name] = function
            elif word == "struct":
                name = self._take()
                made.structs[name] = self._members("{", "}")
                self._accept(";")
            elif word == "const":
                name, kind = self._take(), self._annotation()
                self._expect("=")
                made.constants[name] = kind, self.expression()
                self._expect(";")
            elif word == "alias":
                name = self._take()
                self._expect("=")
                made.aliases[name] = self.type()
                self._expect(";")
            elif word == "var":
                variables.append(self._global(attributes))
            elif word != ";":
                raise ValueError(f"WGSL: {word!r} outside of functions is left out")
        return Source(made.functions, made.structs, made.constants, made.aliases, tuple(variables))

    def _attributes(self) -> dict[str, tuple[Expr, ...]]:
        found = dict[str, tuple[Expr, ...]]()
        while self._accept("@"):
            name = self._take()
            found[name] = self._arguments() if self._next == "(" else ()
        return found

    def _annotation(self) -> TypeName | None:
        return self.type() if self._accept(":") else None

    def _global(self, attributes: dict[str, tuple[Expr, ...]]) -> Global:
        space = "private"
        if self._accept("<"):
            space = self._take()
            if self._accept(","):
                self._take()
            self._close_angle()
        name, kind = self._take(), self._annotation()
        value = self.expression() if self._accept("=") else None
        self._expect(";")
        given = attributes.get("binding", (Literal(-1, ""),))[0]
        if kind is None or not isinstance(given, Literal):
            raise ValueError(f"WGSL: variable {name} needs a type and a number for its binding")
        return Global(name, space, kind, int(given.value), value)

    def _members(self, first: str, closing: str) -> tuple[tuple[str, TypeName], ...]:
        self._expect(first)
        found = list[tuple[str, TypeName]]()
        while not self._accept(closing):
            self._attributes()
            name = self._take()
            self._expect(":")
            found.append((name, self.type()))
            self._accept(",")
        return tuple(found)

    def _function(self, attributes: dict[str, tuple[Expr, ...]]) -> Function:
        name = self._take()
        self._expect("(")
        parameters, builtins = list[tuple[str, TypeName]](), list[str]()
        while not self._accept(")"):
            given = self._attributes().get("builtin", ())
            builtins.append(given[0].name if given and isinstance(given[0], Name) else "")
            parameter = self._take()
            self._expect(":")
            parameters.append((parameter, self.type()))
            self._accept(",")
        result = self.type() if self._accept("->") else None
        return Function(
            name, tuple(parameters), tuple(builtins), result, self.block(), attributes.get("workgroup_size")
        )

    def type(self) -> TypeName:
        name = self._take()
        if not self._accept("<"):
            return TypeName(name)
        arguments: list[TypeName | Expr] = [self.type()]
        if self._accept(","):
            arguments.append(self._binary(_PRECEDENCE["<<"] + 1))
            self._accept(",")
        self._close_angle()
        return TypeName(name, tuple(arguments))

    def block(self) -> Block:
        self._expect("{")
        found = list[Statement]()
        while not self._accept("}"):
            if not self._accept(";"):
                found.append(self.statement())
        return Block(tuple(found))

    def statement(self) -> Statement:
        word = self._next
        if word == "{":
            return self.block()
        if word == "if":
            return self._if()
        if word in ("for", "while", "loop"):
            return self._loop()
        if word == "switch":
            return self._switch()
        made = self._simple()
        self._expect(";")
        return made

    def _simple(self) -> Statement:
        """A statement that ends with a semicolon, without it."""
        word = self._next
        if word in ("var", "let", "const"):
            self._take()
            name, kind = self._take(), self._annotation()
            return Declare(word, name, kind, self.expression() if self._accept("=") else None)
        if word == "return":
            self._take()
            return Return(None if self._next == ";" else self.expression())
        if word in ("break", "continue"):
            self._take()
            return Break() if word == "break" else Continue()
        target = self._unary()
        sign = self._take()
        if sign == "=":
            return Assign(target, self.expression())
        if sign in ("++", "--"):
            return Assign(target, Binary(sign[0], target, Literal(1, "")))
        if sign in _COMPOUND:
            return Assign(target, Binary(sign[:-1], target, self.expression()))
        self._at -= 1
        return Evaluate(target)

    def _if(self) -> If:
        self._expect("if")
        condition, yes, no = self.expression(), self.block(), Block(())
        if self._accept("else"):
            no = Block((self._if(),)) if self._next == "if" else self.block()
        return If(condition, yes, no)

    def _loop(self) -> Loop:
        word = self._take()
        if word == "loop":
            return Loop(None, None, None, self.block())
        if word == "while":
            return Loop(None, self.expression(), None, self.block())
        self._expect("(")
        start = None if self._next == ";" else self._simple()
        self._expect(";")
        condition = None if self._next == ";" else self.expression()
        self._expect(";")
        update = None if self._next == ")" else self._simple()
        self._expect(")")
        return Loop(start, condition, update, self.block())

    def _switch(self) -> Switch:
        self._expect("switch")
        selector = self.expression()
        self._expect("{")
        cases = list[tuple[tuple[Expr | None, ...], Block]]()
        while not self._accept("}"):
            values = list[Expr | None]()
            if self._take() == "default":
                values.append(None)
            else:
                while self._next not in (":", "{"):
                    values.append(None if self._accept("default") else self.expression())
                    self._accept(",")
            self._accept(":")
            cases.append((tuple(values), self.block()))
        return Switch(selector, tuple(cases))

    def expression(self) -> Expr:
        return self._binary(0)

    def _binary(self, least: int) -> Expr:
        left = self._unary()
        while True:
            sign = self._next
            if sign == ">" and self._tokens[self._at + 1] == ">":
                sign = ">>"
            level = _PRECEDENCE.get(sign, -1)
            if level < least:
                return left
            self._at += 2 if sign == ">>" else 1
            left = Binary(sign, left, self._binary(level + 1))

    def _unary(self) -> Expr:
        if self._next in ("-", "!", "~", "&"):
            return Unary(self._take(), self._unary())
        made = self._primary()
        while True:
            if self._accept("."):
                made = Member(made, self._take())
            elif self._accept("["):
                made = Index(made, self.expression())
                self._expect("]")
            else:
                return made

    def _primary(self) -> Expr:
        if self._accept("("):
            made = self.expression()
            self._expect(")")
            return made
        token = self._next
        if token[:1].isdigit() or token[:1] == ".":
            return _number(self._take())
        if token in ("true", "false"):
            self._take()
            return Literal(int(token == "true"), "bool")
        if not (token[:1].isalpha() or token[:1] == "_"):
            self._expect("an expression")
        if token in _GENERIC and self._tokens[self._at + 1] == "<":
            return Call(self.type(), self._arguments())
        self._take()
        return Call(TypeName(token), self._arguments()) if self._next == "(" else Name(token)

    def _arguments(self) -> tuple[Expr, ...]:
        self._expect("(")
        found = list[Expr]()
        while not self._accept(")"):
            found.append(self.expression())
            self._accept(",")
        return tuple(found)


def _number(text: str) -> Literal:
    kind = text[-1] if text[-1] in "iu" or (text[-1] in "fh" and not text.lower().startswith("0x")) else ""
    digits = text[: len(text) - len(kind)]
    if digits.lower().startswith("0x"):
        return Literal(int(digits, 16), kind)
    return Literal(int(digits) if digits.isdigit() and kind in ("", "i", "u") else float(digits), kind)
