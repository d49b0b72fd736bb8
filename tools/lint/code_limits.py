"""Limits on the size of functions and files: `python -m tools.lint.code_limits`.

Functions have at most 60 lines and 8 parameters (`self` aside), files at most 400 lines. `infer`, `evaluate`, `expand`
and `lower` of operators take as many inputs as ONNX's operators have.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("pyruntime/**/*.py", "tools/**/*.py", "web/**/*.js", "shaders/**/*.wgsl")
LINES_OF_FUNCTION, PARAMETERS, LINES_OF_FILE = 60, 8, 400
OPERATOR_METHODS = ("infer", "evaluate", "expand", "lower")

_RECORD = "its parameters are the fields of the format's table, in their order"
_GENERATOR = "the parts of a kernel's source, most of them with defaults"
EXCEPTIONS: dict[str, str] = {
    "pyruntime/kernels/map.py:gather_map": _GENERATOR,
    "pyruntime/kernels/map.py:group_map": _GENERATOR,
    "pyruntime/kernels/movement.py:move": _GENERATOR,
    "pyruntime/onnx/ort_format.py:_model": _RECORD,
    "pyruntime/onnx/schema.py:_tensor_record": _RECORD,
    "pyruntime/onnx/formats/protobuf.py:_read": "the inner loop of the reader: each call is a tenth of its time",
}
"""Place to the reason why it may be larger. An entry that no longer applies fails."""


def complaints() -> Iterator[tuple[str, str]]:
    """Yield (place, what is too large) for everything above a limit."""
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            place = str(path.relative_to(ROOT))
            text = path.read_text("utf-8")
            if (lines := text.count("\n")) > LINES_OF_FILE:
                yield place, f"{lines} lines; the limit is {LINES_OF_FILE}"
            if path.suffix == ".py":
                yield from _functions(place, ast.parse(text))


def _functions(place: str, module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > LINES_OF_FUNCTION:
            yield f"{place}:{node.name}", f"{lines} lines; the limit is {LINES_OF_FUNCTION}"
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        of_operator = place.startswith("pyruntime/ops/") and node.name in OPERATOR_METHODS
        if count > PARAMETERS and not of_operator:
            yield f"{place}:{node.name}", f"{count} parameters; the limit is {PARAMETERS}"


def main() -> int:
    found = dict(complaints())
    for place, what in found.items():
        if place not in EXCEPTIONS:
            print(f"{place}: {what}")
    unused = EXCEPTIONS.keys() - found.keys()
    for place in sorted(unused):
        print(f"tools/lint/code_limits.py: {place} is within the limits; remove its exception")
    return 1 if unused or found.keys() - EXCEPTIONS.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
