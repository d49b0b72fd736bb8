"""Inputs from the user checked against the model's declarations; outputs back to NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pyruntime.errors import BindingError, InvalidArgument, MissingInput, WrongType
from pyruntime.ir import (
    Array,
    DeclaredDim,
    DeclaredTensor,
    DeclaredType,
    DType,
    HostKind,
    HostTensor,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueInfo,
    ValueType,
    declared_element,
    known,
)
from pyruntime.ir.encoding import decode, encode
from pyruntime.ops.host import HostValue
from pyruntime.session.environment import from_page
from pyruntime.session.metadata import NodeArg

__all__ = ["array_of", "check_mapping", "check_names", "check_tensor", "from_user", "to_user"]


def check_names(feeds: Mapping[str, object], inputs: Sequence[ValueInfo], overridable: Sequence[ValueInfo]) -> None:
    """Check that every required input is fed, and nothing else but initializers that may be overridden.

    Raises:
        WrongType: the feed is no mapping. MissingInput: inputs are missing. InvalidArgument: a name the model does not
            have.
    """
    check_mapping(feeds, inputs)
    missing = [v.name for v in inputs if v.name not in feeds and not _optional(v)]
    if missing:
        required = [v.name for v in inputs if not _optional(v)]
        raise MissingInput(
            f"Required inputs ({missing}) are missing from input feed ({sorted(feeds)}); "
            f"the model's inputs are {required}"
        )
    allowed = {v.name for v in (*inputs, *overridable)}
    extra = sorted(feeds.keys() - allowed)
    if extra:
        raise InvalidArgument(f"Invalid input name: '{extra[0]}'; the model's inputs are {sorted(allowed)}")


def check_mapping(feeds: object, inputs: Iterable[ValueInfo | NodeArg]) -> None:
    """Raise WrongType where what is fed is no mapping from names."""
    if not isinstance(feeds, Mapping):
        raise WrongType(
            f"expected the input feed as a dict from names to values, got {type(feeds).__name__}; the model's inputs "
            f"are {[v.name for v in inputs]}"
        )


def _optional(value: ValueInfo) -> bool:
    return isinstance(value.type, HostKind) and value.type.kind == "optional"


def from_user(value: Any, declared: ValueInfo, overrides: Mapping[str, int]) -> HostValue:
    """Convert a user's value (array, list, number, HostTensor, JavaScript typed array) to the declared type.

    Raises:
        InvalidArgument: another type, rank or shape than declared; says what was expected and what came.
        BindingError, WrongType: not a tensor; see `array_of`.
    """
    if isinstance(value, HostTensor):
        check_tensor(value.type, declared, overrides)
        return value
    kind = declared.type
    dtype = kind.dtype if isinstance(kind, DeclaredTensor) else None
    value = from_page(value, dtype, declared.name)
    if isinstance(kind, HostKind):
        return _host_kind(value, kind, declared.name)
    array, found = array_of(value, dtype, declared.name)
    tensor = HostTensor.of(array, found)
    check_tensor(tensor.type, declared, overrides)
    return tensor


def array_of(value: Any, wanted: DType | None, name: str) -> tuple[Array, DType]:
    """Convert a value to an array in the carrier of its type: lists to the declared type, arrays must have it.

    Raises:
        InvalidArgument: a type that ONNX lacks. BindingError (a RuntimeError), WrongType (a TypeError): not an array.
    """
    value = from_page(value, wanted, name)
    if not isinstance(value, np.ndarray | np.generic):
        value = _array_like(value, wanted, name)
    array = np.asarray(value)
    try:
        dtype = DType.from_numpy(array.dtype)
    except KeyError:
        raise InvalidArgument(f"input '{name}': NumPy type {array.dtype} has no ONNX type") from None
    if wanted is not None and dtype is not wanted and not dtype.exact_carrier:
        return array, dtype
    if dtype is DType.STRING:
        return _texts(array, name), dtype
    if not dtype.exact_carrier:
        if dtype.bits < 8:
            return array.astype(dtype.carrier), dtype
        return decode(np.ascontiguousarray(array).view(np.uint8).reshape(-1), dtype, array.shape), dtype
    same_bits = wanted is not None and dtype is not wanted and not wanted.exact_carrier and wanted.bits == dtype.bits
    if wanted is not None and same_bits and array.dtype.kind == "u":
        # Raw bits of a type NumPy lacks: uint16 for bfloat16, uint8 for the 8-bit floats.
        return decode(np.ascontiguousarray(array).view(np.uint8).reshape(-1), wanted, array.shape), wanted
    if wanted is not None and wanted.bits < 8 and array.dtype.name == wanted.carrier:
        return array, wanted
    return array, dtype


def _array_like(value: Any, wanted: DType | None, name: str) -> Array:
    """Lists and numbers as an array of the declared type, texts and other objects as NumPy reads them.

    Raises:
        BindingError: NumPy cannot read it, such as a ragged list or a number that the type does not hold.
        WrongType: it is no array, list or number.
    """
    numeric = wanted is not None and wanted is not DType.STRING
    as_wanted = numeric and isinstance(value, list | tuple | int | float | bool)
    try:
        array = np.asarray(value, wanted.numpy if as_wanted and wanted else None)
    except (ValueError, TypeError, OverflowError) as error:
        kind = f" of type {wanted.type_string}" if wanted else ""
        raise BindingError(f"input '{name}': expected a tensor{kind}, got a {type(value).__name__}: {error}") from None
    if value is None or (numeric and array.dtype.kind in "OSU"):
        kind = wanted.type_string if wanted else "tensor"
        raise WrongType(
            f"input '{name}': expected a {kind} as numpy.ndarray, list or number, got {type(value).__name__}"
        )
    return array


def _texts(array: Array, name: str) -> Array:
    """The elements as str: bytes are read as UTF-8, other objects by `str`, as onnxruntime does."""
    if array.dtype.kind in "UT" or all(type(text) is str for text in array.flat):
        return array.astype(object)
    try:
        texts = [text.decode() if isinstance(text, bytes) else str(text) for text in array.flat]
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"input '{name}': expected UTF-8, got bytes that are not: {error}") from None
    return np.asarray(texts, object).reshape(array.shape)


def check_tensor(kind: TensorType, declared: ValueInfo, overrides: Mapping[str, int]) -> None:
    """Check a tensor's type, rank and sizes against the declaration. Raises InvalidArgument."""
    expected = declared.type
    if not isinstance(expected, DeclaredTensor):
        return
    if kind.dtype is not expected.dtype:
        raise InvalidArgument(
            f"Unexpected input data type for '{declared.name}'. Actual: ({kind.dtype.type_string}), "
            f"expected: ({expected.dtype.type_string}); convert it with .astype()"
        )
    # A scalar, too, is fed in any shape: onnxruntime checks none, and exporters' scripts feed [1].
    if not expected.shape:
        return
    if len(expected.shape) != len(kind.shape):
        got, dims = list(kind.shape), _overridden(expected.shape, overrides)
        raise InvalidArgument(
            f"Invalid rank for input '{declared.name}': got {len(got)} ({got}), expected {len(dims)} ({dims}); "
            "reshape it, a typed array of JavaScript by numpy.asarray(value.to_py()).reshape(...)"
        )
    for index, (dim, size) in enumerate(zip(expected.shape, kind.shape, strict=True)):
        if dim != size and (isinstance(dim, int) or overrides.get(dim or "", size) != size):
            got, dims = list(kind.shape), _overridden(expected.shape, overrides)
            raise InvalidArgument(
                f"Got invalid dimensions for input '{declared.name}': index {index} got {size}, expected "
                f"{dims[index]}; the shape is {got}, the model takes {dims}"
            )


