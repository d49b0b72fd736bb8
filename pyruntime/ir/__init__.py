"""The intermediate representation: element types, value types, constants and the graph."""

from pyruntime.ir.constant import Constant, RawSource
from pyruntime.ir.dtype import DType
from pyruntime.ir.graph import DeclaredTensor, DeclaredType, Dim, Graph, HostKind, Node, Operator, ValueInfo
from pyruntime.ir.host import HostTensor
from pyruntime.ir.typed import TypedGraph
from pyruntime.ir.types import Array, Element, MapType, OptionalType, SequenceType, TensorType, ValueNeeded, ValueType
from pyruntime.ir.values import conform, declared_element, element_of, known, of_element

__all__ = [
    "Array",
    "Constant",
    "DType",
    "DeclaredTensor",
    "DeclaredType",
    "Dim",
    "Element",
    "Graph",
    "HostKind",
    "HostTensor",
    "MapType",
    "Node",
    "Operator",
    "OptionalType",
    "RawSource",
    "SequenceType",
    "TensorType",
    "TypedGraph",
    "ValueInfo",
    "ValueNeeded",
    "ValueType",
    "conform",
    "declared_element",
    "element_of",
    "known",
    "of_element",
]
