"""In Pyodide: import what sessions need, and plan models once, which fills the caches that all models share.

/build/modules.txt then names the package's files that every session imports.
"""

import gc
import importlib
import pkgutil
import sys
from pathlib import Path

import pyruntime
import pyruntime.bridge.requests
from pyruntime.ir import DType, TensorType
from pyruntime.kernels.selection import candidates

# What browsers never use, or runs a program when it is imported.
LEFT_OUT = ("pyruntime.cli", "pyruntime.__main__", "pyruntime.device.desktop", "pyruntime.session.aot.plan_store")

files = [str(module.__file__) for name, module in sorted(sys.modules.items()) if name.startswith("pyruntime")]
Path("/build/modules.txt").write_text("\n".join(files))
for module in pkgutil.walk_packages(pyruntime.__path__, "pyruntime."):
    if not module.name.startswith(LEFT_OUT):
        importlib.import_module(module.name)


def plan(model: bytes) -> None:
    """Plan the digits model for one image, on a device that only records."""
    from pyruntime.device.null import NullDevice
    from pyruntime.kernels.wgsl import library
    from pyruntime.onnx.importer.model import import_model
    from pyruntime.onnx.reader import read_model
    from pyruntime.session.run.program import Program

    for name in library.shader_names():
        library.read(name)
    graph = import_model(read_model(model), {}, None).graph
    program = Program(graph, NullDevice())
    (image,), (output,) = graph.inputs, graph.outputs
    work = program.prepare({image.name: TensorType(DType.FLOAT, (1, 1, 16, 16))}, [output.name])
    try:
        work.send(None)  # nothing there waits for anything
    except StopIteration:
        program.release()


plan(Path("/build/digits.onnx").read_bytes())
sys.path.insert(0, "/build")
typical = importlib.import_module("typical")
typical.plan_all()
sys.path.remove("/build")
candidates.forget()  # chosen for sizes that other models do not have
del sys.modules["typical"], typical
gc.collect()
