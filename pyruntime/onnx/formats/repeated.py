"""Repeated numbers and bytes of a message, read in bulk where they are long.

Short lists become tuples; longer ones are stored in arrays (`ir.lists`).
Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyruntime.errors import InvalidProtobuf
from pyruntime.ir import Floats, Ints, Strings
from pyruntime.onnx.formats.fields import MANY_BYTES, MANY_FLOAT
from pyruntime.onnx.formats.payloads import Malformed
from pyruntime.onnx.formats.source import Buffer

if TYPE_CHECKING:
    from pyruntime.ir import Array

__all__ = ["LONG", "STRETCH", "Texts", "collected", "taken"]

STRETCH = 1024
"""Remaining bytes of a message above which repeated elements are read in bulk."""

LONG = 1024
"""Number of elements above which a list is stored in an array."""
_BLOCK = 1 << 18
_SHORT = 16
_FLOAT_FIELD = 5
_FEW = 8
_INT32 = 1 << 31


class Texts:
    """Byte strings, deduplicated."""

    __slots__ = ("codes", "places")

    def __init__(self) -> None:
        self.places: dict[bytes, int] = {}
        self.codes = array("q")

    def __len__(self) -> int:
        return len(self.codes)

    def append(self, text: bytes) -> None:
        """Add a byte string."""
        self.codes.append(self.places.setdefault(text, len(self.places)))

    def extend(self, octets: Array, starts: Array, lengths: Array) -> None:
        """Add the strings at `starts` of `octets`. Of each length, the most frequent ones are matched in bulk."""
        import numpy as np

        codes, places = np.empty(len(starts), np.int64), self.places
        for length in np.unique(lengths).tolist():
            left = np.flatnonzero(lengths == length)
            if left.size * length <= _BLOCK:
                rows = octets[starts[left][:, None] + np.arange(length)]
                tries = _FEW
                while tries and left.size > _FEW:
                    equal = (rows == rows[0]).all(axis=1)
                    codes[left[equal]] = places.setdefault(rows[0].tobytes(), len(places))
                    left, rows, tries = left[~equal], rows[~equal], tries - 1
            for place, start in zip(left.tolist(), starts[left].tolist(), strict=True):
                codes[place] = places.setdefault(octets[start : start + length].tobytes(), len(places))
        self.codes.frombytes(codes.tobytes())

    def tuple(self) -> tuple[bytes, ...]:
        """Return all byte strings in order."""
        distinct = list(self.places)
        return tuple([distinct[code] for code in self.codes])


def collected(many: Any) -> Sequence[Any]:
    """Convert a complete list to a tuple, or, if it is long, to Ints, Floats or Strings."""
    if isinstance(many, Texts):
        return many.tuple() if len(many.codes) < LONG else Strings(tuple(many.places), _narrow(many.codes))
    if not isinstance(many, array) or len(many) < LONG:
        return tuple(many)
    return Floats(_view(many)) if many.typecode == "f" else Ints(_narrow(many))


def _view(many: array[Any]) -> Array:
    import numpy as np

    return np.frombuffer(many, many.typecode)


def _narrow(many: array[int]) -> Array:
    """Convert integers to int32 if all of them fit."""
    import numpy as np

    values = _view(many)
    return values.astype(np.int32) if -_INT32 <= values.min() <= values.max() < _INT32 else values


def taken(action: int, many: Any, buffer: Buffer, start: int, end: int) -> int:
    """Append the elements of a repeated field that follow each other from `start`, each after its tag, to `many`.

    Returns the end of the last one read, before the first other or incomplete field. The first `_SHORT` elements are
    left to the caller: most lists, such as a tensor's dimensions, are shorter, and the block after them is other data.
    """
    if len(many) < _SHORT:
        return start
    import numpy as np

    stop = min(end, start + _BLOCK)
    octets = np.frombuffer(buffer, np.uint8, stop - start, start)
    if octets[0] > 0x7F:  # a tag of more than one byte
        return start
    if action == MANY_BYTES:
        return start + _take_texts(many, octets)
    if action == MANY_FLOAT:
        fields = octets[: octets.size // _FLOAT_FIELD * _FLOAT_FIELD].reshape(-1, _FLOAT_FIELD)
        count = _leading(fields[:, 0] == octets[0])
        many.frombytes(fields[:count, 1:].tobytes())
        return start + count * _FLOAT_FIELD
    return start + _take_ints(many, octets)


def _leading(holds: Array) -> int:
    """Return the number of true elements before the first false one."""
    return int(holds.argmin()) if not holds.all() else len(holds)


def _take_ints(many: array[int], octets: Array) -> int:
    """Read integers. A one-byte tag is an integer too, so every other integer is a value."""
    import numpy as np

    from pyruntime.onnx.formats.packed_numbers import varints_at

    ends = np.flatnonzero(octets < 0x80)
    ends = ends[: ends.size // 2 * 2]
    if not ends.size:
        return 0
    tags = np.concatenate([ends[:0], [0], ends[1:-1:2] + 1])
    count = _leading(octets[tags] == octets[0])
    last = ends[1 : 2 * count : 2]
    try:
        values = varints_at(octets, tags[:count] + 1, last)
    except InvalidProtobuf as error:
        raise Malformed("an integer of more than 10 bytes") from error
    many.frombytes(values.tobytes())
    return int(last[-1]) + 1


def _take_texts(many: Texts, octets: Array) -> int:
    """Read byte strings with lengths of at most three bytes; reading longer ones one at a time costs little."""
    import numpy as np

    heads = np.flatnonzero(octets == octets[0])
    padded = np.concatenate([octets, np.zeros(3, np.uint8)])
    first, second, third = (padded[heads + place].astype(np.intp) for place in (1, 2, 3))
    two = first > 0x7F
    three = two & (second > 0x7F)
    starts = heads + 2 + two + three
    follow = starts + (first & 0x7F) + two * ((second & 0x7F) << 7) + three * (third << 14)
    # Bytes inside a string may look like a tag: a tag is one only where the string before it ends.
    ends_chain = np.append(heads[1:], -1) != follow
    is_whole = follow <= octets.size
    parts = [np.arange(*part) for part in _chain(heads, follow, ends_chain, is_whole)]
    fields = np.concatenate(parts) if parts else np.zeros(0, np.intp)
    if not fields.size:
        return 0
    many.extend(octets, starts[fields], (follow - starts)[fields])
    return int(follow[fields[-1]])


def _chain(heads: Array, follow: Array, ends_chain: Array, is_whole: Array) -> Iterator[tuple[int, int]]:
    """Yield ranges of candidates that are tags, given that the first one is."""
    import numpy as np

    breaks, cut = np.flatnonzero(ends_chain | ~is_whole), 0
    while True:
        last = int(breaks[np.searchsorted(breaks, cut)])
        if not is_whole[last]:
            if last > cut:
                yield cut, last
            return
        yield cut, last + 1
        cut = int(np.searchsorted(heads, follow[last]))
        if cut == len(heads) or heads[cut] != follow[last]:
            return
