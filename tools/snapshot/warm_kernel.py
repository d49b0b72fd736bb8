"""In Pyodide: import the packages of a JupyterLite kernel, and of a cell that creates a session.

The packages of /build/later.txt cannot be in the snapshot, but their imports are.
"""

import gc
import importlib

PICTURED = (
    "IPython.core.application",
    "IPython.core.completer",
    "IPython.core.history",
    "IPython.core.interactiveshell",
    "IPython.core.payload",
    "IPython.core.shellapp",
    "IPython.utils.tokenutil",
    "comm.base_comm",
    "packaging.markers",
    "packaging.requirements",
    "packaging.tags",
    "packaging.utils",
    "packaging.version",
    "pyruntime.bridge.requests",
    "unittest.mock",
)
for name in PICTURED:
    importlib.import_module(name)
gc.collect()
