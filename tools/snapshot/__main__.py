"""Take a snapshot of Python's memory with imported packages, in headless Chromium, and compile the imported modules.

    python -m tools.snapshot [--fast] {page,kernel} PYODIDE OUT WHEEL ...

PYODIDE is the folder with Pyodide and NumPy's wheel; NumPy and the pure Python WHEELs are installed. `page`: all of
pyruntime is imported, and the digits model is planned; `kernel`: the packages of a JupyterLite kernel are imported.

Writes OUT/snapshot/ (see web/snapshot/snapshot.js) and copies each WHEEL to OUT.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import onnx
import zstandard
from playwright.sync_api import sync_playwright

from e2e.harness.browser import launch
from tools.devkit import pins
from tools.devkit.chromium import ensure_chromium
from tools.devkit.fetch import npm_package
from tools.devkit.server import Server
from tools.devkit.site import write_version
from tools.snapshot.wheels import Files, bundle, read_wheel, read_zip

HERE = Path(__file__).parent
MODEL = HERE.parents[1] / "models" / "digits.onnx"
TAG = pins.PYODIDE_PYTHON.replace(".", "")
SITE_PACKAGES = f"/lib/python{pins.PYODIDE_PYTHON}/site-packages"
ARCHIVE = f"/lib/python{TAG}.zip"
# Libraries that `import numpy` loads, in this order; a page loads the second one on first use (on_demand in warm.py).
LIBRARIES = ("numpy/_core/_multiarray_umath", "numpy/linalg/_umath_linalg")
# Not needed without a compiler or a type checker.
LEFT_OUT = ("*.pyi", "*.pxd", "*.h", "*.c", "*.ini", "*/tests/*", "numpy/f2py/*", "*.typed")


SMALL, FAST = 22, 3
"""Levels of Zstandard: for users' sites; in a hundredth of the time, a third larger."""


@dataclass(frozen=True)
class Kind:
    """The state of Python in a snapshot: after `warm`, a script.

    Packages that use JavaScript during import cannot be in a snapshot. Those of `later` are compiled, and their
    bytecode is among the snapshot's files, which are loaded with the memory. `stripped`: functions have no docstrings,
    and positions in code are lines without columns; `libraries`: the libraries of NumPy that are loaded.
    """

    warm: str
    later: tuple[str, ...] = ()
    stripped: bool = False
    libraries: tuple[str, ...] = LIBRARIES


KINDS = {
    "page": Kind("warm.py", stripped=True, libraries=LIBRARIES[:1]),
    "kernel": Kind("warm_kernel.py", later=("micropip", "piplite", "pyodide_kernel")),
}


def split_libraries(numpy: Files, stems: Sequence[str]) -> tuple[list[dict[str, str]], Files]:
    """Return the libraries `stems` in the manifest's format, and their bytes by file name in the site.

    Raises:
        SystemExit: this NumPy has other libraries.
    """
    listed, content = [], {}
    for stem in stems:
        paths = [path for path in numpy if path.startswith(f"{stem}.") and path.endswith(".so")]
        if len(paths) != 1:
            raise SystemExit(f"NumPy's wheel has {paths or 'nothing'} for {stem}.so")
        name = stem.rsplit("/", 1)[1].lstrip("_") + ".wasm"
        listed.append({"path": f"{SITE_PACKAGES}/{paths[0]}", "file": name})
        content[name] = numpy[paths[0]]
    return listed, content


def without_weights(model: Path) -> bytes:
    """Return the model with zeros as weights, for planning, whose caches depend on some of them."""
    loaded = onnx.load(model)
    for tensor in loaded.graph.initializer:
        tensor.raw_data = bytes(len(tensor.raw_data))
    return bytes(loaded.SerializeToString())


def run(pyodide: Path, folder: Path, mounts: Mapping[str, Path]) -> dict[str, Any]:
    """Run make_worker.js and return its result; `folder` has its input. Files of `mounts` are served by their URLs."""
    web = HERE.parents[1] / "web"
    memory = Path(shutil.copyfile(web / "snapshot" / "memory.js", folder / "memory.js"))
    write_version(memory)
    executable = ensure_chromium(Path(sys.executable))
    with (
        Server(
            {
                "/make/": folder,
                "/pyodide/": pyodide,
                "/web/": web,
                "/web/snapshot/memory.js": memory,
                **mounts,
            }
        ) as server,
        sync_playwright() as playwright,
        launch(playwright, executable) as browser,
    ):
        page = browser.new_page()
        page.goto(f"{server.url}make/make.html")
        answer: dict[str, Any] = page.evaluate("globalThis.snapshot")
        return answer


