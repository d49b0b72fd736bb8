"""Files of the page /bench/: its models from the onnx package, and the location of onnxruntime-web."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tools.devkit import pins
from tools.devkit.shell import CACHE, ROOT, SetupError

PAGE = ROOT / "bench" / "index.html"
LIGHT = ("light_shufflenet.onnx", "light_resnet50.onnx")
"""Real architectures with constant weights, which their files do not store: less than 100 KB each."""

FOLDER = f"https://cdn.jsdelivr.net/npm/onnxruntime-web@{pins.ONNXRUNTIME_WEB.version}/dist/"
"""Where a published site has onnxruntime-web from, if its visitor agrees."""


def light_models(python: Path) -> list[Path]:
    """Return the models of LIGHT in the interpreter's onnx package."""
    command: list[str | Path] = [python, "-c", "import onnx.backend.test as test; print(test.__path__[0])"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SetupError(f"The onnx package was not found, whose models the page /bench/ runs:\n{done.stderr}")
    return [Path(done.stdout.strip()) / "data" / "light" / name for name in LIGHT]


def peer(folder: str) -> dict[str, Any]:
    """Return the `Peer` of web/ui/bench/engines.js."""
    files = {kind: dict(zip(("name", "bytes", "integrity"), file, strict=True))
             for kind, file in pins.ONNXRUNTIME_WEB_FILES.items()}  # fmt: skip
    return {"version": pins.ONNXRUNTIME_WEB.version, "folder": folder, "files": files}


def write_bench_page(folder: Path) -> None:
    """Write the page, with a policy that allows only onnxruntime-web's files from its server."""
    folder.mkdir()
    (folder / "index.html").write_text(PAGE.read_text().replace("PEER", FOLDER))
    (folder / "peer.json").write_text(json.dumps(peer(FOLDER)))


def peer_mounts() -> dict[str, Path]:
    """Return the mounts for servers of a checkout that has onnxruntime-web already."""
    package, description = CACHE / "npm" / "node_modules" / pins.ONNXRUNTIME_WEB.name, CACHE / "bench-peer.json"
    if not package.is_dir():
        return {}
    description.write_text(json.dumps(peer("/bench/ort/")))
    return {"/bench/peer.json": description, "/bench/ort/": package / "dist"}
