"""Matrix products and convolutions of com.microsoft, fused and quantized."""
