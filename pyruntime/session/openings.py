"""Which sizes of a model's inputs plans leave open, and for which range.

A model's first plan is for the very sizes it was fed: most pictures never bring others. A dimension that the model
leaves open (by a name, or by nothing) and that has come with two sizes is open from then on. Sizes 0 and 1 are not: an
empty tensor and a dimension that broadcasts are other computations.

The range of a plan decides memory and the choice of kernels. It ends at a power of two; a size that outgrows it gets
four times as much. One that was empty once (a cache) gets at least 256 and then twice as much, and so does what is at
least as long (the mask over the cache).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pyruntime.ir import DeclaredTensor, Graph, Sizes, TensorType, ValueType, is_dim

__all__ = ["Openings", "matched", "scale"]

Key: TypeAlias = str
"""What a dimension is called: the model's name of it, or the input's and the axis."""

STATE = 256
"""Least range of a size that grows."""

SMALL = 64
"""Sizes below this are alike: the kernels for larger ones are no worse there than one dispatch more."""


@dataclass(slots=True)
class _Seen:
    """The sizes a dimension came with.

    Attributes:
        most: the largest that a plan was made for.
        grows: it was empty once, as a cache is at first.
    """

    sizes: set[int] = field(default_factory=set)
    most: int = 0
    grows: bool = False

    def note(self, size: int) -> None:
        self.grows = self.grows or size == 0
        if len(self.sizes) < 2:
            self.sizes.add(size)

    def bound(self, size: int) -> int:
        """The end of the range of a plan for `size`."""
        made = 1 << (size - 1).bit_length()
        if self.grows:
            made = max(made, STATE, self.most)
        elif self.most and size > self.most:
            made = max(made, 4 * self.most)
        self.most = max(self.most, made)
        return made


class Openings:
    """The open dimensions of one program's inputs.

    Attributes:
        closed: dimensions whose number plans turned out to rely on, and why: they stay as they come.
    """

    def __init__(self, graph: Graph) -> None:
        self._declared = {v.name: v.type for v in graph.inputs}
        self._seen: dict[Key, _Seen] = {}
        self.closed: dict[Key, str] = {}

    def _keys(self, name: str, kind: TensorType) -> list[Key | None]:
        """What each dimension is called; None for those that the model fixes."""
        declared = self._declared.get(name)
        shape = declared.shape if isinstance(declared, DeclaredTensor) else None
        if shape is None or len(shape) != kind.rank:
            return [f"{name}[{axis}]" for axis in range(kind.rank)]
        return [f"{name}[{axis}]" if d is None else d if isinstance(d, str) else None for axis, d in enumerate(shape)]

    def close(self, reasons: Mapping[Key, str]) -> None:
        """Leave these dimensions as they come from now on."""
        for key, reason in reasons.items():
            self.closed.setdefault(key, reason)

    def note(self, types: Mapping[str, ValueType]) -> None:
        """Remember the sizes a run brings."""
        for name, kind in types.items():
            if isinstance(kind, TensorType):
                for key, size in zip(self._keys(name, kind), kind.shape, strict=True):
                    if key is not None:
                        self._seen.setdefault(key, _Seen()).note(size)

    def open(self, types: Mapping[str, ValueType]) -> tuple[dict[str, ValueType], Sizes | None]:
        """The types with Dims for what is open, and what these are made of; None where nothing is."""
        sizes, made = Sizes(), dict[str, ValueType]()
        self._note_growth(types)
        dims: dict[tuple[Key, int], int] = {}
        for name, kind in types.items():
            made[name] = kind
            if not isinstance(kind, TensorType):
                continue
            shape = list(kind.shape)
            for axis, (key, size) in enumerate(zip(self._keys(name, kind), kind.shape, strict=True)):
                if key is None or key in self.closed or size < 2 or len(self._seen[key].sizes) < 2:
                    continue
                if (key, size) not in dims:
                    bound = self._seen[key].bound(size)
                    dims[key, size] = sizes.add(key, size, 2, bound, self._seen[key].grows) if bound > 2 else size
                shape[axis] = dims[key, size]
            made[name] = replace(kind, shape=tuple(shape))
        return made, sizes if sizes.names else None

    def _note_growth(self, types: Mapping[str, ValueType]) -> None:
        """What is at least as long as a cache grows with it, and has its range: all of it is outgrown at once."""
        pairs = [
            (self._seen[key], size)
            for name, kind in types.items()
            if isinstance(kind, TensorType)
            for key, size in zip(self._keys(name, kind), kind.shape, strict=True)
            if key is not None
        ]
        caches = [size for seen, size in pairs if seen.grows and size > 1]
        for seen, size in pairs:
            seen.grows = seen.grows or (bool(caches) and size >= min(caches))
        together = max((seen.bound(size) for seen, size in pairs if seen.grows and size > 1), default=0)
        for seen, _ in pairs:
            if seen.grows:
                seen.most = max(seen.most, together)


def matched(pattern: Mapping[str, ValueType], types: Mapping[str, ValueType], sizes: Sizes) -> tuple[int, ...] | None:
    """The open sizes with which values of `types` fit a plan for `pattern`; None where they do not."""
    values: dict[int, int] = {}
    if pattern.keys() != types.keys():
        return None
    for name, kind in pattern.items():
        given = types[name]
        if not isinstance(kind, TensorType) or not isinstance(given, TensorType):
            if kind != given:
                return None
            continue
        if kind.dtype is not given.dtype or kind.rank != given.rank:
            return None
        for dim, size in zip(kind.shape, given.shape, strict=True):
            if not is_dim(dim):
                if dim != size:
                    return None
            elif values.setdefault(sizes.index(dim), size) != size:
                return None
    ordered = tuple(values[i] for i in range(len(sizes.names)))
    return ordered if sizes.hold(ordered) else None


def scale(sizes: Sizes, values: tuple[int, ...]) -> float:
    """How many times larger than these sizes the kernels of a plan may take them to be."""
    times = 1.0
    for (_, high), grows, value in zip(sizes.ranges, sizes.grows, values, strict=True):
        if not grows:
            times *= max(1.0, high / max(value, SMALL))
    return times
