"""What a bad model is, and the parts they are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper

__all__ = ["Case", "graph_model", "info", "node", "serialized"]

node = helper.make_node


@dataclass(frozen=True)
class Case:
    """A model that must be refused.

    Attributes:
        error: name of the exception of `pyruntime.errors` that loading or running must raise.
        says: what its message must contain.
        feeds: inputs of the run, where loading succeeds.
        files: external data by name.
        limits: of the session, where the defaults would take long to reach.
        host_only: why a device has nothing to refuse here.
    """

    name: str
    data: bytes
    error: str
    says: str = ""
    feeds: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    host_only: str = ""


def info(name: str, kind: int = TensorProto.FLOAT, shape: Sequence[Any] | None = (2,)) -> Any:
    """A graph's input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


def graph_model(
    nodes: Sequence[NodeProto],
    initializers: Sequence[TensorProto] = (),
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    opset: int | None = 17,
    ir: int | None = 8,
    functions: Sequence[FunctionProto] = (),
    edit: Callable[[ModelProto], None] = lambda model: None,
) -> bytes:
    """x: float32 [2] to y, by these nodes; `edit` changes what the helpers would not let through."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [info("x")] if inputs is None else list(inputs),
        [info("y", shape=None)] if outputs is None else list(outputs),
        list(initializers),
    )
    imports = [] if opset is None else [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(d, 1) for d in sorted({f.domain for f in functions})]
    model = helper.make_model(graph, opset_imports=imports or [helper.make_opsetid("", 17)], functions=list(functions))
    if opset is None:
        del model.opset_import[:]
    if ir is None:
        model.ClearField("ir_version")
    else:
        model.ir_version = ir
    edit(model)
    return serialized(model)


def serialized(model: ModelProto) -> bytes:
    """The bytes; nothing is checked."""
    return bytes(model.SerializePartialToString())
