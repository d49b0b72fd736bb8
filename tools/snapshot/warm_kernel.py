"""In Pyodide: import what a kernel of JupyterLite, and a cell that has a session, import.

The packages of /build/later.txt cannot be in the snapshot; what they import is. /build/modules.txt then names the files
of the wheels that a kernel imports, theirs too.
"""

import gc
import importlib
import sys
from pathlib import Path

import numpy

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
packages = Path(numpy.__file__).parents[1]
files = [Path(str(module.__file__)) for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
for package in Path("/build/later.txt").read_text().split():
    files += (packages / package).rglob("*.py")
sources = [file for file in sorted(files) if file.is_relative_to(packages) and file.suffix == ".py"]
wanted = [str(file) for file in sources if not file.is_relative_to(packages / "numpy")]
Path("/build/modules.txt").write_text("\n".join(wanted))
gc.collect()
