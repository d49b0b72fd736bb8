"""The config entry `pyruntime.kv_cache_bits`: caches that a model declares as floats are packed to 8 or 4 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyruntime.errors import InvalidArgument
from pyruntime.ir import DeclaredTensor, DType, Graph, Node, ValueInfo
from pyruntime.ops.base import attributes_of
from pyruntime.ops.microsoft.attention.group_query_attention import PAST_KEY, PAST_VALUE, GroupQueryAttention
from pyruntime.ops.microsoft.attention.group_query_form import PER_ROW
from pyruntime.ops.microsoft.attention.packed_rows import row_bytes
from pyruntime.session.run.cache_sizes import cache_sizes

__all__ = ["pack_caches"]

_FLOATS = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)
_MULTIPLE = 8


def pack_caches(graph: Graph, entry: str, sizes: Mapping[str, int]) -> None:
    """Let each GroupQueryAttention of a graph keep packed rows in its caches, which become uint8 inputs and outputs.

    Args:
        entry: '8' or '4'.
        sizes: of dimensions that the session's options fix.

    Raises:
        InvalidArgument: another entry; there are no such caches, or something else reads or makes one.
    """
    if entry not in ("8", "4"):
        raise InvalidArgument(f"pyruntime.kv_cache_bits: expected 8 or 4, got {entry!r}")
    bits = int(entry)
    attentions = [n for n in graph.nodes if isinstance(n.op, GroupQueryAttention) and any(_caches(n))]
    if not attentions:
        raise InvalidArgument(
            "pyruntime.kv_cache_bits: expected a model whose caches GroupQueryAttention reads and writes, got one "
            "without; leave the option out, or export the model with GroupQueryAttention"
        )
    names = {name for node in attentions for name in _caches(node) if name}
    _check(graph, attentions, names)
    components = {name: size for name, (_, size) in cache_sizes(graph).items()}
    widths: dict[str, int] = {}
    for value in graph.inputs:
        if value.name in names:
            widths[value.name] = row_bytes(_components(value, sizes, components), bits)
    for node in attentions:
        past_key, past_value, *made = _caches(node)
        widths |= {y: widths[x] for x, y in zip((past_key, past_value), made, strict=True) if x in widths}
        own = attributes_of(node.op) | {"k_quant_type": PER_ROW, "v_quant_type": PER_ROW, "kv_cache_bit_width": bits}
        node.op = type(node.op)(**own)
    graph.inputs = [_declared(v, widths.get(v.name)) if v.name in names else v for v in graph.inputs]
    graph.outputs = [_declared(v, widths.get(v.name)) if v.name in names else v for v in graph.outputs]


def _caches(node: Node) -> tuple[str, ...]:
    """The caches of an attention: what it reads and what it makes, '' where it lacks one."""
    given = (*node.inputs, *[""] * PAST_VALUE)
    made = (*node.outputs, "", "", "")
    return given[PAST_KEY], given[PAST_VALUE], made[1], made[2]


def _check(graph: Graph, attentions: list[Node], names: set[str]) -> None:
    """Raise InvalidArgument where a cache cannot be packed."""
    given = {v.name: v.type for v in graph.inputs}
    producers = graph.producers()
    for name in sorted(names):
        kind, maker = given.get(name), producers.get(name)
        floats = isinstance(kind, DeclaredTensor) and kind.dtype in _FLOATS
        if not floats and (maker is None or maker not in attentions):
            what = f"made by node {maker.label}" if maker else f"{kind}"
            raise _refused(name, f"expected an input of floats or what GroupQueryAttention makes, it is {what}")
        others = [n for n in graph.nodes if name in n.inputs and (n not in attentions or name not in _caches(n))]
        if others:
            raise _refused(name, f"expected GroupQueryAttention alone to read it, node {others[0].label} does, too")
    for node in attentions:
        assert isinstance(node.op, GroupQueryAttention)
        if node.op.is_quantized or node.op.sliding_window_cache:
            what = "sliding_window_cache" if node.op.sliding_window_cache else f"k_quant_type {node.op.k_quant_type}"
            raise _refused(next(filter(None, _caches(node))), f"its node {node.label} has {what}")


def _refused(name: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"pyruntime.kv_cache_bits: the cache '{name}' cannot be packed: {why}; leave the option out, or export the "
        "model with GroupQueryAttention and caches of floats"
    )


def _components(value: ValueInfo, sizes: Mapping[str, int], components: Mapping[str, int]) -> int:
    """Of the heads of a cache, as declared, as the options fix them, or as weights say."""
    shape = value.type.shape if isinstance(value.type, DeclaredTensor) else None
    dim = shape[3] if shape is not None and len(shape) == 4 else None
    size = (sizes.get(dim) if isinstance(dim, str) else dim) or components.get(value.name)
    if size is None:
        raise _refused(value.name, f"its shape {shape} does not say how many components its heads have")
    if size % _MULTIPLE:
        raise _refused(value.name, f"expected heads of a multiple of {_MULTIPLE} components, got {size}")
    return size


def _declared(value: ValueInfo, width: int | None) -> ValueInfo:
    """The declaration of a cache whose rows become packed."""
    shape = value.type.shape if isinstance(value.type, DeclaredTensor) else None
    known = (*shape[:3], width) if shape is not None and len(shape) == 4 else None
    return replace(value, type=DeclaredTensor(DType.UINT8, known))
