"""Files that the notebooks' kernel starts from: Pyodide, the wheels of requirements-notebook-kernel.txt, this package.

JupyterLite's Pyodide kernel loads packages by the lock file next to Pyodide. The lock file written here names only
existing files, so that the kernel starts, and `import pyruntime` works, without any other server. If the browser
supports it, the kernel starts from a memory snapshot with all of them (notebook_kernel.js).
"""

from __future__ import annotations

import email
import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

from tools.devkit import pins, snapshot
from tools.devkit.pyodide import LOCK
from tools.devkit.shell import CACHE, ROOT, check, fingerprint, put_stamp, say, sha256, stamped

REQUIREMENTS = ROOT / "requirements-notebook-kernel.txt"
SHIPPED = ("ipykernel", "piplite", "pyodide_kernel")  # wheels that are part of the kernel's package
# The kernel requests this package but never uses it; the real one is only on Pyodide's CDN.
STAND_IN = "sqlite3"
# Packages that the kernel would install one by one after Pyodide's start; passed to Pyodide they load in parallel.
PACKAGES = ["micropip", "piplite", STAND_IN, "ipykernel", "comm", "pyodide_kernel", "jedi", "ipython"]
# The first is the one that the kernel loads.
SCRIPTS = (Path(__file__).with_suffix(".js"), *snapshot.SCRIPTS)


def kernel_wheels(python: Path) -> Path:
    """Return a folder with the wheels of requirements-notebook-kernel.txt, whose hashes pip has checked."""
    folder = CACHE / "notebook" / "wheels"
    stamp, value = folder / ".stamp", fingerprint(REQUIREMENTS)
    if not stamped(stamp, value):
        say(f"downloading the wheels of {REQUIREMENTS.name}")
        shutil.rmtree(folder, ignore_errors=True)
        command: list[str | Path] = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        command += [
            "--only-binary",
            ":all:",
            "--python-version",
            pins.PYODIDE_PYTHON,
            "--implementation",
            "py",
            "--abi",
            "none",
        ]
        command += ["--platform", "any", "--requirement", REQUIREMENTS, "--dest", folder]
        check(command, env={"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
        put_stamp(stamp, value)
    return folder


def write_kernel(folder: Path, runtime: Path, startup: Path) -> None:
    """Fill `folder` with Pyodide (`runtime`: see `ensure_pyodide`), the files of `startup`, and their lock file."""
    for source in (runtime, startup):
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns(".stamp"), dirs_exist_ok=True)
    for script in SCRIPTS:
        shutil.copyfile(script, folder / script.name)
    wheels = sorted(startup.glob("*.whl"))
    stand_in = write_stand_in(folder)
    lock = json.loads((folder / LOCK).read_text())
    entries = [entry(folder / wheel.name) for wheel in (*wheels, stand_in)]
    lock["packages"] |= {normal(found["name"]): found for found in entries}
    for found in lock["packages"].values():
        found["depends"] = [name for name in found["depends"] if name in lock["packages"]]
    lock["packages"]["ipython"]["depends"].append(STAND_IN)
    (folder / LOCK).write_text(json.dumps(lock, indent=1, sort_keys=True) + "\n")


def entry(wheel: Path) -> dict[str, Any]:
    """Return the lock file's entry of a pure Python wheel. `depends` lists all requirements; markers are ignored."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(about))
    tops = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
    required = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    return {
        "name": metadata["Name"],
        "version": metadata["Version"],
        "file_name": wheel.name,
        "sha256": sha256(wheel),
        "imports": sorted(top.removesuffix(".py") for top in tops),
        "depends": sorted({normal(re.split(r"[^\w.-]", text)[0]) for text in required}),
        "install_dir": "site",
        "package_type": "package",
        "unvendored_tests": False,
    }


def normal(name: str) -> str:
    """Return the normalized name of a package. Source: PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def write_stand_in(folder: Path) -> Path:
    """Write a wheel of STAND_IN with only its metadata; its bytes are reproducible."""
    wheel = folder / f"{STAND_IN}-1.0.0-py3-none-any.whl"
    info = f"{STAND_IN}-1.0.0.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {STAND_IN}\nVersion: 1.0.0\nSummary: A name without code.\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: pyruntime\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return wheel
