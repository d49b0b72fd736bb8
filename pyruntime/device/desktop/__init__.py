"""WebGPU outside the browser: the API of wgpu-py, on wgpu-native (`wgpu`) or on Dawn (`wgpudawn`)."""
