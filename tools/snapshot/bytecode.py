"""In Pyodide, after the imports: compile the files of /build/modules.txt that have no bytecode in their folders.

/build/bytecode.zip has the .pyc files by their paths below site-packages. They are unchecked: the files of a wheel are
unpacked with whatever dates, and source and bytecode always travel together.
"""

import zipfile
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode, compile

import numpy

packages = Path(numpy.__file__).parents[1]
with zipfile.ZipFile("/build/bytecode.zip", "w") as archive:
    for source in Path("/build/modules.txt").read_text().splitlines():
        if not Path(cache_from_source(source)).exists():
            made = str(compile(source, doraise=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH))
            archive.write(made, Path(made).relative_to(packages))
