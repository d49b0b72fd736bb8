"""Classify a picture: resize, normalise, run, softmax, top 5."""

import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
options.intra_op_num_threads = 1
session = ort.InferenceSession("models/classifier.onnx", options, providers=ort.get_available_providers())

model_input = session.get_inputs()[0]
_, channels, height, width = model_input.shape
assert model_input.type == "tensor(float)"

yy, xx = np.mgrid[0 : 2 * height, 0 : 2 * width]
picture = np.stack([yy * 4 % 256, xx * 3 % 256, (xx + yy) % 256], axis=-1).astype(np.uint8)

small = picture[::2, ::2].astype(np.float32) / 255
mean, std = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
batch = ((small - mean) / std).transpose(2, 0, 1)[np.newaxis]

logits = session.run([session.get_outputs()[0].name], {model_input.name: batch})[0]
scores = np.exp(logits - logits.max(axis=1, keepdims=True))
scores /= scores.sum(axis=1, keepdims=True)
top = np.argsort(scores[0])[::-1][:5]
for rank in top:
    print(f"class {rank:3d}  {scores[0, rank]:.4f}")

results = {"scores": scores, "top": top, "metadata": session.get_modelmeta().custom_metadata_map}
