"""WebAssembly from WGSL: kernels without barriers as functions over one memory, with vectors of four floats."""

from pyruntime.kernels.wasm.code import Body, module
from pyruntime.kernels.wasm.dispatch import RESERVED, Dispatch, compile_dispatch
from pyruntime.kernels.wasm.values import Unsupported

__all__ = ["RESERVED", "Body", "Dispatch", "Unsupported", "compile_dispatch", "module"]
