"""ONNX's cases as compiled models: which can be compiled, and what the player makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from e2e.conformance.cases import MODEL_SETS, Case, model_cases, node_cases
from pyruntime.errors import EPFail, InvalidArgument
from pyruntime.ir import DType
from pyruntime.ir.encoding import encode
from pyruntime.session.aot.compile_ahead import compile_model

__all__ = ["SavedCase", "every_case", "saved", "saved_cases"]

REFUSALS = ("create the session without a plan", "without one")
"""How a refusal to compile ends: with what to do instead."""


@dataclass(frozen=True)
class SavedCase:
    """A case that has been compiled.

    Attributes:
        path: the model that was; feeds: of the first data set, what is left to be fed.
        expected: its outputs, by name.
    """

    case: Case
    path: Path
    plan: bytes
    shapes: dict[str, list[tuple[int, ...]]]
    feeds: dict[str, Any]
    expected: dict[str, Any]

    def message(self) -> dict[str, Any]:
        """What the page is given."""
        return {"plan": self.plan, "model": self.path.read_bytes(), "feeds": dict(map(_fed, self.feeds.items()))}


def _fed(item: tuple[str, Any]) -> tuple[str, dict[str, Any]]:
    name, wire = item
    dtype, carrier = DType.from_name(wire["dtype"]), wire["carrier"]
    data = encode(carrier, dtype).tobytes()
    return name, {"type": dtype.js_name, "dims": list(carrier.shape), "data": data}


def every_case() -> Iterator[Case]:
    """Node tests, and the sets of small models."""
    return chain(node_cases(), *map(model_cases, MODEL_SETS))


def saved(case: Case, folder: Path) -> SavedCase | str:
    """The case, compiled; why it cannot be.

    Where planning waits for values, all inputs but the first become initializers.
    """
    path = folder / f"{case.name}.onnx"
    path.write_bytes(case.model)
    inputs, outputs = case.data_sets[0]
    made = _compiled(case, path, inputs, outputs)
    if isinstance(made, str) and len(inputs) > 1 and ("waits for values" in made or "depends on the values" in made):
        frozen = dict(list(inputs.items())[1:])
        if all(wire and "carrier" in wire and wire["dtype"] != "string" for wire in frozen.values()):
            path.write_bytes(_frozen(case.model, frozen))
            made = _compiled(case, path, {n: w for n, w in inputs.items() if n not in frozen}, outputs)
    return made


def saved_cases(cases: Iterable[Case], folder: Path) -> tuple[list[SavedCase], dict[str, str]]:
    """Those that can be compiled, and why the others cannot, by name."""
    found = [(case.name, saved(case, folder)) for case in cases]
    return [made for _, made in found if not isinstance(made, str)], {n: m for n, m in found if isinstance(m, str)}


def _compiled(case: Case, path: Path, inputs: dict[str, Any], outputs: list[Any]) -> SavedCase | str:
    shapes = {n: [tuple(w["carrier"].shape)] for n, w in inputs.items() if w and "carrier" in w}
    names = [o.name for o in onnx.load_from_string(path.read_bytes()).graph.output]
    try:
        plan = compile_model(path, shapes)
    except (EPFail, InvalidArgument) as error:
        return str(error)
    return SavedCase(case, path, plan, shapes, inputs, dict(zip(names, outputs, strict=False)))


def _frozen(model: bytes, values: dict[str, Any]) -> bytes:
    """The model with these inputs as initializers."""
    proto = onnx.load_from_string(model)
    kept = [v for v in proto.graph.input if v.name not in values]
    for name, wire in values.items():
        dtype, carrier = DType.from_name(wire["dtype"]), np.asarray(wire["carrier"])
        kind = next(v for v in proto.graph.input if v.name == name).type.tensor_type.elem_type
        raw = encode(carrier, dtype).tobytes()
        proto.graph.initializer.append(onnx.TensorProto(name=name, data_type=kind, dims=carrier.shape, raw_data=raw))
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    return bytes(proto.SerializeToString())
