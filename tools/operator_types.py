"""pyruntime/ops/types.py, generated from schemas of ONNX and onnxruntime: `python -m tools.operator_types [--check]`.

A type counts as allowed where any version of an operator allows it, and two inputs may differ where any version lets
them: what onnxruntime accepts in one version is never refused in another.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx.defs
from onnxruntime.capi import onnxruntime_pybind11_state

from pyruntime.ir import DType
from pyruntime.ops.index import DECLARED
from tools.generated import write_or_check

TARGET = Path(__file__).parents[1] / "pyruntime" / "ops" / "types.py"
HEAD = '''"""Element types that schemas allow for operators. Written by `python -m tools.operator_types`; do not edit.

An entry is 'INPUTS > OUTPUTS', each separated by spaces. A parameter is NAME:MASK. Parameters of a NAME have one type,
'-' has a type of its own. Bit n of MASK, in hexadecimal, allows the type with code n of TensorProto; without MASK that
of the NAME before counts, or anything. '+' after the last input: it may be repeated.
Source: onnx.defs, and the schemas in onnxruntime.
"""

from __future__ import annotations

__all__ = ["TYPES"]

TYPES: dict[str, dict[str, str]] = {
'''
WIDTH = 120 + len("\n")
CODES = {dtype.type_string: dtype.code for dtype in DType}


@dataclass(frozen=True)
class Parameter:
    """An input or output of one version of an operator; `alike`: where it is repeated, all have one type."""

    name: str
    types: frozenset[str]
    repeated: bool
    alike: bool

    @staticmethod
    def of(formal: Any) -> Parameter:
        """Return a parameter of a schema of onnx, or of onnxruntime, which has other names for the same."""
        name = formal.type_str if hasattr(formal, "type_str") else formal.typeStr
        alike = formal.is_homogeneous if hasattr(formal, "is_homogeneous") else formal.isHomogeneous
        return Parameter(name, frozenset(formal.types), "Variadic" in str(formal.option), alike)


Version = tuple[list[Parameter], list[Parameter]]
"""Inputs and outputs."""


def schemas() -> dict[tuple[str, str], list[Version]]:
    """Return the versions of all operators by domain and name, oldest first."""
    found: dict[tuple[str, str], dict[int, Version]] = defaultdict(dict)
    every = [*onnx.defs.get_all_schemas_with_history(), *onnxruntime_pybind11_state.get_all_operator_schema()]
    for schema in every:
        version = [Parameter.of(p) for p in schema.inputs], [Parameter.of(p) for p in schema.outputs]
        found[schema.domain, schema.name].setdefault(schema.since_version, version)
    return {key: [versions[n] for n in sorted(versions)] for key, versions in found.items()}


def entry(versions: Sequence[Version]) -> str:
    """Return the entry of an operator."""
    by_freedom = sorted(versions, key=lambda v: len({p.name for p in v[0]}))
    masks: dict[str, int] = {}
    shown: tuple[list[str], list[str]] = [], []
    for kind, parts in enumerate(shown):
        for at in range(max(len(v[kind]) for v in versions)):
            parameters = [v[kind][at] for v in by_freedom if at < len(v[kind])]
            name, mask = _name(parameters), _mask(t for p in parameters for t in p.types)
            parts.append(name if masks.get(name, 0) == mask else f"{name}:{mask:x}")
            masks[name] = mask if name != "-" else 0
    repeated = ["+"] if any(p.repeated for v in versions for p in v[0]) else []
    return " ".join([*shown[0], *repeated, ">", *shown[1]])


def _name(parameters: Sequence[Parameter]) -> str:
    """Return the name of a parameter that has these forms in its versions: that of the version with most of them."""
    name = parameters[-1].name
    return "-" if "(" in name or not all(p.alike for p in parameters) else name


def _mask(types: Iterable[str]) -> int:
    return sum({1 << CODES[t] for t in types if t in CODES})


def page() -> str:
    """Return the module."""
    known = schemas()
    text = HEAD
    for domain, modules in sorted(DECLARED.items()):
        names = sorted({name for declared in modules.values() for name in declared.split()})
        rows = [row(name, entry(known[domain, name])) for name in names if (domain, name) in known]
        text += f'    "{domain}": {{\n{"".join(rows)}    }},\n' if rows else ""
    return text + "}\n"


def row(name: str, text: str) -> str:
    """Return an entry of the table as the formatter writes it."""
    line = f'        "{name}": "{text}",\n'
    return line if len(line) <= WIDTH else f'        "{name}": (\n            "{text}"\n        ),\n'


if __name__ == "__main__":
    sys.exit(write_or_check(TARGET, page(), sys.argv[1:]))
