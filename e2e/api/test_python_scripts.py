"""The scripts of tests/scripts, unchanged, on the browser's GPU; compared with onnxruntime under CPython."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from e2e.harness.python import BrowserPython
from tests.scripts.models import MODELS, write_models
from tests.scripts.test_scripts import SCRIPTS, compare, run_script

HERE = Path(__file__).parents[2] / "tests" / "scripts"

RUN = """
import os, sys, pathlib, pyruntime
pyruntime.install_as_onnxruntime()
try:
    folder = pathlib.Path("/tmp/scripts/models")
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in models.items():
        (folder / f"{name}.onnx").write_bytes(bytes(data))
    os.chdir(folder.parent)
    space = {"__name__": "script"}
    exec(compile(script, "script", "exec"), space)
    results = {**space["results"], "providers": space["session"].get_providers()}
finally:
    for name in [n for n in sys.modules if n.split(".")[0] == "onnxruntime"]:
        del sys.modules[name]
{k: v.tolist() if getattr(v, "dtype", None) == bool else v for k, v in results.items()}
"""


@pytest.mark.parametrize("name", SCRIPTS)
def test_script__in_the_browser__same_results_as_onnxruntime(
    name: str, python_in_browser: BrowserPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {n: np.frombuffer(make().SerializeToString(), np.uint8) for n, make in MODELS.items()}
    ours: dict[str, Any] = python_in_browser(RUN, script=(HERE / f"{name}.py").read_text("utf-8"), models=models)
    assert ours.pop("providers")[0] == "WebGpuExecutionProvider"
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    compare(ours, run_script(name, onnxruntime.__name__))
