"""Exact versions and hashes of all downloads except the Python packages of requirements-dev.txt."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

LOCK = json.loads(Path(__file__).parents[1].joinpath("npm", "package-lock.json").read_text())["packages"]


@dataclass(frozen=True)
class NpmPackage:
    """A package of the npm registry. `integrity` is the hash of its tarball."""

    name: str
    version: str
    integrity: str


def locked(name: str) -> NpmPackage:
    """Return a package that `npm ci` installs, as pinned by tools/npm/package-lock.json."""
    entry = LOCK[f"node_modules/{name}"]
    return NpmPackage(name, entry["version"], entry["integrity"])


@dataclass(frozen=True)
class Pyodide:
    """A release of Pyodide, and NumPy's wheel for it.

    Attributes:
        npm: name in tools/npm/package.json.
        files: SHA-256 of each file. pyodide.js is pyodide.mjs as a classic script, for JupyterLite's kernel, which
            imports no modules.
        numpy: version, wheel and SHA-256, as in pyodide-lock.json.
    """

    version: str
    python: str
    npm: str
    files: dict[str, str]
    numpy: tuple[str, str, str]


PYODIDES = {
    "0.29": Pyodide(
        version="0.29.5",
        python="3.13",
        npm="pyodide",
        files={
            "pyodide.js": "7f832a350240263d9946a9c3c877f7bcdab6c37d6dc65f72cd3be5905dca62dd",
            "pyodide.mjs": "510ca14305230018f50c40fb81be673afd68080e70ce7733fcce6600dd6a1714",
            "pyodide.asm.js": "356c42f69e1695397e9d8670bd3c2e678248cde76e18bdae1731e848537b47d7",
            "pyodide.asm.wasm": "54309a5a2cfd757b1f0fdbc9093c92503f7b341500110329d932487183912718",
            "python_stdlib.zip": "831fd1e535084b972f87c6a35275de3d236efd5166f5e77ce89497710635e73c",
            "pyodide-lock.json": "14d2c2dba101277999e17135e653d8f15389ad1437f53eae213bf0c3cdff723d",
        },
        numpy=(
            "2.2.5",
            "numpy-2.2.5-cp313-cp313-pyemscripten_2025_0_wasm32.whl",
            "800c98edc0c864dfa49f07005680c699b4b42b84eae1f8cb19d35b3634e7f05c",
        ),
    ),
    "314": Pyodide(
        version="314.0.7",
        python="3.14",
        npm="pyodide-314",
        files={
            "pyodide.js": "3141b814715a72e59b51b1b18b9ceae5bf19f7c852417e431bb0a34feadf825c",
            "pyodide.mjs": "6f1d60f7bf529beb300f0f47983c921d3982363640ba20af0e38efdddbc66109",
            "pyodide.asm.mjs": "f7cdc8ece80678ceb712f8e65ebe6d3a83203a180c399865f49612a051693635",
            "pyodide.asm.wasm": "cc36e3cab04fdfc9a63ff13eb52eae2b911bf46c025cc7b281f394bd3de1d5e6",
            "python_stdlib.zip": "fa1957e5777068fc4f7437f96d860ae2fbe9c19732ba06c84e004ec16dd7dd7a",
            "pyodide-lock.json": "5dc2fc119108bc148c7457dc86e7675b5c87e1cafd420b9c34c1eaef7b36c010",
        },
        numpy=(
            "2.4.6",
            "numpy-2.4.6-cp314-cp314-pyemscripten_2026_0_wasm32.whl",
            "a292c1f5d7d8a2208cd5e94fc467604c131cabcd2fc14fed6eefde121e7fabdf",
        ),
    ),
}
SWITCH = "PYRUNTIME_PYODIDE"
"""The variable that chooses among PYODIDES for a build; 0.29 where it is not set."""

PYODIDE = PYODIDES[os.environ.get(SWITCH) or "0.29"]
PYODIDE_VERSION, PYODIDE_PYTHON, PYODIDE_FILES = PYODIDE.version, PYODIDE.python, PYODIDE.files
PYODIDE_CDN = f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE_VERSION}/full/"
PYODIDE_CLASSIC = "pyodide.js"
PYODIDE_SCRIPT = next(name for name in PYODIDE_FILES if name.startswith("pyodide.asm.") and "js" in name)
PYODIDE_NPM = locked(PYODIDE.npm)
NUMPY_VERSION, NUMPY_WHEEL, NUMPY_SHA256 = PYODIDE.numpy

# The NumPy of Pyodide 0.29 in another build for the same ABI (stored, not compressed), shipped by another package: for
# machines that reach no CDN. Only this wheel is used: the package itself has another license.
NUMPY_NPM_WHEEL = "numpy-2.2.5-cp313-cp313-pyodide_2025_0_wasm32.whl"
NUMPY_NPM_SHA256 = "125230b4c3ecd08803e5c43f1162e017c0718d9f253146225a705a952b9c16c2"
NUMPY_NPM = NpmPackage(
    name="@bentopdf/pymupdf-wasm",
    version="0.11.16",
    integrity="sha512-GPxxH2BokrS49fJa17mrt3hTBGRIDlMkLfJwk+tk45+ICTmIzcti7ACXT2JHK3FUJX916OQvnrJQb29ZajN3CA==",
)

# Bundles web/ for the site (tools/devkit/bundle.py).
ESBUILD = locked("esbuild")

# Checks the JavaScript of web/ against its JSDoc types (lint).
TYPESCRIPT = locked("typescript")
WEBGPU_TYPES = locked("@webgpu/types")

# Tokenizers and chat templates for web/text/: part of the site and of the npm package.
TOKENIZERS_JS = locked("@huggingface/tokenizers")
JINJA_JS = locked("@huggingface/jinja")

# The decoder of Zstandard, for web/snapshot/zstd.js.
ZSTDDEC = locked("zstddec")

# Checks accessibility for keyboards and screen readers (e2e/demo/test_page_access.py).
AXE = locked("axe-core")

# For the test of the PyScript recipe in docs/notebooks.md.
PYSCRIPT = locked("@pyscript/core")

# The library that bench/ compares with.
ONNXRUNTIME_WEB = locked("onnxruntime-web")

# Its files that the page /bench/ loads: name, bytes, and the hash that the browser checks.
ONNXRUNTIME_WEB_FILES = {
    "module": (
        "ort.webgpu.bundle.min.mjs",
        117732,
        "sha384-1ntMeyj+z5diX6vBR5h+zlJBPc4iNvhCxE6nlammh8daBYcLBZkzrwDkuJjhwI+f",
    ),
    "wasm": (
        "ort-wasm-simd-threaded.asyncify.wasm",
        26781914,
        "sha384-EPVDLTxuO663dkZO/pcKJF6vOyyfq/5z9FY1oksN0UWFX2ABH4wDDZQHeNoUleWR",
    ),
}

# For e2e/transformers: its pipelines, run with this project and with onnxruntime-web. Only its own files are
# downloaded:
# its dependencies are large, and for Node.js.
TRANSFORMERS_JS = NpmPackage(
    name="@huggingface/transformers",
    version="4.3.1",
    integrity="sha512-5+voSeUCFK6PCKlY15dPhNOKq3/zOTxDN7oC+Wy9dFb1QZ0TSQomZRRy7URRK8YRuUoE9fGMQTTPC5d/pWBJhA==",
)
