"""Operators of several outputs, each subset of which a node may name: on NumPy, as planned and optimised, as a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state

from pyruntime.compiler.build import build_plan
from pyruntime.ir import Array, Constant, Node, TensorType, ValueNeeded
from pyruntime.kernels import Limits, Target
from pyruntime.ops.base import Op, registered
from pyruntime.ops.interpreter import execute
from pyruntime.ops.registry import modules
from pyruntime.passes import optimize
from tests.compiler.graphs import typed_graph
from tests.contrib.case import draws, op_of
from tests.contrib.samples import sample
from tests.harness import make_op, node_tests, op_and_data, single_node, typed
from tests.oracle import node_of
from tests.passes.support import evaluate

MS, ML = "com.microsoft", "ai.onnx.ml"
DRAWN = range(4)
MOST = 8
"""Outputs of a node whose subsets are tried."""

ELSEWHERE = {
    **dict.fromkeys(
        [("", "If"), ("", "Loop"), ("", "Scan"), ("", "SequenceMap")], "tests/compiler/test_unread_outputs.py"
    ),
    **dict.fromkeys([(MS, "BeamSearch"), (MS, "WhisperBeamSearch"), (MS, "Sampling")], "tests.contrib.test_generation"),
    ("ai.onnx.preview.training", "Gradient"): "it is written as others when a model is imported",
}
"""Operators with graphs, and where their outputs are tested."""


@dataclass(frozen=True)
class Sample:
    """An operator that names all of its outputs, and its inputs."""

    label: str
    op: Op
    inputs: list[Array | None]


def _classifiers() -> Iterator[tuple[tuple[str, str], Sample]]:
    x = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    tree = {"nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0]}
    tree |= {"nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "class_treeids": [0, 0]}
    votes = {"class_nodeids": [1, 2], "class_ids": [0, 1]}
    for name, attributes in {
        "LinearClassifier": {"coefficients": [1.0, -1.0, 0.5, 2.0], "classlabels_ints": [3, 4]},
        "SVMClassifier": {"coefficients": [1.0, -1.0, 0.5, 2.0], "rho": [0.5], "classlabels_ints": [3, 4]},
        "TreeEnsembleClassifier": {
            **(tree | votes),
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
            "nodes_values": [0.5, 0.0, 0.0],
            "class_weights": [1.0, 2.0],
            "classlabels_int64s": [3, 4],
        },
    }.items():
        yield (ML, name), Sample(name, make_op(node_of(name, [x], 2, ML, **attributes), {"": 15, ML: 1}), [x])


def _drawn() -> Iterator[tuple[tuple[str, str], Sample]]:
    for name, number in product(draws(), DRAWN):
        case = sample(name, 0, number)
        yield (case.domain, name), Sample(f"{name} {number}", op_of(case), list(case.inputs))


def _node_tests() -> Iterator[tuple[tuple[str, str], Sample]]:
    for name, case in node_tests().items():
        node = single_node(case)
        if node is None or len(node.output) < 2 or any(a.HasField("g") for a in node.attribute):
            continue
        op, data = op_and_data(name)
        yield ("" if node.domain == "ai.onnx" else node.domain, node.op_type), Sample(name, op, data[0][0])


@lru_cache(maxsize=1)
def samples() -> Mapping[tuple[str, str], list[Sample]]:
    """Those of each operator, by domain and name, that has several outputs."""
    several = {key for key, count in _counts().items() if count > 1}
    found: dict[tuple[str, str], list[Sample]] = {}
    for key, one in (*_classifiers(), *_drawn(), *_node_tests()):
        if key in several:
            found.setdefault(key, []).append(one)
    return found


@lru_cache(maxsize=1)
def _counts() -> Mapping[tuple[str, str], int]:
    """How many outputs operators have at most, as ONNX's and onnxruntime's schemas say."""
    found: dict[tuple[str, str], int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        key = (schema.domain, schema.name)
        found[key] = max(found.get(key, 0), schema.max_output)
    for schema in onnxruntime_pybind11_state.get_all_operator_schema():
        key = (schema.domain, schema.name)
        found[key] = max(found.get(key, 0), len(schema.outputs))
    return found


def test_operators_of_several_outputs__all_of_them__are_tested() -> None:
    for module in modules():
        import_module(module)
    several = {key for key in registered if _counts().get(key, 0) > 1}
    assert several - samples().keys() - ELSEWHERE.keys() == set()


def _made(op: Op, inputs: Sequence[Array | None]) -> list[Any]:
    with np.errstate(all="ignore"):
        return [y and y.value() for y in execute(op, *map(typed, inputs))]


def _whole(one: Sample) -> tuple[Op, list[Any]]:
    """The operator with as many outputs as it gives, and these."""
    count = min(MOST, len(one.op.infer(*map(typed, one.inputs))))
    op = replace(one.op, present=(True,) * count)
    try:
        return op, _made(op, one.inputs)
    except Exception:  # those that the sample does not name are not to be had
        op = replace(one.op, present=(one.op.present + (False,) * count)[:count])
        return op, _made(op, one.inputs)


def _subsets(op: Op) -> Iterator[tuple[bool, ...]]:
    """Which outputs are named."""
    for wanted in product(*((False, True) if named else (False,) for named in op.present)):
        if any(wanted):
            yield wanted


def _planned(op: Op, inputs: Sequence[Array | None], target: Target) -> list[Any]:
    """The outputs of the node as passes leave it, None for those that are absent; a plan is made of it."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    kinds = {n: t for n, x in zip(names, inputs, strict=True) if (t := typed(x)) is not None}
    outputs = [f"y{i}" if named else "" for i, named in enumerate(op.present)]
    known = set(kinds) if op.data_dependent else set[str]()
    while True:
        try:
            types = {
                n: replace(t, source=None, name=n) if n not in known else replace(t, name=n) for n, t in kinds.items()
            }
            op.infer(*(types.get(n) for n in names))
            break
        except ValueNeeded as missing:
            known.add(str(missing.name))
    fed = {n: TensorType(t.dtype, t.shape) for n, t in kinds.items() if n not in known}
    constants = {n: Constant.from_array(kinds[n].value(), kinds[n].dtype) for n in known}
    wanted = [n for n in outputs if n]
    graph = typed_graph([Node(op, tuple(names), tuple(outputs), "node")], fed, wanted, constants)
    optimize(graph, target)
    graph.verify()
    build_plan(graph, target)
    made = dict(zip(wanted, evaluate(graph, {n: kinds[n].value() for n in fed}), strict=True))
    return [made.get(n) for n in outputs]


@pytest.mark.parametrize("key", samples(), ids=lambda key: ".".join(filter(None, key)))
def test_outputs__each_subset_of_them__are_those_of_all(key: tuple[str, str]) -> None:
    target = Target(Limits(storage_buffers=10))
    for one in samples()[key]:
        whole, wanted = _whole(one)
        for present in _subsets(whole):
            op = replace(whole, present=present)
            for exact, made in ((True, _made(op, one.inputs)), (False, _planned(op, one.inputs, target))):
                for index, named in enumerate(present):
                    got: Any = made[index] if index < len(made) else None
                    assert got is not None or not named, f"{one.label} {present}: output {index}"
                    if named and op.pure:
                        _compare(got, wanted[index], exact, f"{one.label} {present}: output {index}")


def _compare(mine: Array, theirs: Array, exact: bool, label: str) -> None:
    assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), label
    if exact or mine.dtype.kind not in "fc":
        np.testing.assert_array_equal(mine, theirs, err_msg=label)
    else:
        np.testing.assert_allclose(mine, theirs, 1e-2, 1e-2, err_msg=label)
