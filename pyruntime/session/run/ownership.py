"""Outputs as onnxruntime gives them: memory of the caller's own, contiguous and writable.

Operators pass on what they are given where they can, so that an output may be an input, a weight, part of another
output or a constant that is kept for the next run. Whether anything else has an array is what Python counts anyway.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from pyruntime.device.tensor import DeviceTensor
from pyruntime.ir import Array, HostTensor, known
from pyruntime.session.run.stages import AnyValue

__all__ = ["copied", "owned"]


def _references(chain: list[Array], at: int) -> int:
    return sys.getrefcount(chain[at])


_ONE = _references([np.empty(0)], 0)
"""What is counted for an array that a list alone refers to."""


def owned(outputs: dict[str, AnyValue]) -> dict[str, AnyValue]:
    """Give each output memory that nothing else refers to; outputs that have it already are not copied.

    Args:
        outputs: emptied, so that it refers to nothing.
    """
    names = list(outputs)
    made = dict[str, AnyValue]()
    while outputs:
        name, value = outputs.popitem()
        if isinstance(value, DeviceTensor):
            made[name] = value
        elif isinstance(value, HostTensor):
            kind, outside, chain = value.type, value.is_outside, [value.array()]
            value = None  # type: ignore[assignment]
            made[name] = HostTensor(kind, None, _own(chain, outside))
        else:
            made[name] = known(value, copied(value.value()))
    return {name: made[name] for name in names}


def copied(content: Any) -> Any:
    """Copy an array, or the arrays of a sequence, map or optional."""
    if isinstance(content, list):
        return [copied(item) for item in content]
    if isinstance(content, Mapping):
        return {key: copied(item) for key, item in content.items()}
    return np.array(content, order="C") if isinstance(content, np.ndarray) else content


def _own(chain: list[Array], outside: bool) -> Array:
    """The array in `chain`, its only holder, or a copy where its memory is not its own.

    Args:
        outside: the array has just been read from outside Python's memory.
    """
    array = chain[0]
    usable = array.flags.c_contiguous and array.flags.writeable
    del array
    while usable:
        if _references(chain, -1) != _ONE + (len(chain) > 1):  # its view refers to a base, too
            break
        base: Any = chain[-1].base
        if base is None or (outside and not isinstance(base, np.ndarray)):
            return chain[0]
        if not isinstance(base, np.ndarray):
            break
        chain.append(base)
        del base
    return np.array(chain[0], order="C")
