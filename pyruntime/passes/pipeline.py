"""Order and execution of the graph passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from pyruntime.ir import TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.defects import planning
from pyruntime.passes.cleanup import (
    common_subexpressions,
    dead_code,
    drop_expand,
    simplify_shapes,
    small_powers,
    unit_dims,
)
from pyruntime.passes.decoding import (
    fuse_attention_product,
    fuse_normed_products,
    grow_in_place,
    merge_packed_products,
    pair_products,
    prepare_heads,
)
from pyruntime.passes.fusion import (
    batchnorm_to_affine,
    fuse_attention,
    fuse_elementwise,
    fuse_epilogue,
    fuse_group_norm,
    fuse_linear_attention,
    fuse_norms,
    fuse_product_norm,
    fuse_rotary,
    fuse_skip_norm,
    merge_products,
)
from pyruntime.passes.graph_pass import Pass
from pyruntime.passes.layout import (
    batch_tokens,
    channels_first,
    channels_last,
    fuse_roll,
    merge_transposes,
    move_rows,
    sink_reshape,
    slices_to_transpose,
    split_large_weights,
    unmerge_transpose,
    weight_panels,
)
from pyruntime.passes.quantization import (
    half_precision,
    merge_integer_products,
    move_quantization,
    packed_weights,
    quantization_steps,
    quantized_products,
    weights_channels_last,
    wide_sums,
)
from pyruntime.passes.quantization.float32_nodes import values_after

__all__ = ["PASSES", "PORTABLE", "PassRun", "optimize"]

PASSES: tuple[Pass, ...] = (
    dead_code.run,
    fuse_linear_attention.run,
    batch_tokens.run,
    dead_code.run,
    unmerge_transpose.run,
    simplify_shapes.run,
    drop_expand.run,
    dead_code.run,
    common_subexpressions.run,
    batchnorm_to_affine.run,
    quantized_products.run,
    packed_weights.run,
    split_large_weights.run,
    move_quantization.run,
    quantization_steps.run,
    fuse_norms.run,
    fuse_group_norm.run,
    channels_last.run,
    channels_first.run,
    dead_code.run,
    merge_products.run,
    merge_packed_products.run,
    unit_dims.run,
    fuse_roll.run,
    fuse_rotary.run,
    dead_code.run,
    prepare_heads.run,
    dead_code.run,
    merge_integer_products.run,
    fuse_attention.run,
    sink_reshape.run,
    dead_code.run,
    slices_to_transpose.run,
    dead_code.run,
    merge_transposes.run,
    weights_channels_last.run,
    weight_panels.run,
    wide_sums.run,
    small_powers.run,
    half_precision.run,
    fuse_elementwise.run,
    pair_products.run,
    fuse_epilogue.run,
    fuse_product_norm.run,
    fuse_skip_norm.run,
    fuse_normed_products.run,
    move_rows.run,
    grow_in_place.run,
    fuse_attention_product.run,
)
"""Passes in execution order. The session config entry `pyruntime.disable` with the name of a pass excludes it."""

_WRITE_ONNX = {
    dead_code.run,
    unmerge_transpose.run,
    simplify_shapes.run,
    drop_expand.run,
    common_subexpressions.run,
    fuse_norms.run,
    fuse_group_norm.run,
    unit_dims.run,
    slices_to_transpose.run,
    merge_transposes.run,
    small_powers.run,
}

PORTABLE = tuple(one for one in PASSES if one in _WRITE_ONNX)
"""Passes that write only ONNX operators, and so are useful for other runtimes."""


@dataclass(frozen=True, slots=True)
class PassRun:
    """Result of one pass: whether the graph changed, the number of nodes afterwards, and the duration."""

    name: str
    changed: bool
    nodes: int
    seconds: float


def optimize(
    graph: TypedGraph,
    target: Target,
    passes: Sequence[Pass] = PASSES,
    observe: Callable[[PassRun, TypedGraph], object] | None = None,
) -> list[PassRun]:
    """Run passes on `graph`, in place.

    Args:
        observe: called after each pass with its result and the graph.
    """
    runs: list[PassRun] = []
    graph.float32_values = values_after(graph, target)
    for one in passes:
        if one.name in target.disabled:
            continue
        began = perf_counter()
        with planning(f"pass '{one.name}'"):
            changed = one(graph, target)
        runs.append(PassRun(one.name, changed, len(graph.nodes), perf_counter() - began))
        if observe is not None:
            observe(runs[-1], graph)
    return runs
