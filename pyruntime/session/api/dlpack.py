"""Arrays from and to DLPack capsules. Source: the DLPack specification; NumPy's side of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.errors import WrongType
from pyruntime.ir import Array

__all__ = ["HOST", "array_from_dlpack"]

HOST = (1, 0)
"""DLPack's device of host memory."""


class _Capsule:
    """A DLPack capsule with the two methods by which `numpy.from_dlpack` asks for one."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST


def array_from_dlpack(data: Any) -> Array:
    """Return the memory of a tensor that exports DLPack, or of a capsule, as an array without a copy.

    Raises:
        WrongType (a TypeError): it is neither.
    """
    if not hasattr(data, "__dlpack__"):
        if type(data).__name__ != "PyCapsule":
            raise WrongType(f"from_dlpack: expected a tensor with __dlpack__ or a capsule, got {type(data).__name__}")
        data = _Capsule(data)
    made: Array = np.from_dlpack(data)
    return made
