"""OPERATORS.md: every operator, its opsets, the types it computes on the GPU, and the node tests it passes.

It follows from the registry, the node tests and the lists of known failures, which the suites hold to what happens.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.test_case import TestCase

from e2e.conformance.cases import plain_tensor_tests
from e2e.conformance.known import known_failures
from pyruntime.errors import OrtError
from pyruntime.ir import DType, TensorType, ValueNeeded, known
from pyruntime.kernels import Dispatch, Limits, Target
from pyruntime.ops.base import LATEST, Op, Unsupported, registered
from pyruntime.ops.decomposed import Decomposed
from pyruntime.ops.interpreter import execute
from pyruntime.ops.registry import modules, names
from tests.harness import carrier, make_op, node_tests, single_node, typed
from tests.oracle import node_of

__all__ = ["PATH", "render"]

PATH = Path(__file__).parents[2] / "OPERATORS.md"
DOMAINS = {"": "ai.onnx", "ai.onnx.ml": "ai.onnx.ml", "ai.onnx.preview.training": "ai.onnx.preview.training"}
EXAMPLES = 8
"""Node tests of an operator that are tried with other types."""

SHORT = {
    DType.FLOAT: "f32",
    DType.FLOAT16: "f16",
    DType.BFLOAT16: "bf16",
    DType.FLOAT8E4M3FN: "f8",
    DType.INT8: "i8",
    DType.INT16: "i16",
    DType.INT32: "i32",
    DType.INT64: "i64",
    DType.UINT8: "u8",
    DType.UINT16: "u16",
    DType.UINT32: "u32",
    DType.UINT64: "u64",
    DType.INT4: "i4",
    DType.UINT4: "u4",
    DType.BOOL: "bool",
    DType.DOUBLE: "f64",
}
TARGET = Target(Limits(storage_buffers=10))

HEADER = """# Operators

<!-- written by `python -m e2e.conformance --table` -->

{summary}

- **Opsets**: versions of the operator's domain that it is implemented for.
- **GPU**: element types that run on the GPU, of the first input with several allowed types. f64 is listed only if the
  operator just moves data. Every operator runs on the CPU, in NumPy, for all types of its schema.
- **Tests**: ONNX's node tests in which the operator occurs. All pass, on NumPy and in the browser, where no other
  number is given.
- **GPU only**: how many of those with plain tensors pass in the browser with `session.disable_cpu_ep_fallback`, that
  is, without a node on the CPU.
- **No kernel**: runs on the CPU, or is resolved while the graph is planned, as Constant, Shape and Size are. The bodies
  of If, Loop and Scan run on the GPU.
"""

CONTRIB = """onnxruntime's operators (version 1 of com.microsoft), tested against its CPU provider. *Written as others*:
replaced by simpler operators, nearly all of which have kernels. SimplifiedLayerNormalization is also accepted where
onnxruntime has it, in ai.onnx.
"""


@dataclass(frozen=True)
class Example:
    """One node with inputs, absent ones None."""

    node: onnx.NodeProto
    opsets: dict[str, int]
    inputs: list[Any]


@dataclass
class Tally:
    """Node tests an operator occurs in, and those that pass."""

    tests: int = 0
    native: int = 0
    browser: int = 0
    plain: int = 0
    gpu: int = 0
    examples: list[Example] = field(default_factory=list)


def _nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _operators_of(case: TestCase) -> set[tuple[str, str]]:
    """(domain, name) of the operators that occur in a test; a function's body where the model brings it."""
    assert case.model is not None
    found = _nodes([*case.model.graph.node, *(n for f in case.model.functions for n in f.node)])
    return {("" if n.domain == "ai.onnx" else n.domain, n.op_type) for n in found}


@lru_cache(maxsize=1)
def _tallies() -> dict[tuple[str, str], Tally]:
    native, browser, gpu = (known_failures(s) for s in ("native", "default", "without_fallback"))
    plain = plain_tensor_tests()
    found: dict[tuple[str, str], Tally] = {}
    for name, case in node_tests().items():
        for key in _operators_of(case):
            tally = found.setdefault(key, Tally())
            tally.tests += 1
            tally.native += name not in native
            tally.browser += name not in browser
            tally.plain += name in plain
            tally.gpu += name in plain and name not in gpu
            node = single_node(case)
            if node is not None and not any(a.HasField("g") for a in node.attribute):
                tally.examples.append(_example(case, node))
    for example in _extra_examples():
        found.setdefault((example.node.domain, example.node.op_type), Tally()).examples.append(example)
    return found


