"""In Pyodide: import what a kernel of JupyterLite, and a cell that has a session, import.

The packages of /build/later.txt cannot be in the snapshot; what they import is.
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
