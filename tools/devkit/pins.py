"""Exact versions and hashes of everything that is fetched and is not a Python package of requirements-dev.txt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NpmPackage:
    """A package of the npm registry. `integrity` is its tarball's, `members` the patterns of the files wanted."""

    name: str
    version: str
    integrity: str
    members: tuple[str, ...]


PYODIDE_VERSION = "0.29.5"
PYODIDE_PYTHON = "3.13"
PYODIDE_CDN = f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE_VERSION}/full/"
PYODIDE_CLASSIC = "pyodide.js"  # pyodide.mjs as a classic script: JupyterLite's kernel imports no modules
PYODIDE_FILES = {  # sha256
    PYODIDE_CLASSIC: "7f832a350240263d9946a9c3c877f7bcdab6c37d6dc65f72cd3be5905dca62dd",
    "pyodide.mjs": "510ca14305230018f50c40fb81be673afd68080e70ce7733fcce6600dd6a1714",
    "pyodide.asm.js": "356c42f69e1695397e9d8670bd3c2e678248cde76e18bdae1731e848537b47d7",
    "pyodide.asm.wasm": "54309a5a2cfd757b1f0fdbc9093c92503f7b341500110329d932487183912718",
    "python_stdlib.zip": "831fd1e535084b972f87c6a35275de3d236efd5166f5e77ce89497710635e73c",
    "pyodide-lock.json": "14d2c2dba101277999e17135e653d8f15389ad1437f53eae213bf0c3cdff723d",
}
PYODIDE_NPM = NpmPackage(
    name="pyodide",
    version=PYODIDE_VERSION,
    integrity="sha512-TkYrUv9m8QmfImADKRmpwZulL48E0uUaBSO+dvRQKyAJc0qh9gu7jn8btyHPh3NZm1r2IH2YrJhIr7Q2B9urAw==",
    members=tuple(PYODIDE_FILES),
)

NUMPY_VERSION = "2.2.5"
NUMPY_WHEEL = f"numpy-{NUMPY_VERSION}-cp313-cp313-pyemscripten_2025_0_wasm32.whl"
NUMPY_SHA256 = "800c98edc0c864dfa49f07005680c699b4b42b84eae1f8cb19d35b3634e7f05c"

# The same NumPy in Pyodide's build for the same ABI, as another package ships it (stored, not compressed).
# Only this wheel is taken from it: the package's own code has another licence.
NUMPY_NPM_WHEEL = f"numpy-{NUMPY_VERSION}-cp313-cp313-pyodide_2025_0_wasm32.whl"
NUMPY_NPM_SHA256 = "125230b4c3ecd08803e5c43f1162e017c0718d9f253146225a705a952b9c16c2"
NUMPY_NPM = NpmPackage(
    name="@bentopdf/pymupdf-wasm",
    version="0.11.16",
    integrity="sha512-GPxxH2BokrS49fJa17mrt3hTBGRIDlMkLfJwk+tk45+ICTmIzcti7ACXT2JHK3FUJX916OQvnrJQb29ZajN3CA==",
    members=(f"assets/{NUMPY_NPM_WHEEL}",),
)

# Bundles web/ for the site (tools/devkit/bundle.py): by platform, as `sys.platform` and npm name them.
ESBUILD_VERSION = "0.28.2"
ESBUILD = {
    platform: NpmPackage(name=f"@esbuild/{platform}", version=ESBUILD_VERSION, integrity=integrity, members=(member,))
    for platform, member, integrity in (
        (
            "linux-x64",
            "bin/esbuild",
            "sha512-4xTZr1FUmSoQW4XIWmit3tzQrUTZM+N3P0XV8xROKYF50XfI7xeO90+1bZvNwxIufQ9hDQVRJH5YhgPVF8A/HQ==",
        ),
        (
            "linux-arm64",
            "bin/esbuild",
            "sha512-pW4AC0P3it8c7do9MVM4p51FzHzdM/TZrerurgRcHJ2WTa1VQ1CIq18xncfpBJw4ojkiZZrKW2yIBWBP92j6Ug==",
        ),
        (
            "darwin-arm64",
            "bin/esbuild",
            "sha512-n4KqkOQrraxHJcgjM1RvwbigfQKIKJVpM7xp+KsxiyUSrRdIXnt73VhrPAx0fV44hgfmIVKjxMN9J1t5jySVkw==",
        ),
        (
            "darwin-x64",
            "bin/esbuild",
            "sha512-uq6suIWYP37qzGddBKPw5QEQPi6HiLGsO7UmkpfyaYNQ3D+rN6w6WfwH+nuqcGXWvawGwxOEroO4YGnFh95azw==",
        ),
        (
            "win32-x64",
            "esbuild.exe",
            "sha512-5ebpxr3nWMzrL/rnUI755Jkuee0bHL/Gq0WTF9lvcpv73wAp5eu8MfBUgWK9bhWvZjj7yX8etf/8tI8Ney695g==",
        ),
    )
}

