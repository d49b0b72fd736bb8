"""In Pyodide, after the imports: compile the imported modules, and the packages of /build/later.txt.

/build/later.zip has the .pyc files of these packages by their paths below site-packages. /build/stripped.zip has those
of everything that was imported, by the absolute paths of their sources, with empty docstrings of functions. Both are
unchecked: files of a wheel are unpacked with arbitrary dates, and source and bytecode are always updated together.
"""

import ast
import marshal
import sys
import zipfile
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from py_compile import PycInvalidationMode
from py_compile import compile as compile_file

import numpy

UNCHECKED = (1).to_bytes(4, "little")
# Scripts that only add docstrings to C functions.
DOCUMENTING = ("numpy/_core/_add_newdocs.py", "numpy/_core/_add_newdocs_scalars.py")


def without_docstrings(source: bytes, path: str) -> bytes:
    """Return the .pyc of a module with empty docstrings of functions; decorators need those of classes."""
    tree = ast.parse(b"" if path.endswith(DOCUMENTING) else source, path)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body[0]:
                case ast.Expr(value=ast.Constant(value=str()) as docstring):
                    docstring.value = ""
    code = marshal.dumps(compile(tree, path, "exec", dont_inherit=True))
    return MAGIC_NUMBER + UNCHECKED + source_hash(source) + code


packages = Path(numpy.__file__).parents[1]
with zipfile.ZipFile("/build/later.zip", "w") as archive:
    for package in Path("/build/later.txt").read_text().split():
        for source in sorted((packages / package).rglob("*.py")):
            made = str(compile_file(str(source), doraise=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH))
            archive.write(made, Path(made).relative_to(packages))
with zipfile.ZipFile("/build/stripped.zip", "w") as archive:
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None) or ""
        read = getattr(getattr(module, "__loader__", None), "get_data", None)  # frozen modules have none
        if read and path.startswith("/lib/") and path.endswith(".py"):
            archive.writestr(path, without_docstrings(read(path), path))
