"""The comparison on the desktop: inputs, differences, ratios."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import desktop

DIGITS = Path(__file__).parents[2] / "models" / "digits.onnx"


def test_made_inputs__declared_types__are_the_same_each_time(tmp_path: Path) -> None:
    declared = [
        SimpleNamespace(name="ids", type="tensor(int64)", shape=["batch", 4]),
        SimpleNamespace(name="attention_mask", type="tensor(int64)", shape=[1, 4]),
        SimpleNamespace(name="x", type="tensor(float16)", shape=[2, "n"]),
    ]
    first, second = (desktop.made_inputs(declared, tmp_path / "m.onnx", {"batch": 3}) for _ in range(2))
    assert {n: (str(v.dtype), v.shape) for n, v in first.items()} == {
        "ids": ("int64", (3, 4)),
        "attention_mask": ("int64", (1, 4)),
        "x": ("float16", (2, 1)),
    }
    assert first["attention_mask"].all()
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value)
    np.savez(tmp_path / "m.npz", x=np.ones(3))
    assert desktop.made_inputs(declared, tmp_path / "m.onnx", {})["x"].tolist() == [1, 1, 1]


def test_table__two_engines__ratios_and_geometric_means() -> None:
    def row(start: float, run: float) -> dict[str, float]:
        return {"import_ms": 1.0, "create_ms": start, "first_ms": 0.0, "median_ms": run, "difference": 1e-6}

    results: dict[str, dict[str, dict[str, Any]]] = {
        "a": {"wgpu": row(100, 2), "dawn": row(200, 1), "onnxruntime": row(100, 4)},
        "b": {"wgpu": row(100, 1), "dawn": {"error": "no device"}, "onnxruntime": row(400, 9)},
    }
    text = desktop.table(results, ["wgpu", "dawn", "onnxruntime"])
    assert "geometric means of 2, wgpu: run 4.24 (least 2.00), create + first run 2.00 (least 1.00)" in text
    assert "geometric means of 2, best: run 6.00 (least 4.00), create + first run 2.00 (least 1.00)" in text
    assert "dawn         no device" in text


def test_comparison__wgpu_alone__agrees_with_the_cpu(tmp_path: Path, desktop_gpu: None) -> None:
    pytest.importorskip("onnxruntime")
    command = [sys.executable, desktop.__file__, str(DIGITS), "--engines", "wgpu", "--rounds", "1", "--runs", "2"]
    done = subprocess.run([*command, "--json", str(tmp_path / "r.json")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads((tmp_path / "r.json").read_text())["results"]["digits"].values()
    assert "error" not in result, result
    assert result["difference"] < 1e-4 and result["median_ms"] > 0
