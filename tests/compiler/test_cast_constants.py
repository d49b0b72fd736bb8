"""Casts of large constants in parts: what their plans read and write, their values, and memory while they are made."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyruntime
from pyruntime.compiler.cast_constants import PART
from pyruntime.compiler.plan import Plan, Space
from pyruntime.compiler.saved_plan import TEMPORARY
from pyruntime.compiler.verify import verify
from pyruntime.device.null import NullDevice
from pyruntime.session import InferenceSession, SessionOptions
from pyruntime.session.aot.compile_ahead import compile_model
from tests.session.doubles import on_device
from tests.window_models import GPU

SHAPES = [(9001, 300), (2 << 20,), (3, 700_001), (5, 40_000, 7), (8192, 128)]
"""In parts, the last a shorter one; in two whole parts; in parts that end within a row; just one part."""

HEAD = 56
"""Bytes before the header of a plan file, whose stored size is at 12."""


def model(shape: tuple[int, ...], to: int = TensorProto.FLOAT16, kind: Any = np.float32) -> bytes:
    """y = cast(table) + x."""
    table = (np.random.default_rng(len(shape)).standard_normal(shape) * 100).astype(kind)
    nodes = [helper.make_node("Cast", ["table"], ["t"], to=to), helper.make_node("Add", ["t", "x"], ["y"])]
    x = helper.make_tensor_value_info("x", to, [1] * len(shape))
    y = helper.make_tensor_value_info("y", to, shape)
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(table, "table")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def prologue(data: bytes) -> tuple[Plan, NullDevice]:
    """The plan that makes the only computed constant of a model, and a device on which it has run."""
    device = NullDevice(GPU)

    async def use() -> Plan:
        session = await InferenceSession.create(data)
        dtype = np.dtype(np.float16)
        await session.run_async(None, {"x": np.zeros([1] * len(session.get_inputs()[0].shape), dtype)})
        assert session._program is not None
        (computed,) = session._program.roots[0].compiled.prologue
        session.release()
        return computed.plan

    with on_device(device):
        return asyncio.run(use()), device


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cast__large_constant__parts_are_all_of_it(shape: tuple[int, ...]) -> None:
    plan, device = prologue(model(shape))
    verify(plan)
    nbytes = 4 * int(np.prod(shape))
    assert sum(c.nbytes for c in plan.constants) == nbytes and not plan.arenas
    ends = [0]
    for constant in plan.constants:
        assert constant.nbytes <= PART
        assert constant.offset - plan.constants[0].offset == ends[-1]
        ends.append(ends[-1] + constant.nbytes)
    written = [r for c in plan.commands for r in c.regions if r.space is Space.EXTERNAL]
    assert [r.offset for r in written] == [end // 2 for end in ends[:-1]] and ends[-1] == nbytes
    assert len({id(c.source) for c in plan.constants}) == 1 and not device.ledger.live


def test_cast__large_constant__peak_is_little_more_than_what_stays() -> None:
    plan, device = prologue(model((100_000, 128)))
    assert len(plan.commands) == 13
    stays = 100_000 * 128 * 2
    assert stays < device.ledger.peak < 2.5 * stays, "the constant, the output, and not what it is cast from"


@pytest.mark.parametrize("sanitize", ["", "1"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cast__on_a_gpu__values_of_onnxruntime(shape: tuple[int, ...], sanitize: str, desktop_gpu: None) -> None:
    options = SessionOptions()
    options.add_session_config_entry("pyruntime.sanitize", sanitize or "0")
    data = model(shape, TensorProto.FLOAT, np.float16)
    feeds = {"x": np.full([1] * len(shape), 0.5, np.float32)}
    (expected,) = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    session = pyruntime.InferenceSession(data, options)
    (got,) = session.run(None, feeds)
    np.testing.assert_array_equal(got, expected)
    session.release()


@pytest.mark.parametrize("kind, to", [(np.int64, TensorProto.FLOAT), (np.float32, TensorProto.INT32)])
def test_cast__other_types_on_a_gpu__values_of_onnxruntime(kind: Any, to: int, desktop_gpu: None) -> None:
    data = model((7001, 200), to, kind)
    feeds = {"x": np.full([1, 1], 3, helper.tensor_dtype_to_np_dtype(to))}
    (expected,) = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    (got,) = pyruntime.InferenceSession(data).run(None, feeds)
    np.testing.assert_array_equal(got, expected)


def layers() -> bytes:
    """Layers of two products, of which one has a much larger weight than the other."""
    rng = np.random.default_rng(0)
    nodes, stored, x = [], [], "x"
    for layer in range(12):
        for name, columns, rows in ((f"u{layer}", 64, 1024), (f"d{layer}", 1024, 64)):
            some = rng.standard_normal((columns, rows)).astype(np.float32)
            stored.append(numpy_helper.from_array(some, name))
            nodes.append(helper.make_node("MatMul", [x, name], [f"{name}_y"]))
            x = f"{name}_y"
        stored.append(numpy_helper.from_array(rng.standard_normal((64, 640)).astype(np.float32), f"s{layer}"))
        stored.append(numpy_helper.from_array(rng.standard_normal((640, 64)).astype(np.float32), f"t{layer}"))
        nodes += [helper.make_node("MatMul", [x, f"s{layer}"], [f"s{layer}_y"])]
        nodes += [helper.make_node("MatMul", [f"s{layer}_y", f"t{layer}"], [x := f"t{layer}_y"])]
    given, made = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 64]) for n in ("x", x))
    graph = helper.make_graph(nodes, "g", [given], [made], stored)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


def test_plan_file__constants_that_leave__share_buffers_with_their_neighbours_in_the_file(tmp_path: Path) -> None:
    """A buffer leaves when all of it was used: it has a range of the file, and no more than `TEMPORARY` bytes."""
    path = tmp_path / "model.onnx"
    path.write_bytes(layers())
    data = compile_model(path, precision="float16")
    header = json.loads(zlib.decompress(data[HEAD : HEAD + int.from_bytes(data[12:16], "little")]))
    leaving = [
        (at, nbytes, buffer) for _, at, nbytes, buffer, _ in header["constants"] if not header["buffers"][buffer][1]
    ]
    assert len(leaving) == 48
    order = [buffer for _, _, buffer in sorted(leaving)]
    assert order == sorted(order, key=order.index), "each buffer has constants that follow one another"
    assert all(nbytes <= TEMPORARY for nbytes, stays in header["buffers"] if not stays)
