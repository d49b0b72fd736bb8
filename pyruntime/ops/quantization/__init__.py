"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, and code shared by quantized operators."""
