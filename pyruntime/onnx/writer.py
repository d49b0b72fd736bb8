"""Writer of ONNX models as protobuf bytes, without the onnx package.

Source: onnx.proto3 (ModelProto, GraphProto, NodeProto, AttributeProto, ValueInfoProto, TensorProto); protobuf's wire
format.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.errors import InvalidArgument
from pyruntime.ir import DType
from pyruntime.onnx.records import AttributeType

__all__ = ["ModelWriter", "attribute", "attribute_of", "field", "joined", "number", "text"]

_IR_VERSION = 10


class ModelWriter:
    """Collects a model's nodes, constants, inputs and outputs; `model()` serializes them.

    Args:
        name: name of the graph.
        opset: version of ai.onnx.
    """

    def __init__(self, name: str, opset: int = 21) -> None:
        self._name = name
        self._opset = opset
        self._nodes: list[bytes] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._initializers: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []
        self._domains: dict[str, None] = {}
        self._names = 0

    def input(self, name: str, dtype: DType, shape: Sequence[int | str]) -> str:
        """Declare a graph input; strings are symbolic dimensions."""
        self._inputs.append(_declared(name, dtype, shape))
        return name

    def output(self, name: str, dtype: DType, shape: Sequence[int | str]) -> str:
        """Declare the value `name` as a graph output."""
        self._outputs.append(_declared(name, dtype, shape))
        return name

    def constant(self, value: Any, dtype: Any) -> str:
        """Add an initializer of NumPy dtype `dtype`; return its name. Equal ones are stored once."""
        array = np.ascontiguousarray(np.asarray(value, dtype))
        shape = np.shape(value)
        key = (array.dtype.str, shape, array.tobytes())
        if key not in self._constants:
            made = self._constants[key] = f"constant_{len(self._constants)}"
            content = b"".join(number(1, d) for d in shape) + number(2, DType.from_numpy(array.dtype).code)
            self._initializers.append(content + field(8, text(made)) + field(9, array.tobytes()))
        return self._constants[key]

    def node(self, op: str, *inputs: str, name: str = "", domain: str = "", **attributes: Any) -> str:
        """Add a node with one output; return the output's name, `name` or a new one."""
        if not name:
            self._names += 1
            name = f"{op.lower()}_{self._names}"
        if domain:
            self._domains[domain] = None
        content = (
            joined(1, [text(n) for n in inputs]) + field(2, text(name)) + field(3, text(name)) + field(4, text(op))
        )
        content += joined(5, [attribute(n, v) for n, v in attributes.items()]) + field(7, text(domain))
        self._nodes.append(content)
        return name

    def cast(self, x: str, dtype: DType) -> str:
        """Add a Cast node; return its output's name."""
        return self.node("Cast", x, to=dtype.code)

    def pair(self, op: str, *inputs: str, **attributes: Any) -> tuple[str, str]:
        """Add a node with two outputs; return their names."""
        self._names += 1
        made = (f"{op.lower()}_{self._names}", f"{op.lower()}_{self._names}_1")
        content = joined(1, [text(n) for n in inputs]) + joined(2, [text(n) for n in made])
        content += field(3, text(made[0])) + field(4, text(op))
        content += joined(5, [attribute(n, v) for n, v in attributes.items()])
        self._nodes.append(content)
        return made

    def model(self) -> bytes:
        """Return the serialized ModelProto."""
        graph = joined(1, self._nodes) + field(2, text(self._name)) + joined(5, self._initializers)
        graph += joined(11, self._inputs) + joined(12, self._outputs)
        opsets = [number(2, self._opset), *(field(1, text(d)) + number(2, 1) for d in self._domains)]
        return number(1, _IR_VERSION) + field(2, b"pyruntime") + joined(8, opsets) + field(7, graph)


def _declared(name: str, dtype: DType, shape: Sequence[int | str]) -> bytes:
    dims = [number(1, d) if isinstance(d, int) else field(2, text(d)) for d in shape]
    kind = number(1, dtype.code) + field(2, joined(1, dims))
    return field(1, text(name)) + field(2, field(1, kind))


def attribute(name: str, value: Any) -> bytes:
    """Serialize an AttributeProto whose type follows from the value.

    Raises:
        InvalidArgument: a value of an unsupported type.
    """
    listed = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0
    if isinstance(value, int):
        kind = AttributeType.INT
    elif isinstance(value, float):
        kind = AttributeType.FLOAT
    elif isinstance(value, str):
        kind = AttributeType.STRING
    elif listed and all(isinstance(v, int) for v in value):
        kind = AttributeType.INTS
    elif listed and all(isinstance(v, int | float) for v in value):
        kind = AttributeType.FLOATS
    elif listed and all(isinstance(v, str) for v in value):
        kind = AttributeType.STRINGS
    else:
        raise InvalidArgument(
            f"model_of: the attribute '{name}' is {value!r}; expected an int, a float, a str or a tuple of one of them"
        )
    return attribute_of(name, kind, value)


def attribute_of(name: str, kind: AttributeType, value: Any) -> bytes:
    """Serialize an AttributeProto of numbers or strings."""
    match kind:
        case AttributeType.INT:
            content = number(3, value)
        case AttributeType.FLOAT:
            content = _float(2, value)
        case AttributeType.STRING:
            content = field(4, text(value))
        case AttributeType.INTS:
            content = b"".join(number(8, v) for v in value)
        case AttributeType.FLOATS:
            content = b"".join(_float(7, v) for v in value)
        case _:
            content = joined(9, [text(v) for v in value])
    return field(1, text(name)) + content + number(20, kind.value)


def text(value: str | bytes) -> bytes:
    """Encode a string as UTF-8; bytes are returned unchanged."""
    return value if isinstance(value, bytes) else value.encode()


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def number(tag: int, value: int) -> bytes:
    """Serialize an integer field."""
    return _varint(tag << 3) + _varint(value)


def _float(tag: int, value: float) -> bytes:
    return _varint(tag << 3 | 5) + struct.pack("<f", value)


def field(tag: int, content: bytes) -> bytes:
    """Serialize a length-delimited field: bytes, a string or a message."""
    return _varint(tag << 3 | 2) + _varint(len(content)) + content


def joined(tag: int, contents: Sequence[bytes]) -> bytes:
    """Serialize a repeated length-delimited field."""
    return b"".join(field(tag, content) for content in contents)