def _example(case: TestCase, node: onnx.NodeProto) -> Example:
    assert case.model is not None and case.data_sets is not None
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in case.model.opset_import}
    feed = dict(zip((i.name for i in case.model.graph.input), case.data_sets[0][0], strict=False))
    return Example(node, opsets, [feed[n] if n else None for n in node.input])


def _extra_examples() -> Iterator[Example]:
    """For operators with kernels that no node test is about."""
    image, table = np.ones((1, 2, 6, 6), np.float32), np.ones((2, 3), np.float32)
    rois = np.array([[0, 0, 0, 4, 4]], np.float32)
    opsets = {"": LATEST, "ai.onnx.ml": 3}
    yield Example(node_of("GlobalLpPool", [image], p=2), opsets, [image])
    yield Example(node_of("MaxRoiPool", [image, rois], pooled_shape=[2, 2]), opsets, [image, rois])
    ml: dict[str, dict[str, Any]] = {
        "Imputer": {"imputed_value_floats": [1.0]},
        "Normalizer": {"norm": "L2"},
        "Scaler": {"offset": [0.0], "scale": [1.0]},
        "TreeEnsembleRegressor": {
            "n_targets": 1,
            "nodes_featureids": [0, 0, 0],
            "nodes_values": [0.5, 0.0, 0.0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
            "nodes_treeids": [0, 0, 0],
            "nodes_nodeids": [0, 1, 2],
            "nodes_truenodeids": [1, 0, 0],
            "nodes_falsenodeids": [2, 0, 0],
            "target_treeids": [0, 0],
            "target_nodeids": [1, 2],
            "target_ids": [0, 0],
            "target_weights": [1.0, 2.0],
        },
    }
    for name, attributes in ml.items():
        yield Example(node_of(name, [table], domain="ai.onnx.ml", **attributes), opsets, [table])
    codes = np.ones((2, 3), np.int64)
    categories: dict[str, Any] = {"cats_int64s": [1], "cats_strings": ["a"]}
    yield Example(node_of("CategoryMapper", [codes], domain="ai.onnx.ml", **categories), opsets, [codes])


def _lowers(example: Example) -> set[DType]:
    """Types the example's operator has a kernel for, given to the inputs of its first type parameter with a choice."""
    node, opsets = example.node, example.opsets
    op, schema = make_op(node, opsets), onnx.defs.get_schema(node.op_type, opsets[node.domain], node.domain)
    allowed = {c.type_param_str: list(c.allowed_type_strs) for c in schema.type_constraints}
    formals = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(len(node.input))]
    if not formals:
        return set()
    varied = next((f for f in formals if len(allowed.get(f, ())) > 1), formals[0])
    found = set()
    for dtype in SHORT:
        types = [_retyped(x, dtype, formal == varied) for x, formal in zip(example.inputs, formals, strict=True)]
        if dtype.type_string in allowed.get(varied, [varied]) and _has_kernel(op, types):
            found.add(dtype)
    return found


def _has_kernel(op: Op, types: Sequence[Any]) -> bool:
    if not all(isinstance(t, TensorType) and t.dtype.compute for t in types if t is not None):
        return False
    try:
        op.infer(*types)
        if op.alias(*types) is not None:
            return True
        if isinstance(op, Decomposed):
            return _parts_have_kernels(op, types)
        dispatches: tuple[Dispatch, ...] = op.lower(TARGET, *types)
    except (Unsupported, OrtError, ValueNeeded):
        return False
    return not any(b.dtype is DType.DOUBLE for d in dispatches for b in d.kernel.bindings)


def _parts_have_kernels(op: Decomposed, types: Sequence[Any]) -> bool:
    """True where all that `op` is written as has kernels, but what follows from constants."""
    body, _ = op.written(*types)
    values: dict[str, Any] = {f"in{i}": t for i, t in enumerate(types)}
    values |= {name: known(data.type, data.numpy()) for name, data in body.constants.items()}
    static = {"", *body.constants}
    for node in body.nodes:
        assert isinstance(node.op, Op)
        given = [values[n] if n else None for n in node.inputs]
        if static.issuperset(node.inputs):
            static.update(node.outputs)
            made: Sequence[Any] = execute(node.op, *given)
        elif _has_kernel(node.op, given):
            made = node.op.infer(*given)
        else:
            return False
        values.update(zip(node.outputs, made, strict=False))
    return True


