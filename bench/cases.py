"""The models of a benchmark run, and what they are fed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "models" / "digits.onnx"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
LIGHT_BY_DEFAULT = ("light_squeezenet", "light_shufflenet")


@dataclass(frozen=True)
class Case:
    """A model file and its inputs: `{name: {"dtype", "shape", "high" or "fill"}}`, see bench/page/inputs.js."""

    name: str
    path: Path
    inputs: dict[str, Any]


def digits() -> Case:
    return Case("digits", DIGITS, declared(DIGITS))


def light(names: Iterable[str] | None = None) -> list[Case]:
    """Real architectures with constant weights, from the onnx package; all nine, or those named."""
    paths = sorted(LIGHT.glob("light_*.onnx"))
    wanted = None if names is None else set(names)
    return [Case(p.stem, p, declared(p)) for p in paths if wanted is None or p.stem in wanted]


def generated(folder: Path) -> list[Case]:
    """NAME.onnx (or NAME.stripped) with NAME.json, as bench/models.py and bench/strip.py write them."""
    found = []
    for description in sorted(folder.glob("*.json")):
        path = next((p for s in (".onnx", ".stripped") if (p := description.with_suffix(s)).is_file()), None)
        if path is not None:
            found.append(Case(path.stem, path, json.loads(description.read_text())["inputs"]))
    return found


def declared(path: Path) -> dict[str, Any]:
    """Inputs as the model declares them, symbolic dimensions 1."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = {}
    for value in graph.input:
        if value.name not in weights:
            kind = value.type.tensor_type
            dtype = str(helper.tensor_dtype_to_np_dtype(kind.elem_type))
            inputs[value.name] = {"dtype": dtype, "shape": [dim.dim_value or 1 for dim in kind.shape.dim]}
    return inputs


def choose(cases: Sequence[Case], names: Sequence[str] | None) -> list[Case]:
    """Those with a name in `names`, or all.

    Raises:
        SystemExit: a name is none of theirs.
    """
    if not names:
        return list(cases)
    unknown = sorted(set(names) - {case.name for case in cases})
    if unknown:
        raise SystemExit(f"no model {', '.join(unknown)}; there are {', '.join(case.name for case in cases)}")
    return [case for case in cases if case.name in names]


def smallest() -> bytes:
    """y = relu(x), x: float32 [4]: brings up what an engine brings up with its first session."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "smallest", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())
