"""Operators whose own input is the residual after them: plans are proved, all kernels with an epilogue are hit."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from itertools import product

import pytest

from pyruntime.compiler.plan import Plan
from pyruntime.compiler.verify import checked
from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Target
from pyruntime.kernels.products.integer_matmul import PACKED_DOT
from pyruntime.kernels.wgsl.library import read, shader_names
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.program import Program
from pyruntime.target.named import read_target
from tests.forms import KINDS, SIZES, Form, Shape, forms

LIMITS = read_target("desktop").limits
TARGETS = {
    "gpu": Target(LIMITS, frozenset({"subgroups", "shader-f16", PACKED_DOT}), "nvidia"),
    "software": Target(LIMITS, frozenset(), "google"),
    "smallest": Target(),
    "wasm": read_target("wasm"),
}
HOOKS = {
    "conv_depthwise": "conv_depthwise",
    "conv_depthwise_last": "conv_depthwise_last",
    "conv_direct": "conv_direct",
    "conv_implicit_gemm": "conv_implicit_gemm",
    "conv_panels": "conv_panels",
    "conv_split_sum": "conv_split_sum",
    "conv_transpose": "conv_transpose_(?!rows)",
    "conv_transpose_rows": "conv_transpose_rows",
    "matmul_direct": "matmul_direct",
    "matmul_serial": "matmul_serial",
    "matmul_skinny": "matmul_skinny",
    "matmul_nbits_direct": "matmul_[248]bits_direct",
    "matmul_nbits_skinny": "matmul_[248]bits_skinny",
    "matmul_packed_dot": "matmul_dot_[248]bits",
    "matmul_packed_tiled": "matmul_[248]bits_[sml][1-8]",
    "matmul_sum_norm": "matmul_sum_norm",
    "matmul_sum_splits": "matmul_sum_splits",
    "matmul_tiled": "(conv_)?matmul_[sml][1-8]",
    "normalize_groups": "normalize_groups",
    "normalize_spread": "normalize_spread",
}
"""Templates that take an epilogue, and how the names of the kernels made of them begin."""

NOT_FLOAT32 = {
    "conv_depthwise_int8",
    "conv_int8_direct",
    "matmul_half_tiled",
    "matmul_integer_direct",
    "matmul_integer_skinny",
    "matmul_integer_tiled",
    "matmul_matrix_tiled",
}
"""Templates that take one, but no float32 `t` as operand."""


def planned(form: Form, target: Target) -> Plan:
    """The form's plan; the verifier has seen it."""
    assert checked()
    program = Program(import_model(read_model(form.model())).graph, NullDevice(target))
    stage = asyncio.run(program.prepare({"x": TensorType(DType.FLOAT, form.shape)}, form.outputs))
    assert stage is not None, form.name
    return stage.executable.plan


def own_residuals(plan: Plan) -> set[str]:
    """Kernels with an epilogue that reads what the operator itself reads.

    Raises:
        AssertionError: one that reads it both ways overwrites it, which only `normalize_spread` may.
    """
    found = set()
    for command in plan.commands:
        hooked = any(re.match(begin, command.kernel) for begin in HOOKS.values())
        fused = hooked and re.search("_(add|sub|mul)", command.kernel)
        before = {
            plan.root(a.value) for c in plan.commands if c.node == command.node and c is not command for a in c.accesses
        }
        reads = Counter(plan.root(a.value) for a in command.accesses if not a.write)
        if fused and any(count > 1 or value in before for value, count in reads.items() if value == "t"):
            found.add(command.kernel)
            overwritten = {a.region for a in command.accesses if a.write}
            if reads["t"] > 1 and not command.kernel.startswith("normalize_spread"):
                assert not any(a.region in overwritten for a in command.accesses if plan.root(a.value) == "t")
    return found


Found = dict[tuple[Shape, str], set[str]]


@pytest.fixture(scope="module")
def found() -> Found:
    """Kernels that took their own input as residual, by the size and the target that were planned so far."""
    return {}


def plan_all(size: Shape, target: str, found: Found) -> None:
    """Plan all forms of a size for a target."""
    found[size, target] = set()
    for form in forms(size):
        found[size, target] |= own_residuals(planned(form, TARGETS[target]))


def missing(found: Found) -> list[str]:
    """Templates of which no kernel is among those found."""
    kernels = set().union(*found.values())
    return [name for name, begin in HOOKS.items() if not any(re.match(begin, k) for k in kernels)]


@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("target", TARGETS)
def test_forms__of_every_kind__destroy_nothing_that_is_still_read(size: Shape, target: str, found: Found) -> None:
    plan_all(size, target, found)


def test_forms__kernels_with_an_epilogue__are_all_among_them(found: Found) -> None:
    """Where not all of the tests above ran, forms are planned until there is none missing."""
    # half_operands includes finish_quad.
    hook = re.compile(r"^(fn finish\(|//#include (finish_quad|half_operands)\b)", re.M)
    hooked = {name for name in shader_names() if hook.search(read(name))}
    assert hooked == HOOKS.keys() | NOT_FLOAT32
    for size, target in product(SIZES, TARGETS):
        if (size, target) not in found and missing(found):
            plan_all(size, target, found)
    assert not missing(found)


def test_forms__kinds__are_at_least_45_at_most_sizes() -> None:
    assert len(KINDS) >= 45
    assert len({form.name for form in forms(SIZES[0], ("Add", "Mul", "Sub"))}) >= 135
