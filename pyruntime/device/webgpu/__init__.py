"""WebGPU in the browser."""
