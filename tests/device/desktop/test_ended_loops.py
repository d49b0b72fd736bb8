"""Loops that llvmpipe ends after 65,535 trips: reported, never wrong numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyruntime as ort
from pyruntime.device.base import Bound, Read, Slice
from pyruntime.device.blocking import run_blocking
from pyruntime.device.desktop.ended_loops import checked
from pyruntime.errors import EngineError
from pyruntime.ir import Array
from tests.desktop import desktop_device

TRIPS = 65_535
"""Of all loops of an invocation: the most that llvmpipe allows."""


def model(op: str, x: tuple[int, ...], w: Array | None = None, **attributes: Any) -> tuple[bytes, dict[str, Array]]:
    """A node, and a value for its input."""
    names = ["x"] if w is None else ["x", "w"]
    weights = [] if w is None else [numpy_helper.from_array(w, "w")]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attributes)], "g", [given], [made], weights)
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    return data, {"x": np.random.default_rng(1).random(x, np.float32)}


def random(*shape: int) -> Array:
    return np.random.default_rng(0).random(shape, np.float32)


LONG = {
    "MatMul": model("MatMul", (3, 70_000), random(70_000, 5)),
    "Conv": model("Conv", (1, 1024, 9, 9), random(2, 1024, 9, 9)),
    "ConvTranspose": model("ConvTranspose", (1, 70_000, 1, 1), random(70_000, 2, 1, 1)),
    "CumSum": model("CumSum", (140_000, 2), np.array(0)),
    "LRN": model("LRN", (1, 70_000, 1, 1), size=69_999),
}


@pytest.mark.parametrize("name", LONG)
def test_run__longer_loops_than_llvmpipe_allows__an_error_that_names_the_kernel(name: str, desktop_gpu: None) -> None:
    data, feeds = LONG[name]
    session = ort.InferenceSession(data)
    for _ in range(2):
        with pytest.raises(EngineError, match=r"kernel \w+: .*llvmpipe ended a loop early.*CPUExecutionProvider"):
            session.run(None, feeds)
    host = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert np.isfinite(host.run(None, feeds)[0]).all()


def test_run__after_a_loop_was_ended__other_models_are_right(desktop_gpu: None) -> None:
    data, feeds = LONG["MatMul"]
    session = ort.InferenceSession(data)
    binding = session.io_binding()
    binding.bind_cpu_input("x", feeds["x"])
    binding.bind_output("y", "webgpu")
    session.run_with_iobinding(binding)
    with pytest.raises(EngineError, match="ended a loop early"):
        binding.copy_outputs_to_cpu()
    w = random(600, 5)
    short, given = model("MatMul", (3, 600), w)
    np.testing.assert_allclose(ort.InferenceSession(short).run(None, given)[0], given["x"] @ w, rtol=1e-4)


KERNEL = """// counted
@group(0) @binding(0) var<storage, read> n: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) i: u32) {{
  let most = n[i];
  var count = 0u;
  {loop}
  y[i] = count;
}}
"""

LOOPS = {
    "for": "for (var k = 0u; k < most; k++) { count++; }",
    "for without a start": "var k = 0u; for (; k < most; k++) { count++; }",
    "while": "while (count < most) { count++; }",
    "break": "for (var k = 0u; ; k++) { if (k == most) { break; } count++; }",
    "loop": "loop { if (count == most) { break; } count++; }",
    "break if": "loop { if (most == 0u) { break; } count++; continuing { break if count == most; } }",
    "early end": "for (var k = 0u; k < 1000000u; k++) { if (k == most) { break; } count++; }",
    "switch": "for (var k = 0u; k < most; k++) { switch k { case 7u: { count++; break; } default: { count++; } } }",
    "nested": "for (var a = 0u; a < most / 100u; a++) { for (var b = 0u; b < 100u; b++) {\n count++; } } // for (;;) {",
}
"""Each counts to `most`."""


@pytest.mark.parametrize("name", LOOPS)
def test_loop__of_any_form__is_reported_where_its_count_is_wrong(name: str, desktop_gpu: None) -> None:
    device, source = desktop_device(), KERNEL.format(loop=LOOPS[name])
    for most in (0, 100, 30_000, 150_000):
        trips = np.full(64, most, np.uint32)
        trips[::3] = most // 200 * 100
        x, y = run_blocking(device.allocate([256, 256], "test"))
        device.write(Slice(x, 0, 256), trips.tobytes())
        run_blocking(device.compile([source]))
        recording = device.record([Bound(source, (Slice(x, 0, 256), Slice(y, 0, 256)), None, (1, 1, 1))])
        read = device.submit(recording, [], [Read(Slice(y, 0, 256))])
        if most > TRIPS:
            with pytest.raises(EngineError, match=r"kernel counted: .*ended a loop early"):
                run_blocking(read)
        else:
            (answer,) = run_blocking(read)
            assert not isinstance(answer, bytes | memoryview)
            np.testing.assert_array_equal(np.frombuffer(answer.read(0, 256), np.uint32), trips)
        device.drop(recording)
        device.free([x, y])


def test_checked__source__keeps_its_lines() -> None:
    source = KERNEL.format(loop=LOOPS["nested"])
    before, made = source.splitlines(), checked(source, 3).splitlines()
    assert [i for i, line in enumerate(made) if "ended_loops = 3u;" in line] == [9]
    assert made[:8] + made[10:12] == before[:8] + before[10:12]
    assert checked("fn f() {}", 1) == "fn f() {}"
