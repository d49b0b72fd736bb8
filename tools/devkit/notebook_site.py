"""Builds the notebook site in `dist-notebook/`: JupyterLite with this package in its kernel, notebooks, a model."""

from __future__ import annotations

import datetime
import fcntl
import json
import shutil
from pathlib import Path
from typing import Any

from tools.devkit.notebook_kernel import PACKAGES, SCRIPTS, SHIPPED, kernel_wheels, write_kernel
from tools.devkit.pyodide import ensure_pyodide
from tools.devkit.shell import CACHE, ROOT, check, fingerprint, put_stamp, say, stamped
from tools.devkit.site import build_wheel, test_images
from tools.devkit.snapshot import ensure_snapshot

FOLDER = CACHE / "notebook"
SITE = ROOT / "dist-notebook"
NOTEBOOKS = ROOT / "notebooks"
MODELS = ROOT / "models"
WRITER = "austen"  # the folder of the language model
REQUIREMENTS = ROOT / "requirements-notebook.txt"
FIRST = "first_steps.ipynb"
KERNEL = "@jupyterlite/pyodide-kernel-extension"
APPS = ("lab", "notebooks", "repl")
CONFIGURATION = {
    "jupyter-lite-schema-version": 0,
    "jupyter-config-data": {
        "appName": "pyruntime notebooks",
        "enableMemoryStorage": True,  # if the browser refuses storage
        "exposeAppInBrowser": True,  # used by the tests
        "settingsOverrides": {"@jupyterlab/apputils-extension:themes": {"adaptive-theme": True}},
        "litePluginSettings": {
            f"{KERNEL}:kernel": {
                "pyodideUrl": f"./static/pyodide/{SCRIPTS[0].name}",
                "loadPyodideOptions": {"packages": PACKAGES},
                "disablePyPIFallback": True,
            }
        },
    },
}


def build_notebook_site(python: Path) -> Path:
    """Build `dist-notebook/` if any of its sources has changed; only one build runs at a time."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build_alone(python)


def build_alone(python: Path) -> Path:
    runtime, wheel, images = ensure_pyodide(), build_wheel(python), test_images(python)
    # With bytecode if available, so that `import pyruntime` compiles nothing.
    wheel = ensure_snapshot(python, runtime, [wheel]) / wheel.name
    shipped = plain_site(python) / "extensions" / KERNEL / "static" / "pypi"
    wheels = [found for name in SHIPPED for found in shipped.glob(f"{name}-*.whl")]
    wheels += [*sorted(kernel_wheels(python).glob("*.whl")), wheel]
    startup = ensure_snapshot(python, runtime, wheels, "kernel")
    files = [*sorted(NOTEBOOKS.glob("*.ipynb")), MODELS / "digits.onnx", *sorted(images.glob("*_heldout.*"))]
    writer = sorted(path for path in (MODELS / WRITER).rglob("*") if path.is_file())
    contents = {file.name: file for file in files} | {str(file.relative_to(MODELS)): file for file in writer}
    here = Path(__file__)
    sources = [startup, *SCRIPTS, *contents.values(), REQUIREMENTS, here, here.with_name("notebook_kernel.py")]
    value = fingerprint((runtime / ".stamp").read_text(), *sources)
    stamp = FOLDER / "site.stamp"
    if SITE.is_dir() and stamped(stamp, value):
        return SITE
    staging = FOLDER / "site.new"
    shutil.rmtree(staging, ignore_errors=True)
    shutil.copytree(plain_site(python), staging, ignore=shutil.ignore_patterns(".stamp"))
    write_kernel(staging / "static" / "pyodide", runtime, startup)
    write_contents(staging, contents)
    shutil.rmtree(SITE, ignore_errors=True)
    staging.rename(SITE)
    put_stamp(stamp, value)
    size = sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file())
    say(f"built {SITE.name}/ ({size / 1e6:.1f} MB)")
    return SITE


def plain_site(python: Path) -> Path:
    """Return JupyterLite as built by its own tool, without contents and Pyodide."""
    folder, tools = FOLDER / "jupyterlite", FOLDER / "venv"
    stamp, value = folder / ".stamp", fingerprint(REQUIREMENTS, json.dumps(CONFIGURATION), *APPS)
    if stamped(stamp, value):
        return folder
    say(f"installing the packages of {REQUIREMENTS.name} into {tools.relative_to(ROOT)}")
    check([python, "-m", "venv", "--clear", tools])
    pip: list[str | Path] = [tools / "bin" / "python", "-m", "pip", "install", "--quiet", "--require-hashes"]
    check([*pip, "--requirement", REQUIREMENTS], env={"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    source = FOLDER / "lite"
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    source.mkdir()
    (source / "jupyter-lite.json").write_text(json.dumps(CONFIGURATION, indent=1))
    apps = [part for app in APPS for part in ("--apps", app)]
    command: list[str | Path] = [tools / "bin" / "jupyter-lite", "build", "--lite-dir", source, "--output-dir", folder]
    check([*command, "--no-sourcemaps", "--no-unused-shared-packages", *apps], quiet=True, cwd=source)
    put_stamp(stamp, value)
    return folder


def write_contents(site: Path, files: dict[str, Path]) -> None:
    """Copy the notebooks' files to their paths, and write each folder's listing in Jupyter's contents format."""
    shutil.rmtree(site / "files", ignore_errors=True)
    for path, source in files.items():
        place = site / "files" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
    folders = [site / "files", *sorted(path for path in (site / "files").rglob("*") if path.is_dir())]
    for folder in folders:
        path = folder.relative_to(site / "files").as_posix().removeprefix(".")
        inside = [listing_of(found, site / "files") for found in sorted(folder.iterdir())]
        index = site / "api" / "contents" / path / "all.json"
        index.parent.mkdir(parents=True, exist_ok=True)
        listing = listed(path, "directory") | {"format": "json", "content": inside}
        index.write_text(json.dumps(listing, indent=1) + "\n")


def listing_of(file: Path, root: Path) -> dict[str, Any]:
    path = file.relative_to(root).as_posix()
    if file.is_dir():
        return listed(path, "directory")
    return listed(path, "notebook" if file.suffix == ".ipynb" else "file") | {"size": file.stat().st_size}


def listed(path: str, kind: str) -> dict[str, Any]:
    """Return a content model without content: see "Contents API" of the Jupyter Server documentation."""
    then = datetime.datetime(2020, 2, 2, tzinfo=datetime.UTC).isoformat()
    empty = dict.fromkeys(("content", "format", "mimetype", "size"))
    name = path.rsplit("/", 1)[-1]
    return {"name": name, "path": path, "type": kind, "writable": True, "created": then, "last_modified": then} | empty