def _overridden(shape: Sequence[DeclaredDim], overrides: Mapping[str, int]) -> list[DeclaredDim]:
    return [overrides.get(d, d) if isinstance(d, str) else d for d in shape]


def _host_kind(value: Any, kind: HostKind, name: str) -> HostValue:
    element = declared_element(kind.element)
    if kind.kind == "seq":
        if not isinstance(value, list | tuple):
            raise InvalidArgument(f"input '{name}': expected a list for {kind}, got {type(value).__name__}")
        return known(SequenceType(element or DType.FLOAT), [_element(v, kind.element, name) for v in value])
    if kind.kind == "optional":
        inner = None if value is None else _element(value, kind.element, name)
        return known(OptionalType(element or DType.FLOAT), inner)
    if kind.kind == "map":
        if not isinstance(value, Mapping):
            raise InvalidArgument(f"input '{name}': expected a dict for {kind}, got {type(value).__name__}")
        return known(MapType(kind.key or DType.INT64, element or DType.FLOAT), dict(value))
    raise InvalidArgument(f"input '{name}': {kind} inputs are not supported; feed the dense tensor")


def _element(value: Any, declared: DeclaredType | None, name: str) -> Any:
    if isinstance(declared, HostKind):
        made = _host_kind(value, declared, name)
        assert not isinstance(made, HostTensor)
        return made.value()
    array, dtype = array_of(value, declared.dtype if declared else None, name)
    if declared is not None and dtype is not declared.dtype:
        raise InvalidArgument(f"input '{name}': expected elements of {declared}, got {dtype.type_string}")
    return array


def to_user(value: HostValue) -> Any:
    """A result as onnxruntime gives it: arrays, lists, dicts, None. Types NumPy lacks: ml_dtypes' where it is
    installed, else raw bits as unsigned integers (uint16 for bfloat16, uint8 for the smaller ones)."""
    if isinstance(value, HostTensor):
        return _plain(value.array(), value.type.dtype)
    return _nested(value.value(), value)


def _nested(value: Any, kind: ValueType) -> Any:
    if isinstance(kind, SequenceType) and isinstance(kind.element, DType):
        return [_plain(v, kind.element) for v in value]
    return value


def _plain(array: Array, dtype: DType) -> Array:
    if dtype.exact_carrier:
        return array
    try:
        import ml_dtypes
    except ImportError:
        if dtype.bits < 8:
            return array
        bits = encode(array, dtype, saturate=False).view(np.uint16 if dtype.bits == 16 else np.uint8)
        plain: Array = bits.reshape(array.shape)
        return plain
    made: Array = array.astype(getattr(ml_dtypes, dtype.array_name))
    return made
