"""The exception tree: onnxruntime's names, so that `except` clauses port.

    Exception
    └── OrtError                     every exception of this package
        ├── Fail                     a graph that cannot be ordered (cycle), or a general failure
        │   └── Defect               a bug of this package, met while planning: report it with the model
        ├── InvalidArgument          a wrong input: dtype, rank, shape, name, option
        │   ├── BadValue             an argument with a value that the API does not take (also a ValueError)
        │   ├── MissingInput         a required input is not in the feed (also a ValueError, as in onnxruntime)
        │   ├── BindingError         an OrtValue, IOBinding or entry of options (also a RuntimeError, as in onnxruntime)
        │   └── WrongType            an argument of another Python type than expected (also a TypeError)
        ├── NoSuchFile               the model's path or URL does not exist
        ├── NoModel                  a session without a model
        ├── EngineError              the browser or its GPU process failed
        │   ├── DeviceLost           the GPU device went away
        │   └── OutOfMemory          a GPU allocation was refused, or was predicted to be
        ├── RuntimeException         an operator failed on these values
        ├── InvalidProtobuf          the bytes are not an ONNX model
        ├── ModelLoaded              a model was loaded twice
        ├── NotImplemented           an operator, type or feature that does not exist here
        ├── InvalidGraph             the model is well-formed protobuf but not a valid graph
        ├── EPFail                   an execution provider cannot do what was asked
        ├── ModelLoadCanceled        loading was cancelled
        ├── ModelRequiresCompilation onnxruntime's name; never raised here
        └── NotFound                 a name that is not there

Messages name the node, the operator, what was expected, what came, and the next step.
"""

from __future__ import annotations

__all__ = [
    "BadValue",
    "BindingError",
    "Defect",
    "DeviceLost",
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "MissingInput",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "OrtError",
    "OutOfMemory",
    "RuntimeException",
    "WrongType",
]


class OrtError(Exception):
    """Base of every exception this package raises."""


class Fail(OrtError):
    """A graph that cannot be ordered, or a failure without a class of its own."""


class Defect(Fail):
    """A bug of this package during planning; the message names the node, pass or step, and asks for a report."""


class InvalidArgument(OrtError):
    """An invalid input, option or name; the message says what was expected and what was given."""


class BadValue(InvalidArgument, ValueError):
    """An argument with a value that the API does not accept."""


class MissingInput(InvalidArgument, ValueError):
    """A required input is missing from the feed."""


class BindingError(InvalidArgument, RuntimeError):
    """An OrtValue, IOBinding or option entry that does not fit its use."""


class WrongType(InvalidArgument, TypeError):
    """An argument of a Python type that the API does not accept."""


class NoSuchFile(OrtError):
    """The model or a file it refers to does not exist."""


class NoModel(OrtError):
    """The session has no model."""


class EngineError(OrtError):
    """The browser, its GPU process or a driver failed."""


class DeviceLost(EngineError):
    """The GPU device was lost and could not be recreated."""


class OutOfMemory(EngineError):
    """A GPU allocation failed, or the memory plan exceeds the limit."""


class RuntimeException(OrtError):
    """An operator cannot compute these values."""


class InvalidProtobuf(OrtError):
    """The bytes are not a well-formed ONNX model."""


class ModelLoaded(OrtError):
    """A model was loaded into a session that already has one."""


class NotImplemented(OrtError):
    """An operator, type or feature that this runtime does not support."""


class InvalidGraph(OrtError):
    """Well-formed protobuf that is not a valid ONNX graph."""


class EPFail(OrtError):
    """An execution provider cannot do what the session requested."""


class ModelLoadCanceled(OrtError):
    """Loading was cancelled by the user."""


class ModelRequiresCompilation(OrtError):
    """For `except` clauses written for onnxruntime; never raised."""


class NotFound(OrtError):
    """A name that does not exist."""
