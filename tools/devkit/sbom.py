"""`sbom.cdx.json`: third-party components of the site, as CycloneDX 1.6, from the pins and from the files."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

from tools.devkit import pins

NAME = "sbom.cdx.json"


def components(site: Path) -> list[dict[str, Any]]:
    """Return a component for each third-party work, with the hashes of its files in the site."""
    tokenizers, jinja, python = pins.TOKENIZERS_JS, pins.JINJA_JS, python_version(site)
    return [
        _component(site, "pyodide", pins.PYODIDE_VERSION, "MPL-2.0", "pkg:npm/pyodide", "pyodide/pyodide*"),
        _component(site, "cpython", python, "Python-2.0", "pkg:generic/cpython", "pyodide/python_stdlib.zip"),
        _component(site, "numpy", pins.NUMPY_VERSION, "BSD-3-Clause", "pkg:pypi/numpy", "pyodide/numpy-*.whl"),
        _component(site, tokenizers.name, tokenizers.version, "Apache-2.0", f"pkg:npm/{purl(tokenizers.name)}",
                   "web/vendor/tokenizers*"),
        _component(site, jinja.name, jinja.version, "MIT", f"pkg:npm/{purl(jinja.name)}", "web/vendor/jinja*"),
    ]  # fmt: skip


def purl(name: str) -> str:
    return name.replace("@", "%40")


def python_version(site: Path) -> str:
    """Return the version of Pyodide's standard library, from its lock file."""
    lock = json.loads((site / "pyodide" / "pyodide-lock.json").read_text())
    return str(lock["info"]["python"])


def _component(site: Path, name: str, version: str, license: str, package: str, pattern: str) -> dict[str, Any]:
    files = sorted(site.glob(pattern))
    if not files:
        raise FileNotFoundError(f"sbom: the site has no {pattern}, which {name} should be")
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"{package}@{version}",
        "licenses": [{"license": {"id": license}}],
        "components": [
            {
                "type": "file",
                "name": file.relative_to(site).as_posix(),
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(file.read_bytes()).hexdigest()}],
            }
            for file in files
        ],
    }


def write_sbom(site: Path, wheel: Path, version: str) -> None:
    """Write the list into the site; `wheel` is this project's, which contains no third-party files."""
    with zipfile.ZipFile(wheel) as archive:
        foreign = [name for name in archive.namelist() if not name.startswith("pyruntime")]
    if foreign:
        raise ValueError(f"sbom: the wheel has files of others, {foreign}")
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": "pyruntime", "version": version}},
        "components": components(site),
    }
    (site / NAME).write_text(json.dumps(document, indent=1) + "\n")
