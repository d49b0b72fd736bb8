"""Report exceptions that only a bug explains as Defect: they fail the run and never become a slower path.

What means "not here, but elsewhere" has a class: `Unsupported` (no kernel for these types or on this device),
`ValueNeeded` (a value that only a run brings), `OrtError` (the model, a limit or the device is at fault). An exception
of another class is a bug.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from pyruntime.errors import Defect, OrtError
from pyruntime.ir import Node, ValueNeeded, ValueType
from pyruntime.ops.base import Unsupported
from pyruntime.ops.interpreter import listed, where

__all__ = ["planning", "strict"]

_TOLD = OrtError, Unsupported, ValueNeeded, MemoryError, RecursionError


class planning:  # noqa: N801 - used as a function: `with planning("pass 'fuse_rotary'"):`
    """Replace an exception that only a bug explains by Defect. A class, not a generator: every node is lowered in one.

    Args:
        what: the step that the message begins with.
        node, inputs: the node it is about, and the types of its inputs.
    """

    __slots__ = ("_inputs", "_node", "_what")

    def __init__(self, what: str, node: Node | None = None, inputs: Sequence[ValueType | None] = ()) -> None:
        self._what, self._node, self._inputs = what, node, inputs

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, _TOLD):
            about = f" of {where(self._node)}, with inputs {listed(self._inputs)}," if self._node else ""
            raise Defect(
                f"{self._what}{about} failed with {type(error).__name__}: {error}; this is a bug of pyruntime, please "
                "report it with the model"
            ) from error


def strict() -> bool:
    """True where a fallback that no class declares is an error: environment variable PYRUNTIME_STRICT, as tests set."""
    return os.environ.get("PYRUNTIME_STRICT", "0") not in ("", "0")
