"""Porting is one import: each script with onnxruntime, and with only its import changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.scripts.models import write_models

HERE = Path(__file__).parent
SCRIPTS = ("image_classification", "io_binding", "object_detection", "text_embedding", "time_series")


def run_script(name: str, package: str) -> dict[str, Any]:
    """`results` of a script with `package` in place of onnxruntime; its one import line must be there."""
    source = (HERE / f"{name}.py").read_text("utf-8")
    assert source.count("import onnxruntime as ort\n") == 1
    space: dict[str, Any] = {"__name__": name}
    exec(compile(source.replace("import onnxruntime as ort", f"import {package} as ort"), name, "exec"), space)
    results: dict[str, Any] = space["results"]
    return results


def compare(ours: Any, theirs: Any) -> None:
    """Numbers to 1e-4, everything else exactly."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            compare(ours[key], theirs[key])
    elif isinstance(theirs, list) and theirs and isinstance(theirs[0], np.ndarray):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            compare(mine, other)
    elif isinstance(theirs, np.ndarray) and theirs.dtype.kind == "f":
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    elif isinstance(theirs, np.ndarray):
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


@pytest.mark.parametrize("name", SCRIPTS)
def test_script__import_changed__same_results(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    compare(run_script(name, "pyruntime"), run_script(name, "onnxruntime"))
