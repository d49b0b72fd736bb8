"""Raise Defect for exceptions that only a bug can cause, so that they fail the run and never become a slower path.

Expected failures have classes: `Unsupported` (no kernel for these types or on this device), `ValueNeeded` (a value is
known only while running) and `OrtError` (the model, a limit or the device is at fault). Any other exception is a bug.
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
    """Context manager that turns unexpected exceptions into Defect. No generator, because it is entered for every node.

    Args:
        what: the planning step, the first words of the message.
        node, inputs: the node being planned and its input types.
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
    """Whether an undeclared fallback is an error: environment variable PYRUNTIME_STRICT, which the tests set."""
    return os.environ.get("PYRUNTIME_STRICT", "0") not in ("", "0")