def with_stripped(stripped: Files, library: Path, folder: Path) -> Files:
    """Write the standard library with bytecode to `folder`; return the bytecode files below site-packages."""
    placed = {}
    shutil.copyfile(library, folder / library.name)
    with zipfile.ZipFile(folder / library.name, "a") as archive:
        for name, data in stripped.items():
            if name.startswith(f"{ARCHIVE}/"):
                archive.writestr(name.removeprefix(f"{ARCHIVE}/") + "c", data)
            else:
                parent, _, base = name.removeprefix(f"{SITE_PACKAGES}/").rpartition("/")
                placed[f"{parent}/__pycache__/{base.removesuffix('.py')}.cpython-{TAG}.pyc"] = data
    return placed


def make(kind: Kind, pyodide: Path, wheels: Sequence[Path], out: Path, level: int) -> None:
    numpy = read_wheel(next(pyodide.glob("numpy-*.whl")))
    listed, libraries = split_libraries(numpy, kind.libraries)
    placed = {entry["path"].removeprefix(f"{SITE_PACKAGES}/") for entry in listed}
    kept = {name: data for name, data in numpy.items() if not any(fnmatchcase(name, p) for p in LEFT_OUT)}
    # The import system checks that the files of the preloaded libraries exist; their content is not read.
    files = {name: b"" if name in placed else data for name, data in kept.items()}
    for wheel in wheels:
        files |= read_wheel(wheel)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(HERE, folder, dirs_exist_ok=True)
        (folder / MODEL.name).write_bytes(without_weights(MODEL))
        shutil.copyfile(pyodide / "python_stdlib.zip", folder / "library.zip")
        (folder / "later.txt").write_text("\n".join(kind.later))
        wanted = {
            "libraries": listed,
            "warm": kind.warm,
            "files": ["later.txt", "library.zip", MODEL.name],
            "environment": {"PYTHONNODEBUGRANGES": "1"} if kind.stripped else {},
            "archive": ARCHIVE,
            "library": (pyodide / "python_stdlib.zip").stat().st_size,
        }
        (folder / "packages").write_bytes(bundle(files))
        for library, data in libraries.items():
            (folder / library).write_bytes(data)
        (folder / "input.json").write_text(json.dumps(wanted | {"compile": True}))
        compiled = run(pyodide, folder, {})
        archive = base64.b64decode(compiled["stripped"]) if kind.stripped else b""
        stripped = with_stripped(read_zip(archive) if archive else {}, pyodide / "python_stdlib.zip", folder)
        (folder / "packages").write_bytes(bundle(files | stripped))
        (folder / "input.json").write_text(json.dumps(wanted))
        answer = run(pyodide, folder, {"/pyodide/python_stdlib.zip": folder / "python_stdlib.zip"})
    files |= read_zip(base64.b64decode(compiled["later"]))
    # Pyodide reads the names of all packages when it starts.
    now = {n: data for n, data in files.items() if n.split("/")[0] in kind.later or n.endswith(".dist-info/METADATA")}
    write(out / "snapshot", answer, now, {n: d for n, d in files.items() if n not in now}, libraries, level)
    for wheel in wheels:
        shutil.copyfile(wheel, out / wheel.name)


def write(snapshot: Path, answer: dict[str, Any], now: Files, later: Files, libraries: Files, level: int) -> None:
    """Write the files for web/snapshot/memory.js: the content of `now` is stored with the memory."""
    snapshot.mkdir(parents=True, exist_ok=True)
    packages = bundle(now | later, len(now))
    content = packages + gzip.decompress(base64.b64decode(answer["memory"]))
    rest = b"".join(later.values())
    sizes = {"packages": len(packages), "now": len(now), "later": len(rest)}
    (snapshot / "manifest.json").write_text(json.dumps(answer["manifest"] | sizes) + "\n")
    packed = {"memory.bin": compress(content, level), "packages.bin": compress(rest, level), "zstd.wasm": decoder()}
    for file, data in {**packed, **libraries}.items():
        (snapshot / file).write_bytes(data)


def compress(content: bytes, level: int) -> bytes:
    """Compress by Zstandard, with a checksum and an unlimited match window."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level, window_log=27, enable_ldm=True, write_checksum=True, source_size=len(content)
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(content)


def decoder() -> bytes:
    """Return the WebAssembly module of the npm package zstddec, which its script contains as text."""
    script = (npm_package(pins.ZSTDDEC) / "dist" / "zstddec-stream.mjs").read_text()
    return base64.b64decode(script.partition('const wasm = "')[2].partition('"')[0], validate=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="pack in a tenth of the time, a tenth larger")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("pyodide", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("wheels", type=Path, nargs="+")
    args = parser.parse_args()
    make(KINDS[args.kind], args.pyodide, args.wheels, args.out, FAST if args.fast else SMALL)


if __name__ == "__main__":
    main()
