"""No dispatch of a session binds a buffer both as memory that is only read and as memory that it may write."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyruntime.compiler.repeated import Repeated
from pyruntime.device.base import Bound, Slice, Slot
from pyruntime.device.null import NullDevice
from pyruntime.device.tensor import DeviceTensor
from pyruntime.ir import DType, HostTensor
from pyruntime.kernels.wgsl.module import Module
from pyruntime.session import InferenceSession, SessionOptions
from tests.session.doubles import on_device
from tests.session.models import staged

F = TensorProto.FLOAT
WIDE = np.linspace(-1, 1, 160 * 160, dtype=np.float32).reshape(160, 160)
X = np.ones((4, 160), np.float32)


class Watching(NullDevice):
    """Keeps every command that is recorded; what binds a buffer both ways is refused by `NullDevice`."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[Bound] = []

    def record(self, commands: Sequence[Bound], repeated: Sequence[Repeated] = ()) -> int:
        self.commands += commands
        return super().record(commands, repeated)

    def buffers(self, access: str) -> set[int]:
        """Those that shaders bind in this way, runs' own aside."""
        found = set()
        for command in self.commands:
            declared = [r for r in Module.of(command.source).resources if r.space == "storage"]
            parts = zip(command.storage, declared, strict=True)
            found |= {p.buffer for p, r in parts if r.access == access and not isinstance(p, Slot)}
        return found


def model(nodes: list[Any], outputs: Sequence[str] = ("y",), **constants: Any) -> bytes:
    """The bytes of a model from x [rows, 160] to float32 outputs."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", F, ["rows", 160])],
        [helper.make_tensor_value_info(name, F, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


PROLOGUE = model(
    [
        helper.make_node("Sigmoid", ["w"], ["v"]),
        helper.make_node("Mul", ["v", "scale"], ["u"]),
        helper.make_node("MatMul", ["x", "u"], ["h"]),
        helper.make_node("Add", ["h", "bias"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ],
    w=WIDE,
    scale=WIDE[0].copy(),
    bias=WIDE[1].copy(),
)
"""Small constants, which share a buffer, read where a computed one is made and where it is used."""


def branch(name: str) -> Any:
    """x @ w + a constant of its own."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], [f"{name}_h"]),
        helper.make_node("Add", [f"{name}_h", f"{name}_b"], [f"{name}_y"]),
    ]
    own = numpy_helper.from_array(WIDE[len(name)].copy(), f"{name}_b")
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", F, None)], [own])


def branching() -> bytes:
    """The branch hangs on what x holds."""
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("yes"), else_branch=branch("other")),
    ]
    return model(nodes, w=WIDE, zero=np.float32(0))


def looping() -> bytes:
    """x @ w three times over, by a Loop."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["v", "w"], ["h"]),
            helper.make_node("Add", ["h", "w0"], ["n"]),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", F, None),
        ],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), helper.make_tensor_value_info("n", F, None)],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["first"]),
        helper.make_node("Loop", ["trips", "", "first"], ["last"], body=body),
        helper.make_node("Add", ["last", "w0"], ["y"]),
    ]
    return model(nodes, w=WIDE, w0=WIDE[0].copy(), trips=np.array(3, np.int64))


def options(**entries: str) -> SessionOptions:
    made = SessionOptions()
    for name, value in entries.items():
        made.add_session_config_entry(f"pyruntime.{name}", value)
    return made


async def used(made: bytes, given: SessionOptions) -> None:
    session = await InferenceSession.create(made, given)
    for rows in (4, 7, 4):
        await session.run_async(None, {"x": np.ones((rows, 160), np.float32)})
    session.release()


@pytest.mark.parametrize("sanitize", ["0", "1"])
@pytest.mark.parametrize(
    "made", [PROLOGUE, staged(), branching(), looping()], ids=["prologue", "stages", "branches", "loop"]
)
def test_session__any_form__binds_each_buffer_one_way(made: bytes, sanitize: str) -> None:
    device = Watching()
    with on_device(device):
        asyncio.run(used(made, options(sanitize=sanitize)))
    assert device.buffers("read")
    assert not device.ledger.live


def test_session__computed_constant__is_in_no_buffer_that_is_read_where_it_is_made() -> None:
    device = Watching()
    with on_device(device):
        asyncio.run(used(PROLOGUE, options()))
    made = {part.buffer for _, part in (call for call in device.calls if call[0] == "write")}  # type: ignore[attr-defined]
    (computed,) = device.buffers("read") & device.buffers("read_write")
    assert computed not in made, "by one plan it is written, by others read"


def test_session__switched_off__binds_nothing_as_read() -> None:
    device = Watching()
    with on_device(device):
        asyncio.run(used(PROLOGUE, options(disable="read_only_constants")))
    assert device.commands and not device.buffers("read")


def test_session__constant_that_is_an_output__is_copied_to_the_tensor_that_stays() -> None:
    """It is fed as x then."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    device = Watching()

    async def use() -> None:
        session = await InferenceSession.create(model(nodes, ("y", "w"), w=WIDE), options())
        program, fed = session._program, HostTensor.of(X, DType.FLOAT)
        assert program is not None
        made = await program.run({"x": fed}, ["y", "w"], keep={"y": None, "w": None})
        weights, weight = device.buffers("read"), made["w"]
        assert isinstance(weight, DeviceTensor) and weight.buffer not in weights
        await program.run({"x": weight}, ["y"], keep={"y": None})
        assert device.buffers("read") == weights
        session.release()

    with on_device(device):
        asyncio.run(use())


def test_null_device__buffer_bound_both_ways__is_refused() -> None:
    source = "".join(
        f"@group(0) @binding({i}) var<storage, {way}> v{i}: array<u32>;\n"
        for i, way in enumerate(("read", "read_write"))
    )

    async def use(first: Slice, second: Slice, buffers: Sequence[int] = ()) -> None:
        device = NullDevice()
        await device.allocate([512, 512], "test")
        recording = device.record([Bound(source, (first, second), None, (1, 1, 1), "k")])
        device.bind(recording, buffers)

    asyncio.run(use(Slice(1, 0, 256), Slice(2, 0, 256)))
    asyncio.run(use(Slice(1, 0, 256), Slot(0, 0, 256), [2]))
    with pytest.raises(ValueError, match="k binds a buffer as read and as read_write"):
        asyncio.run(use(Slice(1, 0, 256), Slice(1, 256, 256)))
    with pytest.raises(ValueError, match="k binds a buffer as read and as read_write"):
        asyncio.run(use(Slice(1, 0, 256), Slot(0, 0, 256), [1]))
