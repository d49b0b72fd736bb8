"""A model of one node, to try an operator without a model that has it and without the onnx package.

    session = InferenceSession(model_of(Swish2(beta=2.0), x))

Source: onnx.proto3 (ModelProto, GraphProto, NodeProto, AttributeProto, ValueInfoProto); protobuf's wire format.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.errors import InvalidArgument
from pyruntime.ir import TensorType
from pyruntime.onnx.importer.attributes import signature
from pyruntime.onnx.writer import attribute, field, joined, number, text
from pyruntime.ops.base import LATEST, Op
from pyruntime.ops.custom import CustomOp, input_names
from pyruntime.session.api.feeds import array_of

__all__ = ["model_of"]

_IR_VERSION = 10


def model_of(op: Op, *examples: Any) -> bytes:
    """Write an ONNX model whose one node is `op`.

    Inputs are called as the parameters of `op.infer` (or `evaluate`), outputs as in `op.outputs`; types and shapes
    are those of the examples. The bytes are for `InferenceSession`, or for a file.

    Args:
        op: an operator with its attributes, such as `Swish2(beta=2.0)`, of a class made with `custom_op`.
        examples: an array, list, number or `TensorType` for each input; Python's floats stand for float32.

    Raises:
        InvalidArgument: `op` is no such operator, or an attribute or output is of a kind that has no place in a node.
        WrongType: an example is no tensor.
    """
    if not isinstance(op, CustomOp) or not hasattr(op, "op_type"):
        raise InvalidArgument(
            f"model_of: expected an operator made with @custom_op, such as Swish2(beta=2.0); got {op!r}"
        )
    given = input_names(type(op), len(examples))[: len(examples)]
    inputs = dict(zip(given, map(_type_of, given, examples), strict=True))
    types = op.infer(*inputs.values())
    made = list(op.outputs)[: len(types)] if len(types) <= len(op.outputs) else [f"y{i}" for i in range(len(types))]
    outputs = dict(zip((f"{n}_out" if n in inputs else n for n in made), types, strict=True))
    node = joined(1, [text(n) for n in inputs]) + joined(2, [text(n) for n in outputs])
    node += field(3, text(op.op_type.lower())) + field(4, text(op.op_type)) + field(7, text(op.domain))
    values = {name: getattr(op, name) for name in signature(type(op)).annotations}
    node += joined(5, [attribute(n, v) for n, v in values.items() if v is not None])
    graph = field(1, node) + field(2, text(op.op_type))
    graph += joined(11, [_value(n, t) for n, t in inputs.items()])
    graph += joined(12, [_value(n, t) for n, t in outputs.items()])
    opsets = [number(2, LATEST), field(1, text(op.domain)) + number(2, 1)]
    return number(1, _IR_VERSION) + field(2, b"pyruntime") + joined(8, opsets) + field(7, graph)


def _type_of(name: str, example: Any) -> TensorType:
    if isinstance(example, TensorType):
        return TensorType(example.dtype, example.shape)
    if isinstance(example, list | tuple | float):
        array = np.asarray(example)
        example = array.astype(np.float32) if array.dtype == np.float64 else array
    array, dtype = array_of(example, None, name)
    return TensorType(dtype, array.shape)


def _value(name: str, kind: Any) -> bytes:
    if not isinstance(kind, TensorType):
        raise InvalidArgument(f"model_of: '{name}' is {kind}; only tensors are supported")
    shape = joined(1, [number(1, d) for d in kind.shape])
    return field(1, text(name)) + field(2, field(1, number(1, kind.dtype.code) + field(2, shape)))
