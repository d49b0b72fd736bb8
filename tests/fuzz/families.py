"""The families of operators samples are drawn from."""

from __future__ import annotations

from tests.fuzz import elementwise, graphs, layouts, linear, movement, quantized, reuse, rows
from tests.fuzz.build import Family

__all__ = ["FAMILIES", "PLANNED"]

FAMILIES: dict[str, Family] = {
    "unary": elementwise.unary,
    "binary": elementwise.binary,
    "variadic": elementwise.variadic,
    "where": elementwise.where,
    "clip": elementwise.clips,
    "cast": elementwise.casts,
    "layout": movement.layout,
    "slice": movement.slices,
    "join": movement.joins,
    "gather": movement.gathers,
    "scatter": movement.scatters,
    "pad": movement.pads,
    "selection": movement.selections,
    "reduction": rows.reductions,
    "sorting": rows.sorting,
    "softmax": rows.softmaxes,
    "normalization": rows.normalizations,
    "product": linear.products,
    "convolution": linear.convolutions,
    "pool": linear.pools,
    "resize": linear.resizes,
    "quantized": quantized.quantized,
    "recurrent": quantized.recurrent,
    "layouts": layouts.layouts,
    "graph": graphs.graphs,
    "reuse": reuse.reuse,
}

PLANNED: tuple[Family, ...] = (reuse.reuse, graphs.graphs, reuse.reuse, layouts.layouts)
"""Families whose plans share memory between many nodes, in turn."""
