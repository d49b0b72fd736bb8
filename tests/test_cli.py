"""The command line: text for people, JSON for programs."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from pyruntime.cli import main
from pyruntime.cli.progress import showing_progress
from pyruntime.kernels.wgsl.module import Module
from tests.scripts.models import write_models

DIGITS = str(Path(__file__).parents[1] / "models" / "digits.onnx")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command prints with --json."""
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_inspect__digits__describes_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    data = told(capsys, "inspect", DIGITS)
    assert data["nodes"] == 15 and data["parameters"] == 45114
    assert data["inputs"] == [{"name": "image", "type": "tensor(float)", "shape": ["N", 1, 16, 16]}]
    assert data["operators"]["Conv"] == 5


def test_plan__dim__sets_a_symbolic_size(capsys: pytest.CaptureFixture[str]) -> None:
    one, four = told(capsys, "plan", DIGITS), told(capsys, "plan", DIGITS, "--dim", "N=4")
    assert one["memory"]["peak"] < four["memory"]["peak"]
    assert {n["placement"] for n in one["nodes"]} == {"gpu", "none"}


def test_shaders__target__have_workgroups_that_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    most = {}
    for name in ("default", "compatibility"):
        kernels = told(capsys, "shaders", DIGITS, "--target", name)
        most[name] = max(Module.of(kernel["wgsl"]).invocations for kernel in kernels)
    assert most == {"default": 256, "compatibility": 128}
    for command in ("plan", "ops", "passes"):
        assert told(capsys, command, DIGITS, "--target", "phone")


def test_plan__kernel_that_needs_an_input_value__is_planned_with_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_models(tmp_path)
    data = told(capsys, "plan", str(tmp_path / "models" / "detector.onnx"))
    assert {"AveragePool"} <= {n["op_type"] for n in data["nodes"] if n["placement"] == "gpu"}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Expand", ["x", "shape"], ["y"])], "g", [x, shape], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "expand.onnx")
    data = told(capsys, "plan", str(tmp_path / "expand.onnx"), "--dim", "N=1")
    assert [n["op_type"] for n in data["nodes"]] == ["Expand"]


def test_passes__dump__has_the_graph_after_each_pass_that_changed_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = told(capsys, "passes", DIGITS, "--dump", str(tmp_path))
    assert [r["name"] for r in data if r["changed"]] == ["fuse_epilogue"] and data[-1]["nodes"] == 10
    first, fused = (path.read_text() for path in sorted(tmp_path.iterdir()))
    assert first.count("Relu(") == 5 and first.startswith("input image: float[1,1,16,16]\n")
    assert fused.splitlines()[1].startswith("relu1.out: float[1,16,16,16] = Conv")


def test_passes__folder_that_is_a_file__is_a_message(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["passes", DIGITS, "--dump", str(file)]) == 1
    assert "--dump" in capsys.readouterr().err


def test_shaders__kernel__filters_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    every, some = told(capsys, "shaders", DIGITS), told(capsys, "shaders", DIGITS, "--kernel", "softmax")
    assert len(some) == 1 < len(every) and "@compute" in some[0]["wgsl"]


def test_ops__digits__counts_placements(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "ops", DIGITS)["Conv + Relu"] == {"gpu": 5, "host": 0, "none": 0, "reason": ""}


