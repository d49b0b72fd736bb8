"""Models changed where it hurts: well-formed protobuf that says something else than it did."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from pyruntime.ops.registry import names

__all__ = ["mutated"]

_INTEGERS = (0, 1, -1, 2, 3, 7, 13, 64, 255, 256, 65_535, 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -(1 << 63))
_OPERATORS = names()


def mutated(data: bytes, random: Random, edits: int = 3) -> bytes | None:
    """`data` with up to `edits` fields changed; None where it is no model to begin with."""
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return None
    if not model.graph.node:
        return None
    for _ in range(random.randint(1, edits)):
        random.choice(_EDITS)(model, random)
    return bytes(model.SerializePartialToString())


def _graphs(graph: GraphProto) -> list[GraphProto]:
    inner = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return [graph, *(g for body in inner for g in _graphs(body))]


def _node(model: ModelProto, random: Random) -> NodeProto:
    node: NodeProto = random.choice([n for g in _graphs(model.graph) for n in g.node])
    return node


def _operator(model: ModelProto, random: Random) -> None:
    _node(model, random).op_type = random.choice(_OPERATORS)


def _inputs(model: ModelProto, random: Random) -> None:
    node = _node(model, random)
    values = [n for g in _graphs(model.graph) for other in g.node for n in (*other.input, *other.output)]
    kept = list(node.input)
    match random.randrange(4):
        case 0 if kept:
            kept[random.randrange(len(kept))] = random.choice([*values, ""])
        case 1 if kept:
            kept.pop(random.randrange(len(kept)))
        case 2:
            kept.append(random.choice([*values, ""]))
        case _:
            random.shuffle(kept)
    node.input[:] = kept


def _outputs(model: ModelProto, random: Random) -> None:
    node = _node(model, random)
    if random.random() < 0.5:
        node.output.append(random.choice(["", "more", *node.output]))
    elif len(node.output) > 1:
        node.output.pop()


def _attribute(model: ModelProto, random: Random) -> None:
    attributes = [a for g in _graphs(model.graph) for n in g.node for a in n.attribute]
    if not attributes:
        return
    chosen: AttributeProto = random.choice(attributes)
    if chosen.ints and random.random() < 0.8:
        chosen.ints[random.randrange(len(chosen.ints))] = random.choice(_INTEGERS)
    elif chosen.type == AttributeProto.INT:
        chosen.i = random.choice(_INTEGERS)
    elif chosen.type == AttributeProto.FLOAT:
        chosen.f = random.choice((0.0, -1.0, float("nan"), float("inf"), 1e38))
    elif chosen.type == AttributeProto.STRING:
        chosen.s = random.choice((b"", b"reflect", b"linear", b"SAME_UPPER", b"\xff", b"A" * 300))
    else:
        chosen.type = random.choice(list(AttributeProto.AttributeType.values()))


def _tensor(model: ModelProto, random: Random) -> None:
    tensors = [t for g in _graphs(model.graph) for t in g.initializer]
    tensors += [a.t for g in _graphs(model.graph) for n in g.node for a in n.attribute if a.HasField("t")]
    if not tensors:
        return
    chosen: TensorProto = random.choice(tensors)
    match random.randrange(4):
        case 0 if chosen.dims:
            chosen.dims[random.randrange(len(chosen.dims))] = random.choice(_INTEGERS)
        case 1:
            chosen.data_type = random.randrange(27)
        case 2 if chosen.raw_data:
            raw = bytearray(chosen.raw_data)
            raw[random.randrange(len(raw))] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
            chosen.raw_data = bytes(raw)
        case _ if chosen.int64_data:
            chosen.int64_data[random.randrange(len(chosen.int64_data))] = random.choice(_INTEGERS)


def _declared(model: ModelProto, random: Random) -> None:
    values = [*model.graph.input, *model.graph.output]
    if not values:
        return
    kind = random.choice(values).type.tensor_type
    if random.random() < 0.4:
        kind.elem_type = random.randrange(27)
    elif kind.shape.dim and random.random() < 0.7:
        random.choice(kind.shape.dim).dim_value = random.choice((0, 1, 2, 3, 5, 8, 1 << 20))
    else:
        kind.shape.dim.add().dim_value = random.choice((0, 1, 2, 3))


def _version(model: ModelProto, random: Random) -> None:
    if model.opset_import:
        random.choice(model.opset_import).version = random.randrange(0, 30)


_EDITS: tuple[Callable[[ModelProto, Random], None], ...] = (
    _operator, _inputs, _inputs, _outputs, _attribute, _attribute, _tensor, _tensor, _declared, _version,
)  # fmt: skip