# Checks the JavaScript of web/ against its JSDoc types (lint). Plain JavaScript, no dependencies.
TYPESCRIPT = NpmPackage(
    name="typescript",
    version="5.9.3",
    integrity="sha512-jl1vZzPDinLr9eUt3J/t7V6FgNEw9QjvBPdysz9KfQDD41fQrC2Y4vKQdiaUpFT4bXlb1RHhLpp8wtm6M5TgSw==",
    members=("package.json", "lib/tsc.js", "lib/_tsc.js", "lib/lib.*.d.ts", "lib/typescript.js"),
)
WEBGPU_TYPES = NpmPackage(
    name="@webgpu/types",
    version="0.1.74",
    integrity="sha512-lgiI4hbuLcI9unnm2cL/tvCaQU45dp0xcLWJh5uB/9MBGvIA4F8XIk7nSiBeg+K4xWGYwgZKn80LmERI5CxoTA==",
    members=("package.json", "dist/*.d.ts"),
)

# Text to tokens and chat templates to prompts, for web/generate/: part of the site and of the npm package.
TOKENIZERS_JS = NpmPackage(
    name="@huggingface/tokenizers",
    version="0.2.0",
    integrity="sha512-LidMHe1FpcSYH4vcSjXooda34pC0M8m1gmDOv7SQi6Iv+ib1zX7J3sHBCC9/3FPCkn2k1b55FneVqMRxrr99pg==",
    members=("LICENSE", "dist/tokenizers.min.mjs"),
)
JINJA_JS = NpmPackage(
    name="@huggingface/jinja",
    version="0.5.11",
    integrity="sha512-YzEzwM5oQf4r0vs7ifWQ+yuVR1YkAHrjERQ+a8WRsStHHp4NRBg+NesjiFc+X2AFUpRvvrIeHDS1xFy9jY/IjQ==",
    members=("LICENSE", "dist/index.js"),
)

# The decoder of Zstandard, for web/snapshot/zstd.js.
ZSTDDEC = NpmPackage(
    name="zstddec",
    version="0.3.4",
    integrity="sha512-3Y/NMP6MNdp9b0fWhjCUGiybog7RC3EbUSIJLWnfjylOvnbuGykeu4zYUuH4IRLy5xI7NytXTHN3CWQKIN3cSg==",
    members=("dist/zstddec-stream.mjs", "LICENSE"),
)

# Looks for what keeps people with a keyboard or a screen reader out (e2e/demo/test_page_access.py).
AXE = NpmPackage(
    name="axe-core",
    version="4.14.1",
    integrity="sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    members=("package.json", "LICENSE", "axe.min.js"),
)

# For the test of the PyScript recipe in docs/notebooks.md.
PYSCRIPT = NpmPackage(
    name="@pyscript/core",
    version="0.7.31",
    integrity="sha512-GqM1aonc1N4RTkNZ1zJ8jJk8+i2cqeztZslPsAiQtn+wHHkUX9Z1FgIg4HjCvhBylB68UKmbTVTzOobpgPIMVQ==",
    members=("dist/*.js", "dist/core.css"),
)

# The peer that bench/ measures against.
ONNXRUNTIME_WEB = NpmPackage(
    name="onnxruntime-web",
    version="1.30.0",
    integrity="sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
    members=(
        "package.json",
        "dist/ort.webgpu.bundle.min.mjs",
        "dist/*.asyncify.wasm",
        "dist/ort.jspi.bundle.min.mjs",
        "dist/*.jspi.wasm",
    ),
)

# What the page /bench/ loads of it: name, bytes, and the hash that the browser compares.
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

# For e2e/transformers: its pipelines, run with this project and with onnxruntime-web.
TRANSFORMERS_JS = NpmPackage(
    name="@huggingface/transformers",
    version="4.3.1",
    integrity="sha512-5+voSeUCFK6PCKlY15dPhNOKq3/zOTxDN7oC+Wy9dFb1QZ0TSQomZRRy7URRK8YRuUoE9fGMQTTPC5d/pWBJhA==",
    members=("package.json", "LICENSE", "dist/transformers.web.js", "dist/transformers.min.js"),
)
