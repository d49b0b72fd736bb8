"""Inputs and outputs of 160 MiB on a device with the default limits, bindings of 128 MiB: nothing runs on the host."""

from __future__ import annotations

from onnx import TensorProto, helper

from e2e.harness.modes import tensor
from e2e.harness.script import Script

SIZE = 40 << 20
"""Elements of float32."""

RUN = """
    env.worker = false;
    const adapter = await navigator.gpu.requestAdapter();
    env.webgpu.device = await adapter.requestDevice();
    const limit = (await env.webgpu.device).limits.maxStorageBufferBindingSize;
    const session = await InferenceSession.create(decode(model), {
      extra: { session: { disable_cpu_ep_fallback: '1' } } });
    const x = new Float32Array(size).map((_, i) => (i * 37) % 1001 - 500);
    const wrong = [];
    for (let run = 0; run < runs; run += 1) {
      const { y } = await session.run({ x: new Tensor('float32', x, [size]) });
      wrong.push(y.dims[0] === size ? y.data.findIndex((v, i) => v !== Math.max(x[i], 0)) : 'size');
    }
    const where = (await session.explain()).nodes.map(({ device, placement }) => device ?? placement);
    await session.release();
    return { limit, bytes: x.byteLength, wrong, where };
"""


def test_relu__input_above_a_binding__runs_on_the_gpu_alone(script: Script) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    values = [tensor(name, TensorProto.FLOAT, SIZE) for name in "xy"]
    graph = helper.make_graph([node], "test", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = script(RUN, model=bytes(model.SerializeToString()), size=SIZE, runs=4)
    assert found["limit"] == 128 << 20 < found["bytes"]
    assert found["wrong"] == [-1] * 4
    assert found["where"] == ["gpu"]
