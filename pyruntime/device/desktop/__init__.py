"""WebGPU outside the browser, through the API of wgpu-py: on wgpu-native (`wgpu`) or on Dawn (`wgpudawn`)."""
