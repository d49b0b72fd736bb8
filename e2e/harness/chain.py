"""A chain of products: a model file of any size, with weights in one file or two, and a known result."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from e2e.harness.script import Script

__all__ = ["BEGIN", "FINISH", "NBYTES", "ROW", "RUN", "SIZE", "X", "begin", "expected", "loaded", "model", "weight"]

SIZE = 1536
NBYTES = SIZE * SIZE * 4
X = np.linspace(-1, 1, SIZE, dtype=np.float32).reshape(1, SIZE)
ROW = [float(v) for v in X.ravel()]

RUN = """
const run = async (session) => {
    const { y } = await session.run({ x: new Tensor(Float32Array.from(x), [1, x.length]) });
    return [...y.data];
};
"""

BEGIN = """() => new Promise((resolve, reject) => {
    globalThis.events = [];
    globalThis.made = import('/src/web/pyruntime.js').then(({ InferenceSession }) => (
        InferenceSession.create('/m/model.onnx', { onProgress: ({ phase, status }) => {
            if (status !== 'progress') events.push(`${phase} ${status}`);
            if (phase === 'shaders' && status === 'begin') resolve();
        } })));
    made.then(() => { events.push('ready'); resolve(); }, reject);
})"""

FINISH = f"{RUN} const s = await made; const y = await run(s); await s.release(); return y;"


def begin(script: Script) -> None:
    """Begin to create a session of /m/model.onnx, `made`, and wait until it is planned and can do no more."""
    script.page.evaluate(BEGIN)
    script.wait_until_idle()


def weight(layer: int) -> bytes:
    """Return raw_data of the identity matrix times `layer + 1`, with columns reversed."""
    return ((layer + 1) * np.eye(SIZE, dtype=np.float32)[:, ::-1]).tobytes()


def model(layers: int, files: dict[int, tuple[str, int]] | None = None, typed: bool = False) -> bytes:
    """Return the model y = x W₀ W₁ ...; `files` has file and offset of weights in external data.

    `typed`: the end of the graph lists the weights' types, as torch.onnx writes it.
    """
    weights = []
    for i in range(layers):
        tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT)
        tensor.dims.extend([SIZE, SIZE])
        if files and i in files:
            location, offset = files[i]
            tensor.data_location = TensorProto.EXTERNAL
            entries = {"location": location, "offset": str(offset), "length": str(NBYTES)}
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
        else:
            tensor.raw_data = weight(i)
        weights.append(tensor)
    names = ["x", *(f"h{i}" for i in range(1, layers)), "y"]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(layers)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIZE]) for name in "xy")
    types = [helper.make_tensor_value_info(w.name, TensorProto.FLOAT, w.dims) for w in weights] if typed else []
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights, value_info=types),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    return bytes(made.SerializeToString())


def expected(layers: int) -> np.ndarray[Any, Any]:
    y = X.ravel()
    for i in range(layers):
        y = (i + 1) * y[::-1]
    return y


def loaded(script: Script, url: str, options: str = "") -> np.ndarray[Any, Any]:
    values = script(
        f"{RUN} const s = await InferenceSession.create(url{options}); const y = await run(s); "
        "await s.release(); return y;",
        url=url,
        x=ROW,
    )
    return np.array(values, np.float32)
