"""Views of values whose sizes are open: the bounds of the two are not the same expression, their bytes are."""

from __future__ import annotations

import asyncio

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from pyruntime.device.null import NullDevice
from pyruntime.session import InferenceSession
from tests.session.doubles import on_device


def test_reshape__to_the_rest__has_the_memory_of_what_it_is_a_view_of() -> None:
    """[a, b, c] cut to every second along two axes, flattened to [1, one dimension, -1]; verified as it is made."""
    ints = {"zero": [0], "far": [1 << 40], "one": [1], "two": [2], "rest": [-1], "at": [2]}
    nodes = [
        helper.make_node("Slice", ["x", "zero", "far", "one", "two"], ["cut"]),
        helper.make_node("Slice", ["cut", "zero", "far", "two", "two"], ["once"]),
        helper.make_node("Shape", ["once"], ["shape"]),
        helper.make_node("Gather", ["shape", "at"], ["kept"]),
        helper.make_node("Concat", ["one", "kept", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["once", "wanted"], ["flat"]),
        helper.make_node("Softmax", ["flat"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "views",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b", "c"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in ints.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()

    async def main() -> None:
        session = await InferenceSession.create(model)
        for a, b, c in ((5, 6, 7), (8, 9, 10), (33, 2, 16), (3, 30, 5)):
            (y,) = await session.run_async(None, {"x": np.zeros((a, b, c), np.float32)})
            kept = -(-c // 2)
            assert y.shape == (1, kept, a * -(-b // 2))
        assert session._program is not None and any(stage.sizes for stage in session._program.roots)
        session.release()

    with on_device(NullDevice()):
        asyncio.run(main())


def test_reshape__of_an_input_to_the_size_of_another__has_the_bytes_of_the_input() -> None:
    """s [N] as [-1, M], where b [M, 4] is another input: N / M times M may be more than N in the plan's ranges."""
    ints = {"zero": [0], "one": [1], "rest": [-1]}
    nodes = [
        helper.make_node("Shape", ["b"], ["shape"]),
        helper.make_node("Slice", ["shape", "zero", "one"], ["rows"]),
        helper.make_node("Concat", ["rest", "rows"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["s", "wanted"], ["matrix"]),
        helper.make_node("Relu", ["matrix"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "views",
        [
            helper.make_tensor_value_info("b", TensorProto.FLOAT, ["m", 4]),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, ["n"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in ints.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()

    async def main() -> None:
        session = await InferenceSession.create(model)
        for rows, times in ((20, 1), (7, 1), (5, 3)):
            feeds = {"b": np.zeros((rows, 4), np.float32), "s": np.zeros(rows * times, np.float32)}
            (y,) = await session.run_async(None, feeds)
            assert y.shape == (times, rows)
        assert session._program is not None and any(stage.sizes for stage in session._program.roots)
        session.release()

    with on_device(NullDevice()):
        asyncio.run(main())
