"""Scripts in the style of onnxruntime's tutorials: they import onnxruntime, read models/*.onnx and leave `results`."""
