"""In Pyodide: import what sessions need and fill the caches that do not depend on a model.

/build/modules.txt then names the package's files that every session imports.
"""

import gc
import importlib
import pkgutil
import sys
from pathlib import Path

import pyruntime
import pyruntime.bridge
from pyruntime.kernels import library

# They run programs of their own, or are for tests.
LEFT_OUT = ("pyruntime.cli", "pyruntime.device.null", "pyruntime.__main__")

files = [str(module.__file__) for name, module in sorted(sys.modules.items()) if name.startswith("pyruntime")]
Path("/build/modules.txt").write_text("\n".join(files))
for module in pkgutil.walk_packages(pyruntime.__path__, "pyruntime."):
    if not module.name.startswith(LEFT_OUT):
        importlib.import_module(module.name)
for name in library.shader_names():
    library.read(name)
gc.collect()
