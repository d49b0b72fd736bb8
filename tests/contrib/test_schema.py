"""Every operator of com.microsoft against onnxruntime's own schemas: attributes, inputs, outputs, opsets."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state

from pyruntime.onnx.importer.attributes import needed_inputs, signature
from pyruntime.ops.base import LATEST, Op, registered
from pyruntime.ops.registry import find, modules
from tests.contrib.case import draws, op_of
from tests.harness import typed
from tests.ops.test_schema import absent_inputs, attribute_complaints
from tests.oracle import check_against_ort

DOMAIN = "com.microsoft"
UNCOUNTED = 2147483647
"""How a schema says that there is no bound."""

ALLOWED: dict[tuple[str, str], str] = {
    (
        "SimplifiedLayerNormalization",
        "unknown to onnxruntime",
    ): "some exporters write com.microsoft, though onnxruntime has it in ONNX's own domain",
}
"""(operator or operator.attribute, complaint) to the reason why it may differ. An entry that does not apply fails."""

_MODELS = "its subgraphs are models: tests/contrib/test_generation.py"

UNDRAWN: dict[str, str] = dict.fromkeys(("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"), _MODELS)
"""Operators of which `tests/contrib/families` draws no case, with the reason."""


@lru_cache(maxsize=1)
def operators() -> dict[str, type[Op]]:
    """Everything that discovery finds, imported."""
    for module in modules():
        import_module(module)
    inside = {
        name: [c for c in versions if c.__module__.startswith("pyruntime.ops.")]
        for (domain, name), versions in registered.items()
        if domain == DOMAIN
    }
    assert all(len(versions) <= 1 for versions in inside.values()), "com.microsoft has one version"
    return {name: versions[0] for name, versions in inside.items() if versions}


@lru_cache(maxsize=1)
def schemas() -> dict[str, Any]:
    """onnxruntime's schemas of com.microsoft, with defaults as onnx.defs has them."""
    found = {}
    for schema in onnxruntime_pybind11_state.get_all_operator_schema():
        if schema.domain == DOMAIN or (schema.domain == "" and schema.name == "SimplifiedLayerNormalization"):
            attributes = {
                name: SimpleNamespace(
                    type=a.type, required=a.required, default_value=onnx.AttributeProto.FromString(a._default_value)
                )
                for name, a in schema.attributes.items()
            }
            found[schema.domain, schema.name] = SimpleNamespace(schema=schema, attributes=attributes)
    return {name: found[domain, name] for domain, name in sorted(found)}


def complaints(name: str) -> set[tuple[str, str]]:
    """Everything in which operator `name` differs from onnxruntime's."""
    cls = operators()[name]
    found = {(name, "unknown to onnxruntime")} if _domain(name) != DOMAIN else set()
    known = schemas().get(name)
    if known is None:
        return found
    found |= {(f"{name}.{a}", what) for a, what in attribute_complaints(cls, known)}
    schema, mine = known.schema, signature(cls)
    most = None if schema.max_input == UNCOUNTED else schema.max_input
    if (mine.least, mine.most) != (schema.min_input, most):
        found.add((name, f"takes {mine.least} to {mine.most} inputs, onnxruntime {schema.min_input} to {most}"))
    if set(cls.opsets) != {1}:
        found.add((name, f"is of versions {cls.opsets}, onnxruntime's of 1"))
    return found


def _domain(name: str) -> str | None:
    known = schemas().get(name)
    return known.schema.domain if known is not None else None


@pytest.mark.parametrize("name", sorted(operators()))
def test_operator__attributes_and_inputs__are_those_of_onnxruntime(name: str) -> None:
    unexplained = {c for c in complaints(name) if c not in ALLOWED}
    assert not unexplained, "\n".join(f"{what}: {why}" for what, why in sorted(unexplained))


@pytest.mark.parametrize("name", sorted(operators()))
def test_operator__inputs_that_may_be_absent__are_those_of_onnxruntime(name: str) -> None:
    if name in schemas():
        assert not needed_inputs(operators()[name]) & absent_inputs(schemas()[name].schema)


def test_allowed_differences__all_still_apply() -> None:
    assert not ALLOWED.keys() - {c for name in operators() for c in complaints(name)}


def test_operators__all_but_those_listed__are_drawn() -> None:
    assert operators().keys() - draws().keys() == UNDRAWN.keys()


@pytest.mark.parametrize("name", sorted(draws()))
def test_operator__outputs__are_as_many_as_onnxruntime_has(name: str) -> None:
    case = draws()[name](np.random.default_rng(0))
    made: Any = op_of(case)
    schema = schemas()[name].schema
    assert schema.min_output <= len(made.infer(*map(typed, case.inputs))) <= schema.max_output


@pytest.mark.parametrize("opset", [7, 8, 12, 13, 16, 17, 20, 23])
@pytest.mark.parametrize("name", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_norms_in_onnx_domain__any_opset__as_onnxruntime(name: str, opset: int) -> None:
    rng = np.random.default_rng(opset)
    x, scale = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 8), (8,)))
    check_against_ort(name, [x, scale], opset=opset, outputs=2)


def test_norms_in_onnx_domain__every_opset__have_a_class() -> None:
    for opset in range(1, LATEST + 1):
        assert find("LayerNormalization", "", opset) and find("SimplifiedLayerNormalization", "", opset)


@pytest.mark.parametrize("opset", [1, 2, 100])
def test_com_microsoft__later_version__is_refused_as_onnxruntime_does(opset: int) -> None:
    assert (find("Gelu", DOMAIN, opset) is None) == (opset > 1)
