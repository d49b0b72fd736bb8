"""JavaScript sessions with Python in a worker or in the page's thread, and small models for them."""

from __future__ import annotations

from typing import Any

from onnx import NodeProto, TensorProto, ValueInfoProto, helper
from playwright.sync_api import Page

from e2e.harness.browser import Guard
from e2e.harness.script import Script


def model_bytes(
    nodes: list[NodeProto], inputs: list[ValueInfoProto], outputs: list[ValueInfoProto], ml: bool = False
) -> bytes:
    graph = helper.make_graph(nodes, "test", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid("ai.onnx.ml", 3)] if ml else [])]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def tensor(name: str, dtype: int = TensorProto.FLOAT, *shape: int | str) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape or ["n"])


DOUBLE = model_bytes([helper.make_node("Add", ["x", "x"], ["y"])], [tensor("x")], [tensor("y")])

LATER = """
const gpu = { preferredOutputLocation: 'gpu-buffer' };
const load = (bytes, options) => InferenceSession.create(decode(bytes), options);
const floats = (...values) => new Tensor('float32', values);
const buffer = (device, values) => {
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const made = device.createBuffer({ size: Math.ceil(values.length * 4 / 16) * 16, usage });
  device.queue.writeBuffer(made, 0, new Float32Array(values));
  return made;
};
const read = async (device, source, count) => {
  const staging = device.createBuffer({ size: count * 4, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(source, 0, staging, 0, count * 4);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  return [...new Float32Array(staging.getMappedRange())];
};
"""


class Mode(Script):
    """A script with Python in a worker or in the page's thread."""

    def __init__(self, page: Page, guard: Guard, name: str) -> None:
        super().__init__(page, guard)
        self.name = name

    def __call__(self, body: str, **variables: Any) -> Any:
        return super().__call__(
            f"env.worker = {'true' if self.name == 'worker' else 'false'};{LATER}{body}", **variables
        )
