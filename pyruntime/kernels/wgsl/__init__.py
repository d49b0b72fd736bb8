"""The WGSL toolchain: modules, parameters, storage, the shader library."""
