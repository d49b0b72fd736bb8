"""In Pyodide, after warm.py: compile what every session imports; /build/bytecode.zip has the .pyc files by their paths.

Unchecked: the files of a wheel are unpacked with whatever dates, and source and bytecode always travel together.
"""

import zipfile
from pathlib import Path
from py_compile import PycInvalidationMode, compile

import pyruntime

packages = Path(pyruntime.__file__).parents[1]
with zipfile.ZipFile("/build/bytecode.zip", "w") as archive:
    for source in Path("/build/modules.txt").read_text().splitlines():
        made = str(compile(source, doraise=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH))
        archive.write(made, Path(made).relative_to(packages))
