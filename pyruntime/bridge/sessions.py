"""Open sessions of JavaScript, by handle."""

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
    """A session of JavaScript.

    Attributes:
        source: bytes of the model.
        filed: the plans that were last written to the plan cache.
    """

    session: InferenceSession
    source: ByteSource
    filed: WeakSet[Executable] | None = None


open_sessions: dict[int, OpenSession] = {}


def session_of(handle: int) -> InferenceSession:
    """Return the session of a handle. Raises InvalidArgument: the session was released."""
    try:
        return open_sessions[handle].session
    except KeyError:
        raise InvalidArgument(f"session {handle} was already released; create another") from None
