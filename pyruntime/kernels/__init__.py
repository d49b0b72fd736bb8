"""Kernels: dispatch records, WGSL templates, the elementwise and movement code generators."""

from pyruntime.kernels.dispatch import WORKGROUP, Dispatch, Limits, Operand, Role, Target, constant, inp, out, scratch
from pyruntime.kernels.kernel import Binding, Kernel
from pyruntime.kernels.map import Source, elementwise, gather_map, strided_copy
from pyruntime.kernels.storage import bits_type, group, lanes
from pyruntime.kernels.template import params_of, template

__all__ = [
    "WORKGROUP",
    "Binding",
    "Dispatch",
    "Kernel",
    "Limits",
    "Operand",
    "Role",
    "Source",
    "Target",
    "bits_type",
    "constant",
    "elementwise",
    "gather_map",
    "group",
    "inp",
    "lanes",
    "out",
    "params_of",
    "scratch",
    "strided_copy",
    "template",
]
