"""Plans kept for the next visit: which runs they have, and that nothing of them is lost on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyruntime.compiler.saved import ModelFile, Saved, read, tree_hash, write
from pyruntime.compiler.verify import verify
from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, HostTensor, TensorType
from pyruntime.onnx.formats.source import MemorySource
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.aot.cached_plan import PROGRAMS, cached_plan_file
from pyruntime.session.run.program import Program
from tests.cache_models import CACHED, STATIC, Cached
from tests.compiler.test_saved import run_data
from tests.session.run import test_static_caches as static
from tests.session.run.test_growing_caches import State, Step, decoding

SOURCE = MemorySource(b"a model")
"""Constants are elsewhere here, so the plans have them inside."""


def keep(program: Program, before: bytes | None = None) -> bytes:
    outputs = [{"name": v.name, "type": "float32", "shape": []} for v in program.graph.outputs]
    made = cached_plan_file(
        program, SOURCE, ModelFile(SOURCE.size, tree_hash(SOURCE, SOURCE.size)), [], outputs, before
    )
    assert made is not None
    return made


def kept_file(name: str) -> bytes:
    """What is kept of a decoder of CACHED after a prompt and some tokens; of "static NAME" of one of STATIC."""
    files: list[bytes] = []

    async def use(step: Step, program: Program, device: NullDevice) -> None:
        states = await text(step, 7, 1, 1)
        files.append(keep(program))
        del states

    async def use_static(step: static.Step, program: Program, device: NullDevice) -> None:
        state = await step(await step({}, 0, 7), 7, 1)
        files.append(keep(program))
        del state

    if name.startswith("static "):
        static.decoding(STATIC[name.removeprefix("static ")], use_static)
    else:
        decoding(name, use)
    return files[0]


async def text(step: Step, *chunks: int) -> list[State]:
    states: list[State] = [{}]
    for new in chunks:
        states.append(await step(states[-1], new))
    return states


def check(program: Program, cached: Cached) -> None:
    """Everything planned is in the file, twice the same."""
    made = keep(program)
    assert keep(program) == made == keep(program, made), "twice"
    saved = read(made, SOURCE)
    assert write(saved, SOURCE) == made
    assert len(saved.programs) == len(program.roots)
    roots = sorted(program.roots, key=lambda stage: not stage.compiled.guards.read)
    for stage, saved_one in zip(roots, saved.programs, strict=True):
        plan = saved_one.plan
        verify(plan)
        assert plan.kept == stage.compiled.plan.kept
        assert run_data(plan) == run_data(stage.compiled.plan)
        assert {*saved_one.outputs, *(k.name for k in plan.kept)} == set(cached.caches)
        assert set(saved_one.inputs) in (set(), set(cached.caches.values()))
        assert {k.input for k in plan.kept} <= set(saved_one.inputs)
    in_place = {len(s.compiled.plan.kept) for s in program.roots}
    assert max(in_place) == cached.in_place, "what grows or is written over where it is"


@pytest.mark.parametrize("name", CACHED)
def test_caches_that_grow__kept__are_read_as_they_were_planned(name: str) -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        states = await text(step, 7, 1, 1, 1)
        check(program, CACHED[name])
        del states

    decoding(name, use)


@pytest.mark.parametrize("name", STATIC)
def test_caches_that_are_written_over__kept__are_read_as_they_were_planned(name: str) -> None:
    async def use(step: static.Step, program: Program, device: NullDevice) -> None:
        state, past = await step({}, 0, 7), 7
        for _ in range(3):
            state, past = await step(state, past, 1), past + 1
        check(program, STATIC[name])

    static.decoding(STATIC[name], use)


def test_lengths_that_are_fed__kept__are_sizes() -> None:
    async def use(step: Step, program: Program, device: NullDevice) -> None:
        states = await text(step, 7, 1, 1)
        programs = read(keep(program), SOURCE).programs
        values = [p.sizes["values"] for p in programs if p.sizes]
        assert any(values)
        for made in values:
            assert all(0 <= n < len(p.sizes["ranges"]) for n in made.values() for p in programs if p.sizes)
        del states

    decoding("group_query_scalar", use)


def test_other_runs__later__are_added_to_those_of_before() -> None:
    files: list[bytes] = []

    async def first(step: Step, program: Program, device: NullDevice) -> None:
        states = await text(step, 7, 1)
        files.append(keep(program))
        del states

    async def second(step: Step, program: Program, device: NullDevice) -> None:
        states = await text(step, 7)
        alone, both = read(keep(program), SOURCE), read(keep(program, files[0]), SOURCE)
        before = read(files[0], SOURCE)
        assert len(alone.programs) < len(both.programs) <= PROGRAMS
        assert _names(both) == _names(before) | _names(alone)
        assert keep(program, write(both, SOURCE)) == write(both, SOURCE)
        del states

    decoding("concat", first)
    decoding("concat", second)


def _names(saved: Saved) -> set[tuple[Any, ...]]:
    """Which runs there are."""
    return {(*p.inputs, "|", *p.outputs, "|", *(k.name for k in p.plan.kept)) for p in saved.programs}


def test_ids_of_an_embedding__that_attention_reads__are_no_part_of_the_plan() -> None:
    """One plan for all ids, and it is kept."""
    nodes = [
        helper.make_node("Gather", ["e", "ids"], ["q"]),
        helper.make_node("Transpose", ["states"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "states"], ["y"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 3])
    states, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, d, 16]) for n, d in (("states", 5), ("y", 3)))
    table = numpy_helper.from_array(np.ones((40, 16), np.float32), "e")
    graph = helper.make_graph(nodes, "g", [ids, states], [y], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    program = Program(import_model(read_model(MemorySource(model))).graph, NullDevice())
    fed = HostTensor(TensorType(DType.FLOAT, (1, 5, 16)), bytes(4 * 80))

    async def run() -> None:
        for first in (0, 4):
            numbers = np.array([[first, 7, 2]], np.int64)
            tokens = HostTensor(TensorType(DType.INT64, (1, 3)), numbers.tobytes())
            await program.run({"ids": tokens, "states": fed}, ["y"])

    asyncio.run(run())
    (stage,) = program.roots
    assert not stage.compiled.guards.read
    assert len(read(keep(program), SOURCE).programs) == 1
