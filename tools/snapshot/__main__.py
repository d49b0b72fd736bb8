"""Take a snapshot of Python's memory, NumPy and pyruntime imported, in headless Chromium.

    python -m tools.snapshot PYODIDE WHEEL OUT

PYODIDE is the folder with Pyodide and NumPy's wheel, WHEEL this project's. Writes OUT/snapshot/ (see web/snapshot.js)
and OUT/NAME.whl, the wheel with bytecode for Pyodide's Python beside its sources.
"""

from __future__ import annotations

import argparse
import base64
import csv
import gzip
import hashlib
import io
import json
import shutil
import sys
import tempfile
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from e2e.harness.browser import launch
from tools.devkit.chromium import ensure_chromium
from tools.devkit.server import Server

HERE = Path(__file__).parent
MODEL = HERE.parents[1] / "models" / "digits.onnx"
SITE_PACKAGES = "/lib/python3.13/site-packages"
# `import numpy` loads these, in this order.
LIBRARIES = ("numpy/_core/_multiarray_umath", "numpy/linalg/_umath_linalg")
# Of no use without a compiler or a type checker.
LEFT_OUT = ("*.pyi", "*.pxd", "*.h", "*.c", "*.ini", "*/tests/*", "numpy/f2py/*", "*.typed")

Files = dict[str, bytes]


def read_wheel(wheel: Path) -> Files:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}


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


def bundle(files: Files) -> bytes:
    """One line of JSON, `[[path, bytes], ...]`, then the files back to back."""
    head = json.dumps([[path, len(data)] for path, data in files.items()], separators=(",", ":"))
    return head.encode() + b"\n" + b"".join(files.values())


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


def with_bytecode(wheel: Path, files: Files, bytecode: bytes, out: Path) -> None:
    """Write the wheel again with the .pyc files of the ZIP archive `bytecode`, and RECORD brought up to date."""
    with zipfile.ZipFile(io.BytesIO(bytecode)) as archive:
        compiled = {name: archive.read(name) for name in archive.namelist()}
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    text = io.StringIO(files[record].decode())
    rows = list(csv.reader(text))
    for name, data in compiled.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.insert(-1, [name, f"sha256={digest}", str(len(data))])
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(rows)
    date = (2020, 2, 2, 0, 0, 0)  # the same sources give the same bytes
    with zipfile.ZipFile(out / wheel.name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in {**files, **compiled, record: lines.getvalue().encode()}.items():
            archive.writestr(zipfile.ZipInfo(name, date), data, zipfile.ZIP_DEFLATED, 9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pyodide", type=Path)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    numpy, own = read_wheel(next(args.pyodide.glob("numpy-*.whl"))), read_wheel(args.wheel)
    listed, libraries = split_libraries(numpy)
    placed = {entry["path"].removeprefix(f"{SITE_PACKAGES}/") for entry in listed}
    kept = {name: data for name, data in numpy.items() if not any(fnmatchcase(name, p) for p in LEFT_OUT)}
    # The import system looks for the files of the placed libraries; nobody reads them.
    packages = bundle({name: b"" if name in placed else data for name, data in {**kept, **own}.items()})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(HERE, folder, dirs_exist_ok=True)
        shutil.copyfile(MODEL, folder / MODEL.name)
        (folder / "input.json").write_text(json.dumps({"libraries": listed}))
        (folder / "packages").write_bytes(packages)
        for file, data in libraries.items():
            (folder / file).write_bytes(data)
        answer = take(args.pyodide, folder)
    snapshot = args.out / "snapshot"
    snapshot.mkdir(parents=True, exist_ok=True)
    (snapshot / "manifest.json").write_text(json.dumps(answer["manifest"], indent=1) + "\n")
    (snapshot / "memory.gz").write_bytes(base64.b64decode(answer["memory"]))
    (snapshot / "packages.gz").write_bytes(gzip.compress(packages, 9, mtime=0))
    for file, data in libraries.items():
        (snapshot / file).write_bytes(data)
    with_bytecode(args.wheel, own, base64.b64decode(answer["bytecode"]), args.out)


if __name__ == "__main__":
    main()
