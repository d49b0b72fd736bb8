"""A model cut where it rounds: what is rounded is an output, and the rounding reads a new input in its place.

Where a file rounds activations to steps, sums in another order take another step here and there, and what follows
amplifies that. Fed with onnxruntime's values, each part between two roundings is compared by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tools.zoo.check import Feeds

__all__ = ["ROUNDS", "Cut", "cut", "rounds"]

LSTM, STEPS = "DynamicQuantizeLSTM", 3
"""It rounds its own state: a cut model has its first steps, and what follows reads all that onnxruntime gave."""

QUANTISES = (LSTM, "DynamicQuantizeLinear", "QuantizeLinear")
ROUNDS = (*QUANTISES, "Floor", "Round", "Sin")
"""Operators that take steps, or whose arguments may be so large that their last bits decide."""

ENDS = (LSTM, "STFT")
"""What follows these reads what onnxruntime gave: the phase of a bin without energy may be anything."""

Cut = tuple[bytes, Feeds, dict[str, Any]]
"""The model, what it is fed, and its outputs by name."""


def rounds(path: Path) -> bool:
    """Whether a file rounds activations to steps of a quantisation."""
    model = onnx.load(path, load_external_data=False)
    return any(node.op_type in QUANTISES for node in model.graph.node)


def cut(path: Path, feeds: Feeds, session_of: Callable[[bytes], Any]) -> Cut:
    """The cut model for `feeds`; `session_of` makes onnxruntime's sessions, which give its inputs and outputs."""
    model = onnx.load(path)
    graph = model.graph
    lstms = [node for node in graph.node if node.op_type == LSTM]
    read = {name for node in graph.node if node.op_type in ROUNDS for name in node.input}
    made = [name for node in graph.node for name in node.output]
    after = {name for node in graph.node if node.op_type in ENDS for name in node.output if name}
    names = [name for name in made if name in read | after]
    outputs = {value.name for value in graph.output}
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in outputs)
    values = _outputs(session_of(model.SerializeToString()), feeds)
    given = {f"{name}/cut": values[name] for name in names}
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name in after or (node.op_type in ROUNDS and name in names):
                node.input[i] = f"{name}/cut"
    for node in lstms:
        given[f"{node.output[0]}/first"] = given[node.input[0]][:STEPS]
        node.input[0] = f"{node.output[0]}/first"
    used = {name for node in graph.node for name in node.input}
    given = {name: np.asarray(x) for name, x in given.items() if name in used}
    for name, x in given.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(name, kind, x.shape))
    shortened = {name for node in lstms for name in node.output}
    for value in graph.output:
        if value.name in shortened:
            value.type.Clear()
    graph.ClearField("value_info")
    data: bytes = model.SerializeToString()
    fed = feeds | given
    return data, fed, _outputs(session_of(data), fed)


def _outputs(session: Any, feeds: Feeds) -> dict[str, Any]:
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
