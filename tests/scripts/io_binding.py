"""Iterate a map with IO binding: two OrtValues take turns as input and output."""

import numpy as np
import onnxruntime as ort

session = ort.InferenceSession("models/iteration.onnx", providers=ort.get_available_providers())
device = "webgpu" if "WebGpuExecutionProvider" in session.get_providers() else "cpu"

start = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
values = [
    ort.OrtValue.ortvalue_from_numpy(start.copy(), device, 0),
    ort.OrtValue.ortvalue_from_shape_and_type([4, 16], np.float32, device, 0),
]
binding = session.io_binding()
for step in range(8):
    binding.bind_ortvalue_input("x", values[step % 2])
    binding.bind_ortvalue_output("y", values[(step + 1) % 2])
    binding.bind_output("norm")
    session.run_with_iobinding(binding)
final, norm = binding.copy_outputs_to_cpu()

target = values[0]
pointer = session.io_binding()
pointer.bind_cpu_input("x", start)
pointer.bind_output("y", target.device_name(), 0, np.float32, target.shape(), target.data_ptr())
session.run_with_iobinding(pointer)
once = target.numpy()

values[1].update_inplace(np.ones((4, 16), np.float32))
ones = session.run_with_ort_values(["norm"], {"x": values[1]})[0].numpy()
print("norm", norm, "after one step", np.linalg.norm(once))
results = {"final": final, "norm": norm, "once": once, "ones": ones, "shape": target.shape()}
