"""Take a snapshot of Python's memory, packages imported, in headless Chromium, and compile what was imported.

    python -m tools.snapshot [--fast] {page,kernel} PYODIDE OUT WHEEL ...

PYODIDE is the folder with Pyodide and NumPy's wheel; NumPy and the pure Python WHEELs are what Python has. `page`: all
of pyruntime is imported, and models of the usual kinds are planned; `kernel`: what a kernel of JupyterLite begins with.
Writes OUT/snapshot/ (see web/snapshot/snapshot.js) and each WHEEL again as OUT/NAME.whl, with bytecode for Pyodide's
Python for the sources that were imported and had none.
"""

from __future__ import annotations

import argparse
import base64
import gzip
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


SMALL, FAST = 9, 1
"""Levels of gzip: for users' sites; in a fifth of the time, a sixth larger."""


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


def make(kind: Kind, pyodide: Path, wheels: Sequence[Path], out: Path, level: int) -> None:
    numpy = read_wheel(next(pyodide.glob("numpy-*.whl")))
    listed, libraries = split_libraries(numpy)
    placed = {entry["path"].removeprefix(f"{SITE_PACKAGES}/") for entry in listed}
    kept = {name: data for name, data in numpy.items() if not any(fnmatchcase(name, p) for p in LEFT_OUT)}
    # The import system looks for the files of the placed libraries, whose content is not read.
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
    write(out / "snapshot", answer, bundle(files), libraries, level)
    for wheel in wheels:
        with_bytecode(wheel, compiled, out)


def write(snapshot: Path, answer: dict[str, Any], packages: bytes, libraries: Files, level: int) -> None:
    """The files of web/snapshot/memory.js. `packages`, a bundle, comes first: it is used while the memory comes."""
    snapshot.mkdir(parents=True, exist_ok=True)
    content = packages + gzip.decompress(base64.b64decode(answer["memory"]))
    packed = {"memory.bin": gzip.compress(content, level, mtime=0)}
    sizes = {"bytes": len(content), "packages": len(packages)}
    (snapshot / "manifest.json").write_text(json.dumps(answer["manifest"] | sizes) + "\n")
    for file, data in {**packed, **libraries}.items():
        (snapshot / file).write_bytes(data)


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
