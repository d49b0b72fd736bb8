"""A weight of 160 MiB on a device with WebGPU's default limits: bindings of 128 MiB. Nothing runs on the host."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto, helper

from e2e.harness.modes import tensor
from e2e.harness.script import Script

ROWS, COLUMNS = 40_960, 1_024
STEP = 31
"""Every so many results are compared: all parts have some."""

DEVICE_AND_TABLE = """
    env.worker = false;
    const adapter = await navigator.gpu.requestAdapter();
    env.webgpu.device = await adapter.requestDevice();
    const limit = (await env.webgpu.device).limits.maxStorageBufferBindingSize;
    const table = new Float32Array(rows * columns);
    for (let r = 0, at = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) table[at++] = ((r * 31 + c * 17) % 251 - 125) / 128;
    }
    const externalData = [{ path: 'w.bin', data: new Uint8Array(table.buffer) }];
    const session = await InferenceSession.create(decode(model), {
      externalData, extra: { session: { disable_cpu_ep_fallback: '1' } } });
    const { y } = await session.run({ i: new Tensor('int64', indices.map(BigInt), [indices.length]) });
    const where = (await session.explain()).nodes.map(({ device, placement }) => device ?? placement);
    await session.release();
    const data = [...y.data.filter((_, at) => at % step === 0)];
    return { limit, bytes: table.byteLength, dims: y.dims, data, where };
"""


def model_of(nodes: list[NodeProto], shape: tuple[int, ...]) -> bytes:
    """A model whose weight `w`, of this shape, is the file w.bin."""
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "w.bin", "offset": "0", "length": str(4 * ROWS * COLUMNS)}.items():
        w.external_data.add(key=key, value=value)
    indices = tensor("i", TensorProto.INT64, "n")
    graph = helper.make_graph(nodes, "test", [indices], [tensor("y", TensorProto.FLOAT, "a", "b")], [w])
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


def test_weight_above_a_binding__table_and_projection__run_on_the_gpu_alone(script: Script) -> None:
    nodes = [
        helper.make_node("Gather", ["w", "i"], ["e"]),
        helper.make_node("Relu", ["e"], ["r"]),
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["r", "t"], ["y"]),
    ]
    indices = [0, 33_000, -1, 32_767]
    found = script(
        DEVICE_AND_TABLE, model=model_of(nodes, (ROWS, COLUMNS)), indices=indices, rows=ROWS, columns=COLUMNS, step=STEP
    )
    assert found["limit"] == 128 << 20 < found["bytes"]
    table = ((np.arange(ROWS)[:, None] * 31 + np.arange(COLUMNS) * 17) % 251 - 125).astype(np.float32) / 128
    expected = np.maximum(table[indices], 0) @ table.T
    assert found["dims"] == list(expected.shape)
    np.testing.assert_allclose(found["data"], expected.reshape(-1)[::STEP], rtol=1e-4, atol=1e-3)
    assert "host" not in found["where"]
