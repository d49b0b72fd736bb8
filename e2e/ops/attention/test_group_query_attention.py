"""GroupQueryAttention: more inputs than a device of the least limits binds at once; a cache of the last rows alone."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from e2e.harness.gpu import Gpu
from e2e.harness.python import BrowserPython
from pyruntime.ir import Array
from tests.contrib.case import Case, check
from tests.contrib.families.group_query_attention import reference


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_group_query_attention__eight_storage_buffers__rows_are_made_ready_first(gpu: Gpu, kind: str) -> None:
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(kind)

    size, attributes = 16, {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "qk_norm_epsilon": 0.01}
    past, angles = (numbers(2, 2, 5, size) for _ in range(2)), rng.uniform(-3, 3, (20, 8))
    caches = (np.cos(angles).astype(kind), np.sin(angles).astype(kind))
    lengths, positions = np.array([5, 3], np.int32), rng.integers(0, 20, (2, 1))
    inputs: list[Array | None] = [numbers(2, 1, 8 * size), None, None, *past, lengths, np.array([6], np.int32)]
    inputs += [*caches, positions, *[None] * 4, numbers(size), numbers(size)]

    def wanted(*given: Any) -> tuple[Array, ...]:
        return reference(attributes, *given)[:3]

    def defined(number: int, x: Array) -> Array:
        return x if number == 0 else np.concatenate([x[b, :, : int(n) + 1].reshape(-1) for b, n in enumerate(lengths)])

    small = copy.copy(gpu)
    small.target = replace(gpu.target, limits=replace(gpu.target.limits, storage_buffers=8))
    tolerance = (1e-2, 1e-2) if kind == "float16" else (1e-4, 1e-5)
    case = Case("GroupQueryAttention", inputs, 3, attributes, reference=wanted, defined=defined, tolerance=tolerance)
    check(case, small)


def sliding(size: int, batch: int) -> tuple[bytes, list[Array]]:
    """Attention of 4 heads over a cache of the last 10 rows, at least 8 of them; one text has prompts, too."""
    rng = np.random.default_rng(size)
    width, rows = 8 * size, 10
    attributes: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    attributes |= {"local_window_size": 8, "sliding_window_cache": 1}
    angles = rng.uniform(-3, 3, (64, size // 2))
    caches = [helper.make_tensor_value_info(f"past_{x}", TensorProto.FLOAT, [batch, 2, rows, size]) for x in "kv"]
    made = [helper.make_tensor_value_info(f"present_{x}", TensorProto.FLOAT, [batch, 2, rows, size]) for x in "kv"]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, "n", width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, "n", 4 * size])
    lengths = [helper.make_tensor_value_info("last", TensorProto.INT32, [batch])]
    total = helper.make_tensor_value_info("total", TensorProto.INT32, [1])
    inputs = ["x", "", "", "past_k", "past_v", "last", "total", "cos", "sin"]
    node = helper.make_node(
        "GroupQueryAttention", inputs, ["y", "present_k", "present_v"], domain="com.microsoft", **attributes
    )
    weights = [numpy_helper.from_array(f(angles).astype(np.float32), n) for n, f in (("cos", np.cos), ("sin", np.sin))]
    graph = helper.make_graph([node], "g", [x, *caches, *lengths, total], [y, *made], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    counts = (5, *[1] * 30, 4, 1, 1) if batch == 1 else [1] * 30
    return model, [rng.standard_normal((batch, n, width)).astype(np.float32) for n in counts]


@pytest.mark.parametrize(("size", "batch"), [(16, 1), (64, 1), (16, 3)])
def test_group_query_attention__cache_of_the_last_rows__stays_on_the_gpu(
    python_in_browser: BrowserPython, size: int, batch: int
) -> None:
    model, steps = sliding(size, batch)
    oracle = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted, caches, end = [], [np.zeros((batch, 2, 10, size), np.float32)] * 2, 0
    for x in steps:
        end += x.shape[1]
        counts = {"last": np.full(batch, end - 1, np.int32), "total": np.array([end], np.int32)}
        y, *caches = oracle.run(None, {"x": x, "past_k": caches[0], "past_v": caches[1], **counts})
        wanted.append(y)
    got = python_in_browser(
        """
        import numpy as np
        from pyruntime.session import InferenceSession
        session = await InferenceSession.create(model)
        caches, end, made = [np.zeros((batch, 2, 10, size), np.float32)] * 2, 0, []
        for x in steps:
            end += x.shape[1]
            feeds = {"x": x, "past_k": caches[0], "past_v": caches[1],
                     "last": np.full(batch, end - 1, np.int32), "total": np.array([end], np.int32)}
            y, *caches = await session.run_async(None, feeds)
            made.append(y)
        placements = {(node["op_type"], node["placement"]) for node in session.summary()["nodes"]}
        session.release()
        {"made": made, "hosted": sorted(op for op, placement in placements if placement == "host")}
        """,
        model=model,
        steps=steps,
        size=size,
        batch=batch,
    )
    assert got["hosted"] == []
    for y, expected in zip(got["made"], wanted, strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
