"""install_as_onnxruntime, in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys


def run(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_install_as_onnxruntime__import__is_this_package() -> None:
    source = """
import pyruntime
pyruntime.install_as_onnxruntime()
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile
from onnxruntime.capi import onnxruntime_inference_collection as collection
assert ort is pyruntime and InvalidArgument is pyruntime.InvalidArgument
assert collection.IOBinding is ort.IOBinding
try:
    ort.InferenceSession("there-is-no-such-file.onnx")
except NoSuchFile:
    print("caught")
"""
    assert run(source) == "caught"


def test_install_as_onnxruntime__after_the_real_one__raises() -> None:
    source = """
import onnxruntime, pyruntime
try:
    pyruntime.install_as_onnxruntime()
except RuntimeError as error:
    print(error)
"""
    assert "imported already" in run(source)


def test_import__package__leaves_the_session_layer_alone() -> None:
    assert (
        run("import sys, pyruntime; print('pyruntime.session' in sys.modules, 'numpy' in sys.modules)") == "False False"
    )
