"""Every registered operator against ONNX's own schemas: attribute names, types, defaults, and opset ranges."""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest

from pyruntime.ir import Constant, Floats, Graph, Ints, Strings
from pyruntime.onnx.importer.attributes import needed_inputs, signature
from pyruntime.ops.base import LATEST, Op, registered
from pyruntime.ops.registry import modules

KINDS: dict[str, tuple[Any, ...]] = {
    "FLOAT": (float,),
    "INT": (int,),
    "STRING": (str, bytes),
    "TENSOR": (Constant,),
    "GRAPH": (Graph,),
    "FLOATS": (tuple[float, ...], Floats),
    "INTS": (tuple[int, ...], Ints),
    "STRINGS": (tuple[str, ...], tuple[bytes, ...], Strings[str]),
}
NEWEST = {"": LATEST}

ALLOWED: dict[tuple[str, str], str] = {
    ("LayerNormalization", "starts at 1, ONNX at 17"): "models that onnxruntime optimised use it at older opsets",
    **{
        (name, "unknown to ONNX"): "experimental in ONNX 1.4; onnxruntime has it"
        for name in ("Affine", "Crop", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh")
    },
    ("MeanVarianceNormalization", "starts at 1, ONNX at 9"): "before it was experimental; onnxruntime has it",
    ("ThresholdedRelu", "starts at 1, ONNX at 10"): "before it was experimental; onnxruntime has it",
    ("SimplifiedLayerNormalization", "unknown to ONNX"): "onnxruntime's, and yet in ONNX's domain",
}
"""(operator or operator.attribute, complaint) to the reason why it may differ. An entry that does not apply fails."""


@lru_cache(maxsize=1)
def operators() -> dict[tuple[str, str], list[type[Op]]]:
    """Every operator of a domain that ONNX defines, imported. `tests/contrib/test_schema.py` has com.microsoft's."""
    for module in modules():
        import_module(module)
    inside = {
        key: [c for c in versions if c.__module__.startswith("pyruntime.ops.")] for key, versions in registered.items()
    }
    domains = {domain for domain, _ in schemas()}
    return {key: versions for key, versions in inside.items() if versions and key[0] in domains}


@lru_cache(maxsize=1)
def schemas() -> dict[tuple[str, str], list[Any]]:
    """All versions of every ONNX schema, oldest first."""
    found: dict[tuple[str, str], list[Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema)
    return {key: sorted(versions, key=lambda s: s.since_version) for key, versions in found.items()}


def schema_at(key: tuple[str, str], opset: int) -> Any:
    """The schema in force at `opset`, or None."""
    valid = [s for s in schemas().get(key, []) if s.since_version <= opset]
    return valid[-1] if valid else None


def _same(default: Any, field: Any) -> bool:
    if isinstance(default, bytes):
        default = default.decode()
    if isinstance(default, float):
        return isinstance(field, int | float) and np.float32(default) == np.float32(field)
    if isinstance(default, list | tuple):
        return tuple(v.decode() if isinstance(v, bytes) else v for v in default) == tuple(field or ())
    return bool(default == field)


def attribute_complaints(cls: type[Op], schema: Any) -> list[tuple[str, str]]:
    """(attribute, what is wrong with it) for one class at one version."""
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.name != "present"}
    found = [(name, "unknown to ONNX") for name in fields.keys() - schema.attributes.keys()]
    for name, attribute in schema.attributes.items():
        if name not in fields:
            found.append((name, "missing"))
            continue
        kind = str(attribute.type).split(".")[-1]
        hint = hints[name]
        union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        options = typing.get_args(hint) if union else (hint,)
        if kind in KINDS and not any(o in KINDS[kind] for o in options):
            found.append((name, f"is {kind}, declared {hint}"))
        has_default = bool(attribute.default_value.name)
        default = fields[name].default
        if attribute.required != (default is dataclasses.MISSING):
            found.append((name, "required" if attribute.required else "optional"))
        elif has_default:
            expected = onnx.helper.get_attribute_value(attribute.default_value)
            if not _same(expected, default):
                found.append((name, f"default {expected!r}, got {default!r}"))
        elif not attribute.required and default is not None:
            found.append((name, f"no default, got {default!r}"))
    return found


def complaints(key: tuple[str, str]) -> set[tuple[str, str]]:
    """Everything in which operator `key` differs from ONNX."""
    domain, name = key
    found: set[tuple[str, str]] = set()
    versions = schemas().get(key)
    if not versions:
        return {(name, "unknown to ONNX")}
    newest = NEWEST.get(domain, versions[-1].since_version)
    covered: set[int] = set()
    for cls in operators()[key]:
        covered |= set(cls.opsets)
        if cls.opsets.start < versions[0].since_version:
            found.add((name, f"starts at {cls.opsets.start}, ONNX at {versions[0].since_version}"))
        # ai.onnx below 7 is outside the contract: what runs there need not match attribute by attribute.
        inside = [o for o in cls.opsets if domain or o >= 7]
        for opset in sorted({s.since_version for s in versions} & set(inside) | set(inside[:1])):
            schema = schema_at(key, opset)
            if schema is not None:
                found |= {(f"{name}.{a}", what) for a, what in attribute_complaints(cls, schema)}
    first = max(7 if domain == "" else 1, versions[0].since_version)
    for opset in range(first, newest + 1):
        schema = schema_at(key, opset)
        if schema is not None and not schema.deprecated and opset not in covered:
            found.add((name, f"opset {opset} is missing"))
    return found


@pytest.mark.parametrize("key", sorted(operators()), ids=lambda key: ".".join(filter(None, key)))
def test_operator__attributes_and_opsets__are_those_of_onnx(key: tuple[str, str]) -> None:
    unexplained = {c for c in complaints(key) if c not in ALLOWED}
    assert not unexplained, "\n".join(f"{what}: {why}" for what, why in sorted(unexplained))


def absent_inputs(schema: Any) -> set[int]:
    """Indices of the inputs that a schema lets be absent."""
    return {i for i, parameter in enumerate(schema.inputs) if "Optional" in str(parameter.option)}


@pytest.mark.parametrize("key", sorted(operators()), ids=lambda key: ".".join(filter(None, key)))
def test_operator__inputs__are_as_many_and_as_optional_as_onnx_allows(key: tuple[str, str]) -> None:
    for cls in operators()[key]:
        known = signature(cls)
        for schema in filter(None, (schema_at(key, opset) for opset in cls.opsets)):
            assert not needed_inputs(cls) & absent_inputs(schema), (cls, schema.since_version)
            assert known.least <= schema.min_input, (cls, schema.since_version)
            assert known.most is None or known.most >= schema.max_input, (cls, schema.since_version)


def test_allowed_differences__all_still_apply() -> None:
    every = {c for key in operators() for c in complaints(key)}
    assert not ALLOWED.keys() - every


def test_operators__look_alike__frozen_values_with_names() -> None:
    for (domain, name), versions in operators().items():
        for cls in versions:
            assert (cls.op_type, cls.domain) == (name, domain)
            assert dataclasses.is_dataclass(cls) and cls.__hash__ is not None
            assert cls.__doc__, f"{cls.__name__} has no docstring"


def test_opset_ranges__of_one_operator__do_not_overlap() -> None:
    for versions in operators().values():
        opsets = [o for cls in versions for o in cls.opsets]
        assert len(opsets) == len(set(opsets))
