"""Run single nodes on the host with NumPy, in plans whose other steps run on the GPU."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import TypeAlias

from pyruntime.ir import HostTensor, Node, TensorType, ValueType, known
from pyruntime.ops.base import Op
from pyruntime.ops.interpreter import execute, located

__all__ = ["HostValue", "host_value", "run_on_host"]

HostValue: TypeAlias = HostTensor | ValueType
"""A value on the host: a tensor, or a sequence, optional or map type with its value."""


def run_on_host(node: Node, kinds: Sequence[ValueType | None], values: MutableMapping[str, HostValue]) -> None:
    """Evaluate one node with NumPy and store its outputs in `values`.

    Args:
        kinds: types of the node's inputs. An input that `values` lacks must have a type with a value.
    """
    import numpy as np

    op = node.op
    assert isinstance(op, Op)
    inputs: list[ValueType | None] = []
    for name, kind in zip(node.inputs, kinds, strict=True):
        value = values.get(name, kind) if name else None
        assert value is not None or not name, name
        inputs.append(value.known(name) if isinstance(value, HostTensor) else value)
    with located(node, inputs), np.errstate(all="ignore"):
        results = execute(op, *inputs)
    for name, result in zip(node.outputs, results, strict=False):
        if name and result is not None:
            values[name] = host_value(result)


def host_value(kind: ValueType) -> HostValue:
    """Convert a type with its value to the host's representation."""
    if isinstance(kind, TensorType):
        return HostTensor(kind, None, kind.value())
    return known(kind, kind.value())