def test_run__input_file__same_as_onnxruntime(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((2, 1, 16, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    saved = tmp_path / "y.npz"
    data = told(capsys, "run", DIGITS, "--input", f"image={tmp_path / 'x.npy'}", "--save", str(saved))
    (expected,) = onnxruntime.InferenceSession(DIGITS).run(None, {"image": x})
    values = np.reshape(data["outputs"]["probabilities"]["values"], data["outputs"]["probabilities"]["shape"])
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.load(saved)["probabilities"], expected, rtol=1e-4, atol=1e-6)


def test_profile__digits__has_a_row_for_each_operator(capsys: pytest.CaptureFixture[str]) -> None:
    data = told(capsys, "profile", DIGITS, "--runs", "2")
    assert data["runs"] == 2 and {"Conv", "Gemm"} <= {r["name"] for r in data["rows"]}


@pytest.mark.parametrize(
    "command", ["inspect", "plan", "passes", "shaders", "ops", "run", "bench", "profile", "explain"]
)
def test_commands__text__is_for_people(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, DIGITS]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) > 3 and "Traceback" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "there-is-no-such-file.onnx"], "does not exist"),
        (["plan", DIGITS, "--dim", "N"], "NAME=SIZE"),
        (["plan", DIGITS, "--target", "toaster"], "neither a file nor one of the profiles "),
        (["run", DIGITS, "--input", "image=nothing.npy"], "nothing.npy"),
    ],
)
def test_commands__mistake__is_a_message_and_status_1(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_bench__digits__times_on_numpy(capsys: pytest.CaptureFixture[str]) -> None:
    data = told(capsys, "bench", DIGITS, "--runs", "2")
    assert data["provider"] == "CPUExecutionProvider"
    assert 0 < data["least_ms"] <= data["median_ms"]


class Terminal(io.StringIO):
    """An error output that people look at."""

    def isatty(self) -> bool:
        return True


def test_run__terminal__shows_progress_and_prints_the_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert told(capsys, "run", DIGITS, "--adapter", "cpu")["provider"] == "CPUExecutionProvider"
    assert "reading" in terminal.getvalue()


def test_progress__long_run_and_download__say_how_far(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with showing_progress() as progress:
        progress.loading({"phase": "model", "status": "progress", "loaded": 1, "total": 4})
        progress.running(3, 4)
    assert "75%" in terminal.getvalue()


def test_progress__no_terminal__writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", file := io.StringIO())
    with showing_progress() as progress:
        progress.running(3, 4)
    assert not file.getvalue()


def test_run__input_without_a_name__is_the_next_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 1, 16, 16), np.float32))
    data = told(capsys, "run", DIGITS, "--input", str(tmp_path / "x.npy"))
    assert all(value["shape"][0] == 3 for value in data["outputs"].values())


def test_run_bench_profile_explain__on_the_desktop__use_the_gpu(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, desktop_gpu: None
) -> None:
    gpu = told(capsys, "run", DIGITS)
    assert gpu["provider"] == "WebGpuExecutionProvider"
    cpu = told(capsys, "run", DIGITS, "--adapter", "cpu")
    assert cpu["provider"] == "CPUExecutionProvider"
    for name, value in cpu["outputs"].items():
        np.testing.assert_allclose(gpu["outputs"][name]["values"], value["values"], rtol=1e-4, atol=1e-5)
    assert "llvmpipe" in told(capsys, "bench", DIGITS, "--runs", "1", "--adapter", "software")["device"]
    assert told(capsys, "profile", DIGITS, "--runs", "1")["clock"] == "gpu"
    page = tmp_path / "page.html"
    told(capsys, "explain", DIGITS, "--html", str(page))
    assert "conv" in page.read_text().lower()


def test_optimize__digits__writes_a_model_that_computes_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = str(tmp_path / "out.onnx")
    data = told(capsys, "optimize", DIGITS, "--out", out, "--dim", "N=2")
    assert data["nodes"] <= data["nodes_before"] == 15 and data["bytes"] == Path(out).stat().st_size
    image = np.random.default_rng(0).random((2, 1, 16, 16)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(DIGITS).run(None, {"image": image})
    for mine, theirs in zip(onnxruntime.InferenceSession(out).run(None, {"image": image}), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert main(["optimize", DIGITS, "--out", out, "--without", "simplify_shapes"]) == 0
    assert "15 ->" in capsys.readouterr().out
    assert main(["optimize", DIGITS, "--out", out, "--without", "fuse_everything"]) == 1
    assert "none of the passes common_subexpressions, dead_code" in capsys.readouterr().err
