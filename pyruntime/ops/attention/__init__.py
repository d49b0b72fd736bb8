"""Attention, LinearAttention, RotaryEmbedding (ai.onnx) and FlexAttention (ai.onnx.preview)."""
