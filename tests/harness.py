"""Runs one operator on arrays: types inferred, `evaluate` on NumPy, `lower` on a real WebGPU device."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.test_case import TestCase

from pyruntime.ir import Array, Constant, DType, TensorType, known
from pyruntime.ir.encoding import decode, encode, round_to
from pyruntime.ops.base import Op
from pyruntime.ops.caches import overwritten
from pyruntime.ops.decomposed import Decomposed
from pyruntime.ops.registry import op_class
from tools.devkit.shell import CACHE

ATTRIBUTE: dict[int, Callable[[Any], Any]] = {
    onnx.AttributeProto.FLOAT: float,
    onnx.AttributeProto.INT: int,
    onnx.AttributeProto.STRING: lambda s: s.decode(),
    onnx.AttributeProto.FLOATS: tuple,
    onnx.AttributeProto.INTS: tuple,
    onnx.AttributeProto.STRINGS: lambda v: tuple(s.decode() for s in v),
}


def carrier(array: Array | onnx.TensorProto) -> tuple[DType, Array]:
    """The ONNX type of an array (NumPy's or ml_dtypes') or TensorProto, and its value in that type's carrier."""
    array = onnx.numpy_helper.to_array(array) if isinstance(array, onnx.TensorProto) else np.asarray(array)
    dtype = DType.from_numpy(array.dtype)
    return dtype, array if dtype is DType.STRING else array.astype(dtype.numpy)


def make_op(node: onnx.NodeProto, opsets: dict[str, int]) -> Op:
    """The operator of a NodeProto without subgraphs."""
    fields: dict[str, Any] = {}
    for a in node.attribute:
        value = onnx.helper.get_attribute_value(a)
        if a.type == onnx.AttributeProto.TENSOR:
            dtype, array = carrier(value)
            fields[a.name] = Constant.from_array(array, dtype)
        else:
            fields[a.name] = ATTRIBUTE[a.type](value)
    domain = "" if node.domain == "ai.onnx" else node.domain
    cls = op_class(node.op_type, domain, opsets[domain])
    return cls(**fields, present=tuple(bool(o) for o in node.output))


def typed(array: Array | None, known: bool = True) -> TensorType | None:
    """The TensorType of an array, with its value where `known`."""
    if array is None:
        return None
    dtype, value = carrier(array)
    return TensorType(dtype, tuple(value.shape), (lambda: value) if known else None)


def run_op(op: Op, inputs: list[Array | None], gpu: Any = None) -> list[Array]:
    """The operator's outputs: on NumPy, or on `gpu` (a e2e.harness.gpu.Gpu)."""
    types: list[Any] = [typed(x) for x in inputs]
    outs: tuple[Any, ...] = op.infer(*types)
    values = [None if x is None else carrier(x)[1] for x in inputs]
    if gpu is not None and isinstance(op, Decomposed):
        return run_decomposed(op, types, values, gpu)
    if gpu is not None:
        return run_typed(op, types, values, gpu)
    results = op.evaluate_typed(tuple(types), *values)
    for t, r in zip(outs, results, strict=False):
        if isinstance(t, TensorType) and r is not None:
            assert tuple(r.shape) == t.shape, f"infer said {t}, evaluate gave {r.shape}"
    return [
        round_to(np.asarray(r), t.dtype) if isinstance(t, TensorType) and t.dtype is not DType.STRING else r
        for t, r in zip(outs, results, strict=False)
    ]


def run_typed(op: Any, types: list[Any], values: list[Any], gpu: Any) -> list[Array]:
    """The outputs of `lower` on `gpu`, from carriers; of a decomposed operator, those that are wanted of its body."""
    if isinstance(op, Decomposed):
        return [y for i, y in enumerate(run_decomposed(op, types, values, gpu)) if op.wants(i)]
    outs = op.infer(*types)
    alias = op.alias(*types)
    if alias is not None:
        raw = encode(np.asarray(values[alias]), types[alias].dtype)
        return [decode(raw, outs[0].dtype, outs[0].shape)]
    wanted = [t if op.wants(i) else None for i, t in enumerate(outs)]
    made: list[Array] = gpu.run(op.lower(gpu.target, *types), values, types, wanted, overwritten(op))
    return made


