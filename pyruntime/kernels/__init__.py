"""Kernels: dispatch records, WGSL templates, the elementwise and movement code generators."""

from pyruntime.kernels.ir.dispatch import Dispatch, Operand, Role, constant, inp, out, scratch
from pyruntime.kernels.ir.kernel import Kernel
from pyruntime.kernels.ir.launch import launch
from pyruntime.kernels.map import Source, elementwise, for_each, gather_map
from pyruntime.kernels.movement import Unit, fill, move, strided_copy
from pyruntime.kernels.wgsl.storage import bits_type
from pyruntime.target import Limits, Target

__all__ = [
    "Dispatch",
    "Kernel",
    "Limits",
    "Operand",
    "Role",
    "Source",
    "Target",
    "Unit",
    "bits_type",
    "constant",
    "elementwise",
    "fill",
    "for_each",
    "gather_map",
    "inp",
    "launch",
    "move",
    "out",
    "scratch",
    "strided_copy",
]
