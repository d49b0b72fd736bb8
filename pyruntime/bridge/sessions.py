"""The sessions that JavaScript has, by their handles."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakSet

from pyruntime.device.execution.executable import Executable
from pyruntime.errors import InvalidArgument
from pyruntime.onnx.formats.source import ByteSource
from pyruntime.session import InferenceSession

__all__ = ["OpenSession", "open_sessions", "session_of"]


@dataclass(slots=True)
class OpenSession:
    """A session that JavaScript has.

    Attributes:
        source: the bytes of its model.
        filed: the plans that were in its file when it was last written.
    """

    session: InferenceSession
    source: ByteSource
    filed: WeakSet[Executable] | None = None


open_sessions: dict[int, OpenSession] = {}


def session_of(handle: int) -> InferenceSession:
    """Return the session of a handle. Raises InvalidArgument: it was released."""
    try:
        return open_sessions[handle].session
    except KeyError:
        raise InvalidArgument(f"session {handle} was already released; create another") from None
