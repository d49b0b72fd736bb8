"""The order passes run in."""

from __future__ import annotations

from collections.abc import Callable

from pyruntime.ir import TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.defects import planning
from pyruntime.passes.cleanup import common_subexpressions, dead_code, drop_expand, small_powers, unit_dims
from pyruntime.passes.cleanup import simplify_shapes as settle
from pyruntime.passes.decoding import fuse_normed_products, merge_packed_products, pair_products, prepare_heads
from pyruntime.passes.fusion import (
    batchnorm_to_affine,
    fuse_attention,
    fuse_elementwise,
    fuse_group_norm,
    fuse_norms,
    fuse_product_norm,
    fuse_rotary,
    fuse_skip_norm,
    merge_products,
)
from pyruntime.passes.fusion import fuse_epilogue as fuse_tail
from pyruntime.passes.layout import (
    channels_first,
    channels_last,
    fuse_roll,
    merge_transposes,
    move_rows,
    sink_reshape,
    slices_to_transpose,
    unmerge_transpose,
)
from pyruntime.passes.quantization import merge_integer_products, packed_weights, quantization_steps, quantized_products
from pyruntime.passes.quantization import weights_channels_last as taps_last

__all__ = ["PASSES", "optimize"]

Pass = Callable[[TypedGraph, Target], bool]

PASSES: tuple[tuple[str, Pass], ...] = (
    ("dead_code", dead_code.run),
    ("unmerge_transpose", unmerge_transpose.run),
    ("settle", settle.run),
    ("drop_expand", drop_expand.run),
    ("dead_code", dead_code.run),
    ("common_subexpressions", common_subexpressions.run),
    ("batchnorm_to_affine", batchnorm_to_affine.run),
    ("quantized_products", quantized_products.run),
    ("packed_weights", packed_weights.run),
    ("quantization_steps", quantization_steps.run),
    ("fuse_norms", fuse_norms.run),
    ("fuse_group_norm", fuse_group_norm.run),
    ("channels_last", channels_last.run),
    ("channels_first", channels_first.run),
    ("dead_code", dead_code.run),
    ("merge_products", merge_products.run),
    ("merge_packed_products", merge_packed_products.run),
    ("unit_dims", unit_dims.run),
    ("fuse_roll", fuse_roll.run),
    ("fuse_rotary", fuse_rotary.run),
    ("dead_code", dead_code.run),
    ("prepare_heads", prepare_heads.run),
    ("dead_code", dead_code.run),
    ("merge_integer_products", merge_integer_products.run),
    ("fuse_attention", fuse_attention.run),
    ("sink_reshape", sink_reshape.run),
    ("dead_code", dead_code.run),
    ("slices_to_transpose", slices_to_transpose.run),
    ("merge_transposes", merge_transposes.run),
    ("taps_last", taps_last.run),
    ("small_powers", small_powers.run),
    ("fuse_elementwise", fuse_elementwise.run),
    ("pair_products", pair_products.run),
    ("fuse_tail", fuse_tail.run),
    ("fuse_product_norm", fuse_product_norm.run),
    ("fuse_skip_norm", fuse_skip_norm.run),
    ("fuse_normed_products", fuse_normed_products.run),
    ("move_rows", move_rows.run),
)
"""Name and function, in order. A session config entry `pyruntime.disable` with the name leaves one out."""


def optimize(graph: TypedGraph, target: Target) -> list[str]:
    """Run all passes on `graph`, in place; returns the names of those that changed it."""
    changed: list[str] = []
    for name, run in PASSES:
        if name not in target.disabled:
            with planning(f"pass '{name}'"):
                changed += [name] if run(graph, target) else []
    return changed
