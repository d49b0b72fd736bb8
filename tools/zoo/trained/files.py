"""The file of a case: the shipped one, or the output of an onnxruntime tool."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnxruntime

from tools.zoo.check import Feeds
from tools.zoo.trained.fetch import model_file
from tools.zoo.trained.packages import FOLDER, Case
from tools.zoo.treating import Exported, dynamic, half

__all__ = ["ENDINGS", "KIND", "case_file"]

KIND: Mapping[str, str] = {"": "same", "ort": "same", "half": "half", "dynamic": "steps"}
"""How near the results of a case have to be, as `treated.compared` takes it."""

ENDINGS: Mapping[str, str] = {"ort": ".ort", "half": ".onnx", "dynamic": ".onnx"}


def in_ort_format(model: Exported, target: Path) -> None:
    """Convert to onnxruntime's ORT format, optimized, without processor-specific layouts (NCHWc)."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(
        str(model.path), options, providers=["CPUExecutionProvider"], disabled_optimizers=["NchwcTransformer"]
    )


MAKERS: Mapping[str, Callable[[Exported, Path], None]] = {
    "ort": in_ort_format,
    "half": functools.partial(half, keep_io_types=True),
    "dynamic": functools.partial(dynamic, weight="QUInt8", extra_options={"DefaultTensorType": 1}),
}


def case_file(case: Case, runs: Sequence[Feeds]) -> Path:
    """Return the file of a case, created if it is missing; a tool may calibrate with `runs`."""
    shipped = model_file(case.model)
    if not case.treatment:
        return shipped
    target = FOLDER / "treated" / f"{case.key}{ENDINGS[case.treatment]}"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            MAKERS[case.treatment](Exported(shipped, runs), target)
    return target
