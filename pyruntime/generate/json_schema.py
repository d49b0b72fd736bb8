"""JSON schemas as grammars of the JSON texts that conform to them.

Supported: type, enum, const, properties, required, additionalProperties, items, minItems, maxItems, minLength,
maxLength, pattern, anyOf, oneOf (as anyOf), $ref within the schema. Annotations are ignored, other keywords refused.
Properties are generated in the schema's order; additional ones only if the schema lists none.
Source: RFC 8259, JSON Schema 2020-12.
"""

from __future__ import annotations

import json
from typing import Any

from pyruntime.errors import InvalidArgument, NotImplemented
from pyruntime.generate.grammar import Automaton, Expression, call, chars, choice, repeat, sequence, text
from pyruntime.generate.regex import inverted, regex

__all__ = ["json_schema"]

_PLAIN = inverted(((0, 31), (34, 34), (92, 92), (127, 159), (0xD800, 0xDFFF)))
_KNOWN = {
    *("type", "enum", "const", "properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
    *("minLength", "maxLength", "pattern", "anyOf", "oneOf", "$ref", "$defs", "definitions", "$schema", "$id", "title"),
    *("description", "default", "examples", "format", "$comment", "deprecated", "readOnly", "writeOnly"),
}
_NAMES = ("null", "boolean", "integer", "number", "string", "array", "object")
_SPACE = repeat(text(" "), 0, 1)
_COMMA = sequence(text(","), _SPACE)
_COLON = sequence(text(":"), _SPACE)


def json_schema(schema: str | dict[str, Any] | bool) -> Automaton:
    """Compile a schema, as JSON text or parsed, into an automaton.

    Raises:
        InvalidArgument: an invalid schema. NotImplemented: an unsupported keyword.
    """
    return _Compiler(json.loads(schema) if isinstance(schema, str) else schema).automaton()


class _Compiler:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._rules: dict[str, Expression] = {}
        self._waiting: list[tuple[str, Any]] = []
        self._names = 0
        digits = regex("(?:0|[1-9][0-9]{0,14})")
        character = choice(chars(_PLAIN), regex(r'\\(?:["\\/bfnrt]|u[0-9a-cA-CefEF][0-9a-fA-F]{3})'))
        self._rules |= {
            "character": character,
            "string": sequence(text('"'), repeat(call("character")), text('"')),
            "integer": sequence(repeat(text("-"), 0, 1), digits),
            "number": sequence(repeat(text("-"), 0, 1), digits, regex(r"(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?")),
            "boolean": choice(text("true"), text("false")),
            "null": text("null"),
            "array": self._array(call("value"), 0, None),
            "object": self._open_object(call("value")),
            "value": choice(*(call(n) for n in _NAMES if n != "integer")),
        }

    def automaton(self) -> Automaton:
        self._rules["root"] = self._schema(self._root)
        while self._waiting:
            name, schema = self._waiting.pop()
            self._rules[name] = self._schema(schema)
        return Automaton(self._rules)

    def _rule(self, expression: Expression) -> Expression:
        """Return a call of the expression as a new rule, so that it is stored only once."""
        self._names += 1
        self._rules[f"rule {self._names}"] = expression
        return call(f"rule {self._names}")

    def _schema(self, schema: Any) -> Expression:
        if schema is True or schema == {}:
            return call("value")
        if not isinstance(schema, dict):
            raise InvalidArgument(f"expected a JSON schema, got {schema!r}")
        unknown = sorted(set(schema) - _KNOWN)
        if unknown:
            raise NotImplemented(f"JSON schema: the keywords {unknown} are not supported; leave them out")
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "const" in schema or "enum" in schema:
            values = [schema["const"]] if "const" in schema else schema["enum"]
            return choice(*(text(json.dumps(v, ensure_ascii=False)) for v in values))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return choice(*(self._schema(s) for s in schema[key]))
        kinds = schema.get("type") or self._implied(schema)
        return choice(*(self._typed(k, schema) for k in ([kinds] if isinstance(kinds, str) else kinds)))

    def _implied(self, schema: dict[str, Any]) -> str | list[str]:
        """Return the type that the keywords imply; all types if there are none."""
        of = {"properties": "object", "required": "object", "additionalProperties": "object", "items": "array"}
        of |= {
            "minItems": "array",
            "maxItems": "array",
            "pattern": "string",
            "minLength": "string",
            "maxLength": "string",
        }
        found = [kind for key, kind in of.items() if key in schema]
        return found[0] if found else [n for n in _NAMES if n != "integer"]

    def _reference(self, path: str) -> Expression:
        name = f"$ref {path}"
        if name not in self._rules:
            target = self._root
            try:
                if not path.startswith("#"):
                    raise KeyError(path)
                for part in path[1:].strip("/").split("/"):
                    part = part.replace("~1", "/").replace("~0", "~")
                    target = target[int(part)] if isinstance(target, list) else target[part] if part else target
            except (KeyError, IndexError, ValueError, TypeError):
                raise InvalidArgument(f"JSON schema: {path!r} points to nothing in the schema") from None
            self._rules[name] = text("")
            self._waiting.append((name, target))
        return call(name)

    def _typed(self, kind: str, schema: dict[str, Any]) -> Expression:
        if kind == "object":
            return self._object(schema)
        if kind == "array":
            items = schema.get("items")
            element = call("value") if items is None else self._rule(self._schema(items))
            return self._array(element, int(schema.get("minItems", 0)), schema.get("maxItems"))
        if kind == "string":
            return self._string(schema)
        if kind not in _NAMES:
            raise InvalidArgument(f"JSON schema: expected a type of {_NAMES}, got {kind!r}")
        return call(kind)

    def _string(self, schema: dict[str, Any]) -> Expression:
        if "pattern" in schema:
            if "minLength" in schema or "maxLength" in schema:
                raise NotImplemented("JSON schema: pattern with minLength or maxLength; express it in the pattern")
            # A pattern without anchors may match inside of a string.
            pattern: str = schema["pattern"]
            around = repeat(chars(_PLAIN))
            body = regex(pattern, _PLAIN)
            before = () if pattern.startswith("^") else (around,)
            after = () if pattern.endswith("$") else (around,)
            return sequence(text('"'), *before, body, *after, text('"'))
        bounds = int(schema.get("minLength", 0)), schema.get("maxLength")
        return sequence(text('"'), repeat(call("character"), *bounds), text('"'))

    def _array(self, element: Expression, least: int, most: int | None) -> Expression:
        if most == 0:
            return text("[]")
        more = repeat(sequence(_COMMA, element), max(0, least - 1), None if most is None else most - 1)
        filled = sequence(text("["), element, more, text("]"))
        return filled if least else choice(text("[]"), filled)

    def _open_object(self, value: Expression) -> Expression:
        member = sequence(call("string"), _COLON, value)
        return sequence(text("{"), choice(text("}"), sequence(member, repeat(sequence(_COMMA, member)), text("}"))))

    def _object(self, schema: dict[str, Any]) -> Expression:
        properties: dict[str, Any] = schema.get("properties", {})
        required = set(schema.get("required", ()))
        missing = sorted(required - set(properties))
        extra = schema.get("additionalProperties", True)
        if missing:
            raise NotImplemented(f"JSON schema: {missing} are required and not among the properties; describe them")
        if not properties:
            return text("{}") if extra is False else self._open_object(self._rule(self._schema(extra)))
        after: dict[bool, Expression] = {True: text("}"), False: text("}")}
        for name, inner in reversed(properties.items()):
            member = self._rule(sequence(text(json.dumps(name, ensure_ascii=False)), _COLON, self._schema(inner)))
            with_it = {False: sequence(member, after[True]), True: sequence(_COMMA, member, after[True])}
            if name in required:
                after = {first: self._rule(e) for first, e in with_it.items()}
            else:
                after = {first: self._rule(choice(e, after[first])) for first, e in with_it.items()}
        return sequence(text("{"), after[False])
