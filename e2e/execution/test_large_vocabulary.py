"""A float16 table of 600 MB, embedding and vocabulary projection, on a device with WebGPU's default limits."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from e2e.harness.modes import tensor
from e2e.harness.script import Script

ROWS, COLUMNS = 292_968, 1_024
FILLED = [0, 131_071, 131_072, 200_000, ROWS - 1]
"""The rows that are not 0: at the ends of parts, and in their middle."""

RUN = """
    env.worker = false;
    const adapter = await navigator.gpu.requestAdapter();
    env.webgpu.device = await adapter.requestDevice();
    const { maxStorageBufferBindingSize: binding, maxBufferSize: buffer } = (await env.webgpu.device).limits;
    const table = new Uint16Array(rows * columns);
    for (const [i, row] of filled.entries()) table.fill(values[i], row * columns, (row + 1) * columns);
    const externalData = [{ path: 'w.bin', data: new Uint8Array(table.buffer) }];
    const session = await InferenceSession.create(decode(model), {
      externalData, extra: { session: { disable_cpu_ep_fallback: '1' } } });
    const { y } = await session.run({ i: new Tensor('int64', indices.map(BigInt), [indices.length]) });
    const where = (await session.explain()).nodes.map(({ device, placement }) => device ?? placement);
    await session.release();
    const bits = new Uint16Array(y.data.buffer, y.data.byteOffset, y.data.length);
    const found = [...bits.entries()].filter(([, value]) => value);
    return { binding, buffer, bytes: table.byteLength, dims: y.dims, found, where };
"""


def model() -> bytes:
    """Rows of the table `w`, which is the file w.bin, and their products with all rows."""
    w = TensorProto(name="w", data_type=TensorProto.FLOAT16, dims=(ROWS, COLUMNS), data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "w.bin", "offset": "0", "length": str(2 * ROWS * COLUMNS)}.items():
        w.external_data.add(key=key, value=value)
    nodes = [
        helper.make_node("Gather", ["w", "i"], ["e"]),
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["e", "t"], ["y"]),
    ]
    i, y = tensor("i", TensorProto.INT64, "n"), tensor("y", TensorProto.FLOAT16, "a", "b")
    graph = helper.make_graph(nodes, "test", [i], [y], [w])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def test_table_of_600_mb__embedding_and_projection__run_on_the_gpu_alone(script: Script) -> None:
    numbers = np.array([0.125, 0.25, 0.1875, 0.15625, 0.21875], np.float16)
    given = {"model": model(), "indices": [0, 200_000, -1], "rows": ROWS, "columns": COLUMNS, "filled": FILLED}
    found = script(RUN, values=numbers.view(np.uint16).tolist(), **given)
    assert found["binding"] == 128 << 20 and found["buffer"] == 256 << 20
    assert found["bytes"] > 600_000_000 - 2 * COLUMNS
    assert found["dims"] == [3, ROWS]
    rows = dict(zip(FILLED, numbers.astype(np.float64), strict=True))
    expected = {
        place * ROWS + row: rows[token] * number * COLUMNS
        for place, token in enumerate((0, 200_000, ROWS - 1))
        for row, number in rows.items()
    }
    results = {place: float(np.uint16(bits).view(np.float16)) for place, bits in found["found"]}
    assert results.keys() == expected.keys()
    np.testing.assert_allclose(
        [results[p] for p in sorted(results)], [expected[p] for p in sorted(expected)], rtol=2e-3
    )
    assert "host" not in found["where"]
