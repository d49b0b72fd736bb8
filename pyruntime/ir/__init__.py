"""The intermediate representation: element types, value types, constants and the graph."""

from pyruntime.ir.bounds import Bound, InputBound, check_integers
from pyruntime.ir.constant import Constant, RawSource, are_open, has_dims
from pyruntime.ir.dtype import DType
from pyruntime.ir.graph import DeclaredDim, DeclaredTensor, DeclaredType, Graph, HostKind, Node, Operator, ValueInfo
from pyruntime.ir.host import HostTensor
from pyruntime.ir.lists import Floats, Ints, NumberList, Strings
from pyruntime.ir.symbolic.dims import (
    NUMBERS_ALONE,
    Dim,
    Expression,
    divisor,
    exact_quotient,
    expression,
    hint,
    int_array,
    is_dim,
    lower,
    multiple,
    positive,
    upper,
)
from pyruntime.ir.symbolic.reals import Real, is_real, real_of
from pyruntime.ir.symbolic.sizes import Sizes, evaluate
from pyruntime.ir.typed import Edit, Rows, State, TypedGraph
from pyruntime.ir.types import (
    Array,
    Element,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    Unsupported,
    ValueNeeded,
    ValueType,
)
from pyruntime.ir.values import at_sizes, conform, declared_element, element_of, known, of_element

__all__ = [
    "NUMBERS_ALONE",
    "Array",
    "Bound",
    "Constant",
    "DType",
    "DeclaredDim",
    "DeclaredTensor",
    "DeclaredType",
    "Dim",
    "Edit",
    "Element",
    "Expression",
    "Floats",
    "Graph",
    "HostKind",
    "HostTensor",
    "InputBound",
    "Ints",
    "MapType",
    "Node",
    "NumberList",
    "Operator",
    "OptionalType",
    "RawSource",
    "Real",
    "Rows",
    "SequenceType",
    "Sizes",
    "State",
    "Strings",
    "TensorType",
    "TypedGraph",
    "Unsupported",
    "ValueInfo",
    "ValueNeeded",
    "ValueType",
    "are_open",
    "at_sizes",
    "check_integers",
    "conform",
    "declared_element",
    "divisor",
    "element_of",
    "evaluate",
    "exact_quotient",
    "expression",
    "has_dims",
    "hint",
    "int_array",
    "is_dim",
    "is_real",
    "known",
    "lower",
    "multiple",
    "of_element",
    "positive",
    "real_of",
    "upper",
]
