"""JSON encoding of values that tests and Python in the browser exchange. Both sides load this file."""

from __future__ import annotations

import ast
import base64
import inspect
import json
import traceback
from typing import Any

import numpy as np


def encode(value: Any) -> str:
    """Encode None, bool, int, float, str, bytes, NumPy arrays and scalars, and lists, tuples, dicts of them as JSON."""
    return json.dumps(_plain(value))


def decode(text: str) -> Any:
    return json.loads(text, object_hook=_restore)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"__bytes__": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return {"__objects__": [_plain(item) for item in value.ravel()], "shape": value.shape}
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"__array__": data, "dtype": value.dtype.str, "shape": value.shape}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _restore(value: dict[str, Any]) -> Any:
    if "__bytes__" in value:
        return base64.b64decode(value["__bytes__"])
    if "__array__" in value:
        flat = np.frombuffer(base64.b64decode(value["__array__"]), value["dtype"])
        return flat.reshape(value["shape"]).copy()
    if "__objects__" in value:
        array = np.empty(len(value["__objects__"]), object)
        array[:] = value["__objects__"]
        return array.reshape(value["shape"])
    return value


async def run(source: str, data: str) -> str:
    """Run `source`, which may use top-level `await`, with the encoded dict `data` as its globals.

    Returns:
        JSON: `{"value": ...}`, the value of the last statement if that is an expression, or `{"error": traceback}`.
    """
    namespace = {"__name__": "__main__", **decode(data)}
    try:
        tree = ast.parse(source)
        if tree.body and isinstance(last := tree.body[-1], ast.Expr):
            tree.body[-1] = ast.copy_location(ast.Assign([ast.Name("_value", ast.Store())], last.value), last)
        code = compile(ast.fix_missing_locations(tree), "<test>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, namespace)
        if inspect.iscoroutine(result):
            await result
        return encode({"value": namespace.get("_value")})
    except BaseException:
        return json.dumps({"error": traceback.format_exc()})
