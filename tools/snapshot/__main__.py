"""Take a snapshot of Python's memory, packages imported, in headless Chromium, and compile what was imported.

    python -m tools.snapshot [--quick] {page,kernel} PYODIDE OUT WHEEL ...

PYODIDE is the folder with Pyodide and NumPy's wheel; NumPy and the pure Python WHEELs are what Python has. `page`: all
of pyruntime is imported, and models of the usual kinds are planned; `kernel`: what a kernel of JupyterLite begins with.
Writes OUT/snapshot/ (see web/snapshot.js) and each WHEEL again as OUT/NAME.whl, with bytecode for Pyodide's Python
beside the sources that were imported and had none.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import importlib
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from e2e.harness.browser import launch
from tools.devkit.chromium import ensure_chromium
from tools.devkit.server import Server
from tools.snapshot.wheels import Files, bundle, read_bytecode, read_wheel, with_bytecode

HERE = Path(__file__).parent
MODEL = HERE.parents[1] / "models" / "digits.onnx"
SITE_PACKAGES = "/lib/python3.13/site-packages"
# `import numpy` loads these, in this order.
LIBRARIES = ("numpy/_core/_multiarray_umath", "numpy/linalg/_umath_linalg")
# Of no use without a compiler or a type checker.
LEFT_OUT = ("*.pyi", "*.pxd", "*.h", "*.c", "*.ini", "*/tests/*", "numpy/f2py/*", "*.typed")


@dataclass(frozen=True)
class Packing:
    """How much work packing is: levels of Zstandard, Brotli and gzip. Brotli's highest, 11, would take a minute."""

    zstd: int
    brotli: int
    gzip: int


SMALL, QUICK = Packing(19, 9, 6), Packing(9, 5, 1)
"""Of users' sites, and in a tenth of the time a tenth larger."""


@dataclass(frozen=True)
class Kind:
    """What Python has done when the picture is taken: `warm`, a script, with `files` in its folder.

    Packages that talk to JavaScript while they are imported cannot be in the picture. Those of `later` are compiled,
    and have their bytecode among the snapshot's files.
    """

    warm: str
    files: tuple[Path, ...] = ()
    later: tuple[str, ...] = ()


KINDS = {
    "page": Kind("warm.py", (MODEL, HERE / "typical.py")),
    "kernel": Kind("warm_kernel.py", later=("micropip", "piplite", "pyodide_kernel")),
}


def split_libraries(numpy: Files) -> tuple[list[dict[str, str]], Files]:
    """The libraries of LIBRARIES as the manifest lists them, and their bytes by the name that the site gives them.

    Raises:
        SystemExit: this NumPy has other libraries.
    """
    listed, content = [], {}
    for stem in LIBRARIES:
        paths = [path for path in numpy if path.startswith(f"{stem}.") and path.endswith(".so")]
        if len(paths) != 1:
            raise SystemExit(f"NumPy's wheel has {paths or 'nothing'} for {stem}.so")
        name = stem.rsplit("/", 1)[1].lstrip("_") + ".wasm"
        listed.append({"path": f"{SITE_PACKAGES}/{paths[0]}", "file": name})
        content[name] = numpy[paths[0]]
    return listed, content


def take(pyodide: Path, folder: Path) -> dict[str, Any]:
    """What make_worker.js answers; `folder` has its input."""
    web = HERE.parents[1] / "web"
    executable = ensure_chromium(Path(sys.executable))
    with (
        Server({"/make/": folder, "/pyodide/": pyodide, "/web/": web}) as server,
        sync_playwright() as playwright,
        launch(playwright, executable) as browser,
    ):
        page = browser.new_page()
        page.goto(f"{server.url}make/make.html")
        answer: dict[str, Any] = page.evaluate("globalThis.snapshot")
        return answer


def make(kind: Kind, pyodide: Path, wheels: Sequence[Path], out: Path, packing: Packing) -> None:
    numpy = read_wheel(next(pyodide.glob("numpy-*.whl")))
    listed, libraries = split_libraries(numpy)
    placed = {entry["path"].removeprefix(f"{SITE_PACKAGES}/") for entry in listed}
    kept = {name: data for name, data in numpy.items() if not any(fnmatchcase(name, p) for p in LEFT_OUT)}
    # The import system looks for the files of the placed libraries; nobody reads them.
    files = {name: b"" if name in placed else data for name, data in kept.items()}
    for wheel in wheels:
        files |= read_wheel(wheel)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(HERE, folder, dirs_exist_ok=True)
        for file in kind.files:
            shutil.copyfile(file, folder / file.name)
        (folder / "later.txt").write_text("\n".join(kind.later))
        wanted = {"libraries": listed, "warm": kind.warm, "files": ["later.txt", *(file.name for file in kind.files)]}
        (folder / "input.json").write_text(json.dumps(wanted))
        (folder / "packages").write_bytes(bundle(files))
        for library, data in libraries.items():
            (folder / library).write_bytes(data)
        answer = take(pyodide, folder)
    compiled = read_bytecode(base64.b64decode(answer["bytecode"]))
    files |= {name: data for name, data in compiled.items() if name.split("/")[0] in kind.later}
    write(out / "snapshot", answer, bundle(files), libraries, packing)
    for wheel in wheels:
        with_bytecode(wheel, compiled, out)


def brotli(data: bytes, quality: int = SMALL.brotli) -> bytes:
    """`data` in Brotli's format; nothing where Python has no module for it."""
    try:
        module: Any = importlib.import_module("brotli")
    except ImportError:
        return b""
    compressed: bytes = module.compress(data, quality=quality, lgwin=24)
    return compressed


def zstd(data: bytes, level: int = SMALL.zstd) -> bytes:
    """`data` in Zstandard's format, a third of Brotli's work to unpack; nothing where Python has no module for it."""
    try:
        module: Any = importlib.import_module("zstandard")
    except ImportError:
        return b""
    # Browsers unpack windows of 8 MB and no larger ones (RFC 9659).
    settings = module.ZstdCompressionParameters.from_level(level, window_log=23)
    compressed: bytes = module.ZstdCompressor(compression_params=settings).compress(data)
    return compressed


def write(snapshot: Path, answer: dict[str, Any], packages: bytes, libraries: Files, packing: Packing) -> None:
    """The files of web/picture.js. `packages`, a bundle, comes first, so that it can be used while the memory comes."""
    snapshot.mkdir(parents=True, exist_ok=True)
    content = packages + gzip.decompress(base64.b64decode(answer["memory"]))
    packed = {
        "memory.zst": zstd(content, packing.zstd),
        "memory.br": brotli(content, packing.brotli),
        "memory.gz": gzip.compress(content, packing.gzip, mtime=0),
    }
    sizes = {"bytes": len(content), "packages": len(packages)}
    sizes |= {"zstd": len(packed["memory.zst"]), "brotli": len(packed["memory.br"])}
    (snapshot / "manifest.json").write_text(json.dumps(answer["manifest"] | sizes) + "\n")
    for file, data in {**packed, **libraries}.items():
        (snapshot / file).write_bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="pack in a tenth of the time, a tenth larger")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("pyodide", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("wheels", type=Path, nargs="+")
    args = parser.parse_args()
    make(KINDS[args.kind], args.pyodide, args.wheels, args.out, QUICK if args.quick else SMALL)


if __name__ == "__main__":
    main()
