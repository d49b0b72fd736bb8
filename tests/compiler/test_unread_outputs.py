"""Nodes of several outputs of which only some are read: each such node of ONNX's tests, with each subset of them."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import numpy as np
import onnx
import pytest

import pyruntime
from tests.harness import node_tests
from tests.hostile.targets import load
from tests.onnx.corpus import node_models


def smallest() -> dict[str, str]:
    """The name of the smallest model for each operator and number of its outputs, by what it shows."""
    found: dict[str, str] = {}
    for name, data in sorted(node_models().items(), key=lambda item: len(item[1])):
        node = onnx.ModelProto.FromString(data).graph.node
        if len(node) == 1 and sum(map(bool, node[0].output)) > 1:
            found.setdefault(f"{node[0].op_type}-{len(node[0].output)}", name)
    return found


def with_some(model: onnx.ModelProto, kept: tuple[str, ...], named: bool) -> bytes:
    """`model` with these outputs; `named`: its node keeps the names of the others."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    outputs = [o for o in made.graph.output if o.name in kept]
    del made.graph.output[:]
    made.graph.output.extend(outputs)
    if not named:
        node = made.graph.node[0]
        node.output[:] = [o if o in kept else "" for o in node.output]
    return bytes(made.SerializeToString())


def variants(model: onnx.ModelProto) -> Iterator[tuple[tuple[str, ...], bytes]]:
    """Each subset of the model's outputs, and the model that has only them, in two spellings."""
    names = [o.name for o in model.graph.output if o.name in model.graph.node[0].output]
    for count, named in product(range(1, len(names) + (len(names) == 1)), (True, False)):
        for kept in combinations(names, count):
            yield kept, with_some(model, kept, named)


def parts(value: Any) -> list[Any]:
    """The tensors of a sequence, or the one tensor."""
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("kind", smallest())
def test_plan__of_some_outputs__is_made(kind: str) -> None:
    model = onnx.ModelProto.FromString(node_models()[smallest()[kind]])
    for _, data in variants(model):
        load(data)


@pytest.mark.parametrize("kind", smallest())
def test_results__of_some_outputs__are_those_of_all(kind: str) -> None:
    case = node_tests()[smallest()[kind]]
    assert case.model is not None and case.data_sets is not None
    feeds = dict(zip((i.name for i in case.model.graph.input), case.data_sets[0][0], strict=False))
    names = [o.name for o in case.model.graph.output]

    async def run(data: bytes) -> list[Any]:
        session = await pyruntime.InferenceSession.create(data, providers=["CPUExecutionProvider"])
        try:
            return list(await session.run_async(None, feeds))
        finally:
            session.release()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = dict(zip(names, asyncio.run(run(case.model.SerializeToString())), strict=True))
        for kept, data in variants(case.model):
            for name, got in zip(kept, asyncio.run(run(data)), strict=True):
                for mine, theirs in zip(parts(got), parts(wanted[name]), strict=True):
                    np.testing.assert_array_equal(mine, theirs, err_msg=name)