def run_decomposed(op: Decomposed, types: list[Any], arrays: list[Array | None], gpu: Any) -> list[Array]:
    """The outputs of an operator that is said by others, each of these on `gpu`."""
    body, outputs = op.written(*types)
    values: dict[str, Any] = {f"in{i}": (t, x) for i, (t, x) in enumerate(zip(types, arrays, strict=True))}
    values |= {name: (known(data.type, data.numpy()), data.numpy()) for name, data in body.constants.items()}
    for node in body.nodes:
        given = [values[n] if n else (None, None) for n in node.inputs]
        made = run_typed(node.op, [t for t, _ in given], [x for _, x in given], gpu)
        inner: Any = node.op
        kinds = inner.infer(*(t for t, _ in given))
        wanted = [
            (name, kind) for i, (name, kind) in enumerate(zip(node.outputs, kinds, strict=False)) if inner.wants(i)
        ]
        for (name, kind), y in zip(wanted, made, strict=False):
            values[name] = (known(kind, y), y)
    named: list[Any] = [None if y is None else values[body.name(y)][1] for y in outputs]
    return named


@lru_cache(maxsize=1)
def node_tests() -> dict[str, TestCase]:
    """ONNX's own node tests by name.

    The package computes their outputs when asked, in 14 s, most of them for three poolings: kept in the cache.
    """
    kept = CACHE / f"onnx-node-tests-{onnx.__version__}-numpy-{np.__version__}.pickle"
    try:
        cases: dict[str, TestCase] = pickle.loads(kept.read_bytes())
    except FileNotFoundError:
        cases = generated_node_tests()
        kept.parent.mkdir(exist_ok=True)
        whole = kept.with_suffix(f".{os.getpid()}")
        whole.write_bytes(pickle.dumps(cases))
        whole.replace(kept)
    return cases


def generated_node_tests() -> dict[str, TestCase]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # generating them overflows on purpose
        return {case.name: case for case in collect_testcases(None)}


def single_node(case: TestCase) -> onnx.NodeProto | None:
    """The case's only node, or None where it has several, functions or subgraphs."""
    assert case.model is not None
    graph = case.model.graph
    return graph.node[0] if len(graph.node) == 1 and not graph.initializer else None


def op_and_data(name: str) -> tuple[Op, list[tuple[list[Any], list[Any]]]]:
    """The operator of ONNX's single-node test `name`, and its data sets: inputs, absent ones None, and outputs."""
    case = node_tests()[name]
    node = single_node(case)
    assert node is not None and case.model is not None and case.data_sets is not None, "not a single-node test"
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in case.model.opset_import}
    data = []
    for inputs, outputs in case.data_sets:
        feed = dict(zip((i.name for i in case.model.graph.input), inputs, strict=True))
        data.append(([feed[n] if n else None for n in node.input], list(outputs)))
    return make_op(node, opsets), data


def check_case(name: str, gpu: Any = None) -> None:
    """Run ONNX node test `name` and compare with its expected outputs at its own tolerances."""
    op, data = op_and_data(name)
    case = node_tests()[name]
    for inputs, outputs in data:
        got = run_op(op, inputs, gpu)
        named = got if gpu is not None else [y for i, y in enumerate(got) if op.wants(i)]
        for index, (mine, theirs) in enumerate(zip(named, outputs, strict=False)):
            dtype, expected = carrier(theirs)
            assert mine.shape == expected.shape, f"output {index}: shape {mine.shape}, expected {expected.shape}"
            if dtype is DType.STRING:
                np.testing.assert_array_equal(mine, expected)
            elif dtype.is_float or expected.dtype.kind == "c":
                # ONNX's own runner allows bfloat16 two units in the last place.
                rtol = max(case.rtol, 2**-6 if dtype is DType.BFLOAT16 else 1e-3)
                np.testing.assert_allclose(mine, expected, rtol, max(case.atol, 1e-5), equal_nan=True)
            else:
                np.testing.assert_array_equal(mine, expected)


__all__ = ["check_case", "make_op", "node_tests", "op_and_data", "run_op", "single_node", "typed"]
