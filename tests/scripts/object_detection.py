"""Detect objects: the model ends in NonMaxSuppression, so the number of boxes depends on the picture."""

import numpy as np
import onnxruntime as ort

try:
    session = ort.InferenceSession("models/missing.onnx", providers=ort.get_available_providers())
except ort.capi.onnxruntime_pybind11_state.NoSuchFile as error:
    print("falling back:", type(error).__name__)
    session = ort.InferenceSession("models/detector.onnx", providers=ort.get_available_providers())

outputs = [o.name for o in session.get_outputs()]
found = []
for number in range(3):
    image = np.zeros((1, 1, 32, 32), np.float32)
    for k in range(number):
        image[0, 0, 4 + 12 * k : 12 + 12 * k, 3 + 10 * k : 13 + 10 * k] = 1.0
    threshold = np.array([0.6], np.float32)
    selected, boxes, scores = session.run(outputs, {"image": image, "threshold": threshold})
    for _, label, index in selected:
        print(f"picture {number}: class {label}, score {scores[0, label, index]:.3f}, box {boxes[0, index]}")
    found.append(boxes[0, selected[:, 2]])
    found.append(scores[0, selected[:, 1], selected[:, 2]])

results = {"boxes": found[::2], "scores": found[1::2], "type": session.get_outputs()[0].type}
