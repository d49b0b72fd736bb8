"""Models cut where they round: the rounded value becomes an output, and the rounding reads a new input in its place.

If a file rounds activations, sums in another order are rounded differently in places, and later layers amplify that.
With onnxruntime's values as inputs, each part between two roundings is compared separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tools.zoo.check import Feeds

__all__ = ["ROUNDS", "Cut", "cut", "pieces", "rounds"]

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
    """Return whether a file quantizes activations."""
    model = onnx.load(path, load_external_data=False)
    return any(node.op_type in QUANTISES for node in model.graph.node)


def cut(path: Path, feeds: Feeds, session_of: Callable[[bytes], Any]) -> Cut:
    """Cut a model for `feeds`; `session_of` creates onnxruntime sessions, which compute its inputs and outputs."""
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


def pieces(whole: Cut, limit: float) -> Iterator[Cut]:
    """Yield models that compute the outputs of `whole` in order, each with feeds and outputs of at most `limit` bytes.

    An output that exceeds the limit with its feeds has a separate model.
    """
    data, fed, wanted = whole
    model = onnx.load_model_from_string(data)
    producers = {name: i for i, node in enumerate(model.graph.node) for name in node.output}
    names: list[str] = []
    for name in wanted:
        read = _read(model.graph, producers, [*names, name])[1]
        size = sum(fed[n].nbytes for n in fed if n in read) + sum(wanted[n].nbytes for n in (*names, name))
        if names and size > limit:
            yield _piece(model, producers, whole, names)
            names = []
        names.append(name)
    if names:
        yield _piece(model, producers, whole, names)


def _read(graph: onnx.GraphProto, producers: dict[str, int], names: Sequence[str]) -> tuple[set[int], set[str]]:
    """Return the nodes that compute `names`, by index, and the names of all values that they read."""
    nodes: set[int] = set()
    read: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name in read:
            continue
        read.add(name)
        if name in producers and producers[name] not in nodes:
            nodes.add(producers[name])
            todo.extend(_inputs(graph.node[producers[name]]))
    return nodes, read


def _inputs(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, including in its bodies."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            yield from (name for inner in body.node for name in _inputs(inner))
            yield from (value.name for value in body.output)


def _piece(model: onnx.ModelProto, producers: dict[str, int], whole: Cut, names: Sequence[str]) -> Cut:
    """Return the part of a cut model that computes `names`."""
    nodes, read = _read(model.graph, producers, names)
    graph = onnx.GraphProto(name=model.graph.name)
    graph.node.extend(node for i, node in enumerate(model.graph.node) if i in nodes)
    graph.output.extend(value for value in model.graph.output if value.name in names)
    for kind in ("input", "initializer", "value_info"):
        getattr(graph, kind).extend(entry for entry in getattr(model.graph, kind) if entry.name in read)
    piece = onnx.ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions, graph=graph
    )
    fed = {name: x for name, x in whole[1].items() if name in read}
    return piece.SerializeToString(), fed, {value.name: whole[2][value.name] for value in graph.output}


def _outputs(session: Any, feeds: Feeds) -> dict[str, Any]:
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
