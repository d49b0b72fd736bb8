"""The k first elements of rows in sorted order, on the GPU.

k <= 512   blocks of up to 1024 pairs (key, index) are sorted in workgroup memory and pass on their first k, until
           one block is left
else       the whole row is sorted by a bitonic network, one dispatch a step
"""

from __future__ import annotations

from pyruntime.ir import DType
from pyruntime.kernels.ir.dispatch import Dispatch, Operand, scratch
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.map import Source, gather_map
from pyruntime.kernels.rows.rows import Rows
from pyruntime.target import Target

__all__ = ["sorted_indices"]

BLOCK = 1024
LARGEST_K = BLOCK // 2
"""Largest k for which a block passes on fewer pairs than it takes."""

_KEY = {"f32": "sort_key_f32(x)", "i32": "sort_key_i32(x)", "u32": "x"}


def _key(dtype: DType, largest: bool) -> str:
    """WGSL: the key of element `x`; the greatest key comes first."""
    if dtype.is_wide:
        key = "sort_key_i64(x)" if dtype.is_signed else "x"
    else:
        key = _KEY[dtype.compute]
    return key if largest else f"~{key}"


def sorted_indices(
    target: Target, x: Operand, rows: Rows, k: int, largest: bool
) -> tuple[list[Dispatch], Operand, int]:
    """The indices of the first k elements of every row in order: dispatches, a uint32 tensor, elements a row of it."""
    wide = x.type.dtype.is_wide
    width = rows.length
    block = 64 if width <= 64 else 256 if width <= 256 else BLOCK
    whole = width > block and k > LARGEST_K
    if whole:
        width = 1 << (rows.length - 1).bit_length()
    keys = scratch(DType.UINT64 if wide else DType.UINT32, rows.count, width)
    indices = scratch(DType.UINT32, rows.count, width)
    made = _prepare(target, keys, indices, x, rows, largest)
    if whole:
        made += _sort(target, keys, indices, rows.count, width)
        return made, indices, width
    while True:
        blocks = -(-width // block)
        keep = min(k, block)
        top_keys = scratch(keys.type.dtype, rows.count, blocks * keep)
        top_indices = scratch(DType.UINT32, rows.count, blocks * keep)
        tensors = {"keys": keys, "indices": indices, "top_keys": top_keys, "top_indices": top_indices}
        defines = {"BLOCK": block, "THREADS": min(256, block // 2), "WIDE": wide}
        values = {"rows": rows.count, "length": width, "blocks": blocks, "keep": keep}
        made.append(launch("topk_block", tensors, target.fold(max(1, rows.count * blocks)), defines, values))
        keys, indices, width = top_keys, top_indices, blocks * keep
        if blocks == 1:
            return made, indices, width


def _prepare(target: Target, keys: Operand, indices: Operand, x: Operand, rows: Rows, largest: bool) -> list[Dispatch]:
    """Keys and indices of all elements, row after row, padded to the tensors' width by pairs that sort last."""
    width = keys.type.shape[1]
    place = """
  let row = i / params.width;
  let k = i - row * params.width;
  let outer = row / params.inner;"""
    values = {"width": width, "length": rows.length, "inner": max(1, rows.inner)}
    key = f"""{place}
  if (k >= params.length) {{ return {keys.type.dtype.compute}(); }}
  let x = load_x((outer * params.length + k) * params.inner + row - outer * params.inner);
  return {_key(x.type.dtype, largest)};"""
    index = f"{place}\n  return select(k, 0xffffffffu, k >= params.length);".replace(
        "\n  let outer = row / params.inner;", ""
    )
    name = f"sort_keys_{'down' if largest else 'up'}"
    return [
        gather_map(target, name, keys, [Source("x", x)], key, values),
        gather_map(target, "sort_indices", indices, [], index, values),
    ]


def _sort(target: Target, keys: Operand, indices: Operand, rows: int, width: int) -> list[Dispatch]:
    """All steps of the network over rows of `width` pairs."""
    tensors, flags = {"keys": keys, "indices": indices}, {"WIDE": keys.type.dtype.is_wide}
    pairs = rows * width // 2
    made = []
    size = 2
    while size <= width:
        step = size // 2
        while step:
            values = {"pairs": pairs, "half": width // 2, "size": size, "step": step}
            made.append(launch("sort_step", tensors, target.grid(pairs), flags, values))
            step //= 2
        size *= 2
    return made
