"""The vendored runtime: Pyodide's core, NumPy's wheel for it, and a lock file of exactly these."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import shutil
import zipfile
from pathlib import Path

from tools.devkit import pins
from tools.devkit.fetch import UNAVAILABLE, download, npm_files, npm_package
from tools.devkit.shell import CACHE, SetupError, fingerprint, put_stamp, say, sha256, stamped

FOLDER = CACHE / f"pyodide-{pins.PYODIDE_VERSION}"
LOCK = "pyodide-lock.json"
WHEELS = CACHE / "wheels"
"""Where a person may put the wheel of NumPy that the CDN would give."""


def ensure_pyodide() -> Path:
    """Return the folder with all files that `loadPyodide({packages: ["numpy"]})` requests."""
    stamp, value = FOLDER / ".stamp", fingerprint(json.dumps(pins.PYODIDE_FILES), pins.NUMPY_SHA256, Path(__file__))
    if stamped(stamp, value):
        return FOLDER
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    on_cdn = fetch_core(FOLDER)
    module, script = FOLDER / "pyodide.mjs", FOLDER / pins.PYODIDE_SCRIPT
    module.write_text(for_bundlers(module.read_text()))
    script.write_text(for_bundlers(unsigned(script.read_text())))
    wheel = fetch_numpy(FOLDER, try_cdn=on_cdn)
    trim_lock(FOLDER / LOCK, wheel)
    put_stamp(stamp, value)
    return FOLDER


def fetch_core(folder: Path) -> bool:
    """Download Pyodide; return whether its CDN was reachable, otherwise it came from npm."""
    try:
        for name, digest in pins.PYODIDE_FILES.items():
            download(pins.PYODIDE_CDN + name, folder / name, digest)
        say(f"Pyodide {pins.PYODIDE_VERSION} from {pins.PYODIDE_CDN}")
        return True
    except UNAVAILABLE as error:
        say(f"Pyodide's CDN is of no use here ({error}); npm instead")
    package = npm_package(pins.PYODIDE_NPM)
    for name, digest in pins.PYODIDE_FILES.items():
        if (found := sha256(package / name)) != digest:
            raise SetupError(f"npm package pyodide, {name}: sha256 is {found}, expected {digest}")
        shutil.copyfile(package / name, folder / name)
    say(f"Pyodide {pins.PYODIDE_VERSION} from npm")
    return False


NODE_ONLY = re.compile(r"""\bimport\("((?:node:)?[\w/]+)"\)""")
"""Imports of pyodide.mjs and pyodide.asm.js that only Node.js has. Bundlers resolve names that are string literals."""
SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)
"""Names a file that is not part of the site. Servers of bundlers look for it."""


def for_bundlers(script: str) -> str:
    """Return Pyodide's script without parts that bundlers' servers cannot resolve: Node.js modules and a source map.

    Raises:
        SetupError: the script imports no Node.js modules.
    """
    script = SOURCE_MAP.sub("", script)
    script, count = NODE_ONLY.subn(r"""import(/* @vite-ignore */["\1"].join())""", script)
    if not count:
        raise SetupError(
            "Pyodide's script imports no modules of Node.js: bring NODE_ONLY of tools/devkit/pyodide.py up to date."
        )
    return script


SIGNED = (
    (r"\(([\w+]+)>>([123])\)\+([\w-]+)>>>0", r"(\1>>>\2)+\3>>>0"),
    (r"HEAPU8\.set\(bufferAsUint8Array\(buf\),ptr\)", "HEAPU8.set(bufferAsUint8Array(buf),ptr>>>0)"),
    (r"HEAPU8\.subarray\(ptr,ptr\+buf\.byteLength\)", "HEAPU8.subarray(ptr>>>0,(ptr>>>0)+buf.byteLength)"),
    (r"\(HEAPU32\.buffer,(\w),", r"(HEAPU32.buffer,\1>>>0,"),
    (r"HEAP8\.slice\((\w),\1\+(\w)\)", r"HEAP8.slice(\1>>>0,(\1>>>0)+\2)"),
)
"""Patterns of pyodide.asm.js that take an address as a signed number, and what they become."""


def unsigned(script: str) -> str:
    """Return Pyodide's script with addresses as unsigned numbers.

    Pyodide 0.29 loses writes above 2 GiB ("Unknown typed array type 'ArrayBuffer'"), and reads wrong bytes there.

    Raises:
        SetupError: a pattern does not match the script.
    """
    for pattern, corrected in SIGNED:
        script, count = re.subn(pattern, corrected, script)
        if not count:
            raise SetupError(f"pyodide.asm.js has no {pattern}: bring SIGNED of tools/devkit/pyodide.py up to date.")
    return script


def fetch_numpy(folder: Path, *, try_cdn: bool) -> Path:
    """Download NumPy's wheel: from the CDN, else from WHEELS; for Pyodide 0.29 else from the npm package in `pins`.

    Raises:
        SetupError: none of them has it.
    """
    if try_cdn:
        try:
            download(pins.PYODIDE_CDN + pins.NUMPY_WHEEL, folder / pins.NUMPY_WHEEL, pins.NUMPY_SHA256)
            say(f"NumPy {pins.NUMPY_VERSION} from {pins.PYODIDE_CDN}")
            return folder / pins.NUMPY_WHEEL
        except UNAVAILABLE as error:
            say(f"NumPy's wheel does not come from the CDN ({error})")
    if (given := WHEELS / pins.NUMPY_WHEEL).is_file() and sha256(given) == pins.NUMPY_SHA256:
        say(f"NumPy {pins.NUMPY_VERSION} from {given}")
        return Path(shutil.copy(given, folder))
    if pins.PYODIDE is not pins.PYODIDES["0.29"]:
        raise SetupError(
            f"NumPy {pins.NUMPY_VERSION} for Pyodide {pins.PYODIDE_VERSION} is on the CDN alone, which does not answer."
            f" Put {pins.NUMPY_WHEEL} into {WHEELS}."
        )
    source = (
        npm_files(pins.NUMPY_NPM, (f"assets/{pins.NUMPY_NPM_WHEEL}",), CACHE / "numpy")
        / "assets"
        / pins.NUMPY_NPM_WHEEL
    )
    if (found := sha256(source)) != pins.NUMPY_NPM_SHA256:
        raise SetupError(f"{source.name}: sha256 is {found}, expected {pins.NUMPY_NPM_SHA256}")
    recompress(source, folder / pins.NUMPY_NPM_WHEEL)
    say(f"NumPy {pins.NUMPY_VERSION} from npm package {pins.NUMPY_NPM.name} {pins.NUMPY_NPM.version}, recompressed")
    return folder / pins.NUMPY_NPM_WHEEL


def recompress(source: Path, destination: Path) -> None:
    """Write the wheel `source` with compression, after checking every file against the wheel's RECORD."""
    with (
        zipfile.ZipFile(source) as stored,
        zipfile.ZipFile(destination, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out,
    ):
        record_name = next(name for name in stored.namelist() if name.endswith(".dist-info/RECORD"))
        rows = csv.reader(io.StringIO(stored.read(record_name).decode()))
        recorded = {path: digest for path, digest, _ in rows}
        for info in stored.infolist():
            if info.is_dir():
                continue
            data = stored.read(info)
            if info.filename != record_name and record_digest(data) != recorded.get(info.filename):
                raise SetupError(f"{source.name}: {info.filename} is not what the wheel's RECORD says")
            copy = zipfile.ZipInfo(info.filename, info.date_time)
            copy.external_attr = info.external_attr
            out.writestr(copy, data, zipfile.ZIP_DEFLATED, 9)


def record_digest(data: bytes) -> str:
    """Return `sha256=` and the unpadded URL-safe base64 digest (PEP 376, PEP 427)."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def trim_lock(lock: Path, wheel: Path) -> None:
    """Remove all packages but NumPy from the lock file, and set the name and hash of the wheel next to it."""
    content = json.loads(lock.read_text())
    entry = content["packages"]["numpy"]
    if entry["version"] != pins.NUMPY_VERSION or entry["depends"]:
        raise SetupError(f"{LOCK} wants NumPy {entry['version']} with {entry['depends']}: bring pins.py up to date.")
    content["packages"] = {"numpy": entry | {"file_name": wheel.name, "sha256": sha256(wheel)}}
    lock.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
