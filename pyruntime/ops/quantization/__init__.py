"""QuantizeLinear, DequantizeLinear, and what quantized operators share."""
