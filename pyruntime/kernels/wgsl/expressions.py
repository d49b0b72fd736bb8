"""Numbers and sizes that WGSL text says: constant expressions of unsigned integers, bytes of types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = ["layout_of", "listed", "value_of"]

_TERM = re.compile(r"\s*(?:(\d+)[ui]?\b|([A-Za-z_]\w*)|([-+*/%(),]))\s*")
_LITERAL = re.compile(r"\s*(\d+)[ui]?\s*")
_LIST_SIGN = re.compile(r"[<>(),]")
_CHOICES = {"min": min, "max": max}
_SCALARS = {"u32": 4, "i32": 4, "f32": 4, "f16": 2, "bool": 4}
_LETTERS = {"u": "u32", "i": "i32", "f": "f32", "h": "f16"}
_VECTOR = re.compile(r"vec([234])(?:<(.+)>|([uifh]))")
_WRAPPED = re.compile(r"(array|atomic|buffer)<(.+)>")


def value_of(expression: str, constants: Mapping[str, str]) -> int:
    """A constant expression of unsigned literals, names, + - * / %, min, max and parentheses.

    Args:
        constants: the expressions of names.

    Raises:
        ValueError: it is something else.
    """
    if (literal := _LITERAL.fullmatch(constants.get(expression, expression))) is not None:
        return int(literal[1])
    terms = _terms(expression, constants, ())
    value = _sum(terms)
    if terms:
        raise ValueError(f"{expression} is not a constant expression that can be read")
    return value


def _terms(expression: str, constants: Mapping[str, str], within: tuple[str, ...]) -> list[str]:
    """Numbers, signs, parentheses and min and max; names are replaced by what they are."""
    made, at = list[str](), 0
    while at < len(expression):
        found = _TERM.match(expression, at)
        if found is None:
            raise ValueError(f"{expression} is not a constant expression that can be read")
        at = found.end()
        number, name, sign = found.groups()
        if name is None or name in _CHOICES:
            made.append(number or name or sign)
        elif name in constants and (literal := _LITERAL.fullmatch(constants[name])) is not None:
            made.append(literal[1])
        elif name in constants and name not in within:
            made += ["(", *_terms(constants[name], constants, (*within, name)), ")"]
        else:
            raise ValueError(f"{name} is not a constant of this file")
    return made


def _sum(terms: list[str]) -> int:
    value = _product(terms)
    while terms and terms[0] in "+-":
        value = value + _product(terms) if terms.pop(0) == "+" else value - _product(terms)
    return value


def _product(terms: list[str]) -> int:
    value = _factor(terms)
    while terms and terms[0] in "*/%":
        sign, right = terms.pop(0), _factor(terms)
        if sign != "*" and not right:
            raise ValueError("division by zero")
        value = value * right if sign == "*" else value // right if sign == "/" else value % right
    return value


def _factor(terms: list[str]) -> int:
    if not terms:
        raise ValueError("not a constant expression")
    term = terms.pop(0)
    if term == "(":
        value = _sum(terms)
        if not terms or terms.pop(0) != ")":
            raise ValueError("unbalanced parentheses")
        return value
    if term in _CHOICES and terms and terms[0] == "(":
        del terms[0]
        values = [_sum(terms)]
        while terms and terms[0] == ",":
            del terms[0]
            values.append(_sum(terms))
        if not terms or terms.pop(0) != ")":
            raise ValueError(f"{term}() is not closed")
        return _CHOICES[term](values)
    if not term.isdigit():
        raise ValueError(f"{term} is no number")
    return int(term)


def listed(text: str) -> list[str]:
    """Split a list at its commas, except those in angle brackets and parentheses."""
    made, depth, last = list[str](), 0, 0
    for found in _LIST_SIGN.finditer(text):
        sign = found[0]
        if sign != ",":
            depth += 1 if sign in "<(" else -1
        elif depth == 0:
            made.append(text[last : found.start()].strip())
            last = found.end()
    return [*made, text[last:].strip()]


def layout_of(kind: str, constants: Mapping[str, str], named: Mapping[str, str | Sequence[str]]) -> tuple[int, int]:
    """Bytes and alignment of a type in memory that invocations share. Source: WGSL, section 14.4, and for buffers its
    language feature buffer_view.

    Args:
        constants: the expressions of names, for lengths of arrays.
        named: what names of types stand for: the type of an alias, the types of a struct's members.

    Raises:
        ValueError: a type that is none of these.
    """
    if kind in _SCALARS:
        return _SCALARS[kind], _SCALARS[kind]
    if (vector := _VECTOR.fullmatch(kind)) is not None:
        count, (size, _) = int(vector[1]), layout_of(vector[2] or _LETTERS[vector[3]], constants, named)
        return count * size, (4 if count > 2 else 2) * size
    if (wrapped := _WRAPPED.fullmatch(kind)) is not None:
        if wrapped[1] == "buffer":
            return value_of(wrapped[2], constants), 16
        if wrapped[1] == "atomic":
            return layout_of(wrapped[2], constants, named)
        element, *length = listed(wrapped[2])
        size, align = layout_of(element, constants, named)
        return value_of("".join(length[:1]), constants) * -(-size // align) * align, align
    meant = named.get(kind)
    if meant is None:
        raise ValueError(f"{kind} is not a type whose size can be read")
    if isinstance(meant, str):
        return layout_of(meant, constants, named)
    total, most = 0, 1
    for member in meant:
        size, align = layout_of(member, constants, named)
        total, most = -(-total // align) * align + size, max(most, align)
    return -(-total // most) * most, most