def _retyped(given: Any, dtype: DType, change: bool) -> TensorType | None:
    """The type of a test's input, its element type replaced where `change`; values stay known."""
    if isinstance(given, list) or given is None:
        return None
    if not change:
        return typed(given)
    own, array = carrier(given)
    if own is DType.STRING or own.carrier.startswith("complex"):
        return typed(given)
    with np.errstate(all="ignore"):
        value = array.astype(dtype.numpy)
    return TensorType(dtype, array.shape, lambda: value)


def _gpu_types(key: tuple[str, str], tally: Tally) -> str:
    if not any(cls.has_kernel() for cls in registered[key]):
        return ""
    assert tally.examples, f"{key} has kernels and no example: add one"
    found = Counter(d for example in tally.examples[:EXAMPLES] for d in _lowers(example))
    half = min(len(tally.examples), EXAMPLES) / 2
    return " ".join(short for dtype, short in SHORT.items() if found[dtype] >= max(half, 1))


def _opsets(classes: Sequence[type[Op]]) -> str:
    """The opsets as ranges: '1-6, 8-28'."""
    numbers = sorted({o for cls in classes for o in cls.opsets})
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{'' if b == LATEST else b}" for a, b in runs)


def render() -> str:
    """The text of OPERATORS.md."""
    for module in modules():
        import_module(module)
    schemas = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas_with_history()}
    lines: list[str] = []
    counts: list[str] = []
    for domain, title in DOMAINS.items():
        rows = [_row(domain, name) for name in names(domain) if (domain, name) in schemas]
        on_gpu = sum(bool(row[2]) for row in rows)
        counts.append(f"{len(rows)} of {title} ({on_gpu} on the GPU)")
        lines += [
            f"## {title}",
            "",
            "| Operator | Opsets | GPU | Tests | GPU only |",
            "| --- | --- | --- | ---: | ---: |",
        ]
        lines += [f"| {' | '.join(row)} |" for row in rows if row[2]] + [""]
        lines += _listed("No kernel", [_without_kernel(row) for row in rows if not row[2]])
    kinds: dict[str, list[str]] = {"Kernels": [], "Written as others": [], "No kernel": []}
    for name in names("com.microsoft"):
        kinds[_kind(name)].append(name)
    count = sum(map(len, kinds.values()))
    counts.append(f"{count} of com.microsoft ({count - len(kinds['No kernel'])} on the GPU)")
    lines += ["## com.microsoft", "", CONTRIB]
    for kind, of_kind in kinds.items():
        lines += _listed(kind, of_kind)
    return "\n".join([HEADER.format(summary=f"Operators: {', '.join(counts)}."), *lines]).rstrip() + "\n"


def _listed(title: str, items: Sequence[str]) -> list[str]:
    """The lines of a paragraph that lists names."""
    return [*textwrap.wrap(f"**{title}**: {', '.join(items)}.", 120, break_on_hyphens=False), ""]


def _without_kernel(row: Sequence[str]) -> str:
    """A row of the table in a few words: the name, its opsets, and the tests that pass if these are not all."""
    name, opsets, _, tests, _ = row
    return f"{name} ({opsets}{'' if tests.isdecimal() else f'; tests: {tests}'})"


def _row(domain: str, name: str) -> list[str]:
    tally = _tallies().get((domain, name), Tally())
    if tally.native == tally.browser:
        tests = str(tally.tests) if tally.native == tally.tests else f"{tally.native} of {tally.tests}"
    else:
        tests = f"{tally.native} on NumPy, {tally.browser} in the browser, of {tally.tests}"
    types = _gpu_types((domain, name), tally)
    return [name, _opsets(registered[domain, name]), types, tests, f"{tally.gpu} of {tally.plain}"]


def _kind(name: str) -> str:
    """Where an operator of com.microsoft runs."""
    (cls,) = registered["com.microsoft", name]
    return "Written as others" if issubclass(cls, Decomposed) else "Kernels" if cls.has_kernel() else "No kernel"
