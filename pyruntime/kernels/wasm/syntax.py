"""The syntax tree of WGSL, as far as kernels use it. Source: WGSL specification, sections 8 to 11."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "Assign",
    "Binary",
    "Block",
    "Break",
    "Call",
    "Continue",
    "Declare",
    "Evaluate",
    "Expr",
    "Function",
    "Global",
    "If",
    "Index",
    "Literal",
    "Loop",
    "Member",
    "Name",
    "Return",
    "Source",
    "Statement",
    "Switch",
    "TypeName",
    "Unary",
]


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as written: `vec4<f32>`, `array<T, N>`; the last argument of an array may be an expression."""

    name: str
    arguments: tuple[TypeName | Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Literal:
    """A number or truth value; `kind` is its suffix: 'u', 'i', 'f', '' for abstract numbers, 'bool'."""

    value: int | float
    kind: str


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, parameter or constant."""

    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a struct, or components of a vector."""

    base: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """An element of an array or a vector."""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class Unary:
    """A sign before an operand: '-', '!', '~', '&'."""

    sign: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary:
    """A sign between two operands."""

    sign: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function, a constructor or a conversion."""

    callee: TypeName
    arguments: tuple[Expr, ...]


Expr: TypeAlias = Literal | Name | Member | Index | Unary | Binary | Call


@dataclass(frozen=True, slots=True)
class Declare:
    """`var`, `let` or `const` in a function."""

    word: str
    name: str
    type: TypeName | None
    value: Expr | None


@dataclass(frozen=True, slots=True)
class Assign:
    """`target = value`; compound assignments and increments are written out."""

    target: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Evaluate:
    """A call whose result is not used."""

    call: Expr


@dataclass(frozen=True, slots=True)
class Block:
    """Statements in braces."""

    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If:
    """`if` with its `else`, which may be empty."""

    condition: Expr
    yes: Block
    no: Block


@dataclass(frozen=True, slots=True)
class Loop:
    """`for`, `while` and `loop`."""

    start: Statement | None
    condition: Expr | None
    update: Statement | None
    body: Block


@dataclass(frozen=True, slots=True)
class Switch:
    """The cases with their values; None is `default`."""

    selector: Expr
    cases: tuple[tuple[tuple[Expr | None, ...], Block], ...]


@dataclass(frozen=True, slots=True)
class Return:
    """`return`, with a value where the function has a result."""

    value: Expr | None


@dataclass(frozen=True, slots=True)
class Break:
    """`break`."""


@dataclass(frozen=True, slots=True)
class Continue:
    """`continue`."""


Statement: TypeAlias = Declare | Assign | Evaluate | Block | If | Loop | Switch | Return | Break | Continue


@dataclass(frozen=True, slots=True)
class Function:
    """A function; `builtins` has the @builtin attribute of each parameter, '' where it has none."""

    name: str
    parameters: tuple[tuple[str, TypeName], ...]
    builtins: tuple[str, ...]
    result: TypeName | None
    body: Block
    workgroup: tuple[Expr, ...] | None


@dataclass(frozen=True, slots=True)
class Global:
    """A variable of the module: `space` is 'storage', 'uniform', 'workgroup' or 'private'; `binding` -1 has none."""

    name: str
    space: str
    type: TypeName
    binding: int
    value: Expr | None


@dataclass(frozen=True, slots=True)
class Source:
    """A WGSL module."""

    functions: dict[str, Function]
    structs: dict[str, tuple[tuple[str, TypeName], ...]]
    constants: dict[str, tuple[TypeName | None, Expr]]
    aliases: dict[str, TypeName]
    globals: tuple[Global, ...]
