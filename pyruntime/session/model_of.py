"""A model of one node, to try an operator without a model that has it and without the onnx package.

    session = InferenceSession(model_of(Swish2(beta=2.0), x))

Source: onnx.proto3 (ModelProto, GraphProto, NodeProto, AttributeProto, ValueInfoProto); protobuf's wire format.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.errors import InvalidArgument
from pyruntime.ir import TensorType
from pyruntime.onnx.attributes import signature
from pyruntime.onnx.records import AttributeType
from pyruntime.ops.base import LATEST, Op
from pyruntime.ops.custom import CustomOp, input_names
from pyruntime.session.feeds import array_of

__all__ = ["model_of"]

_IR_VERSION = 10


def model_of(op: Op, *examples: Any) -> bytes:
    """A serialized ONNX model whose one node is `op`.

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
    node = _joined(1, [_text(n) for n in inputs]) + _joined(2, [_text(n) for n in outputs])
    node += _field(3, _text(op.op_type.lower())) + _field(4, _text(op.op_type)) + _field(7, _text(op.domain))
    values = {name: getattr(op, name) for name in signature(type(op)).annotations}
    node += _joined(5, [_attribute(n, v) for n, v in values.items() if v is not None])
    graph = _field(1, node) + _field(2, _text(op.op_type))
    graph += _joined(11, [_value(n, t) for n, t in inputs.items()])
    graph += _joined(12, [_value(n, t) for n, t in outputs.items()])
    opsets = [_number(2, LATEST), _field(1, _text(op.domain)) + _number(2, 1)]
    return _number(1, _IR_VERSION) + _field(2, b"pyruntime") + _joined(8, opsets) + _field(7, graph)


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
    shape = _joined(1, [_number(1, d) for d in kind.shape])
    return _field(1, _text(name)) + _field(2, _field(1, _number(1, kind.dtype.code) + _field(2, shape)))


def _attribute(name: str, value: Any) -> bytes:
    """AttributeProto: name 1, f 2, i 3, s 4, floats 7, ints 8, strings 9, type 20."""
    if isinstance(value, int):
        kind, content = AttributeType.INT, _number(3, value)
    elif isinstance(value, float):
        kind, content = AttributeType.FLOAT, _float(2, value)
    elif isinstance(value, str):
        kind, content = AttributeType.STRING, _field(4, _text(value))
    elif isinstance(value, Sequence) and value and all(isinstance(v, int) for v in value):
        kind, content = AttributeType.INTS, b"".join(_number(8, v) for v in value)
    elif isinstance(value, Sequence) and value and all(isinstance(v, int | float) for v in value):
        kind, content = AttributeType.FLOATS, b"".join(_float(7, v) for v in value)
    elif isinstance(value, Sequence) and value and all(isinstance(v, str) for v in value):
        kind, content = AttributeType.STRINGS, _joined(9, [_text(v) for v in value])
    else:
        raise InvalidArgument(
            f"model_of: the attribute '{name}' is {value!r}; expected an int, a float, a str or a tuple of one of them"
        )
    return _field(1, _text(name)) + content + _number(20, kind.value)


def _text(text: str) -> bytes:
    return text.encode()


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _joined(field: int, contents: Sequence[bytes]) -> bytes:
    return b"".join(_field(field, content) for content in contents)
