"""Attention, linear attention and rotary embeddings of ai.onnx."""
