"""The dynamic-shape policy: which dimensions of inputs are dynamic in plans, and their ranges.

A model's first plan is for exactly the sizes it was fed: images usually come in one size. A dimension without a
declared size that has come with two sizes is dynamic from then on. Sizes 0 and 1 never are: an empty tensor and a
dimension that broadcasts are other computations.

The range of a plan decides memory and the choice of kernels. It ends at a power of two; a size that outgrows it gets
four times as much, and smaller ones share that where kernels for it are no waste. One that was empty once (a cache)
gets at least 1,024 and then four times as much, and so does what is always longer (the mask over the cache). Such a
range is for the choice of kernels alone: the memory of caches grows by doubling.

A number that is fed and that a plan had to look at (the length that a cache will have, say) is a size, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from pyruntime.ir import DeclaredTensor, Graph, Sizes, TensorType, ValueType, is_dim

__all__ = ["LEAST_SCALE", "WASTE", "DynamicDimensions", "match_sizes", "scale", "sizes_data"]

Key: TypeAlias = str
"""What a dimension is called: the model's name of it, or the input's and the axis."""

STATE = 1024
"""Least range of a size that grows: planning anew stops a text for longer than all tokens in between take."""

WASTE = 16
"""A plan is not used for sizes of which its kernels expect as many times more: another one is made."""

CHANCES = 4
"""Plans that a dimension may pin by being, by chance, a number it was compared with: a batch of as many as heads."""

LARGEST = 1 << 31
"""A number that is fed is no size from here on."""

LEAST_SCALE = 1.0
"""What `scale` is at least."""

SMALL = 64
"""Sizes below this are alike: the kernels for larger ones are no worse there than one dispatch more."""


@dataclass(slots=True)
class _ObservedSizes:
    """The sizes a dimension came with.

    Attributes:
        least: the smallest above 1. most: the largest that a plan was made for.
        empty: it was empty once, as a cache is at first.
        follows: it was longer than such a one; shorter: it was not, at another time.
    """

    sizes: set[int] = field(default_factory=set)
    least: int = 1 << 62
    most: int = 0
    empty: bool = False
    follows: bool = False
    shorter: bool = False

    @property
    def grows(self) -> bool:
        """It grows from run to run: a cache, or the mask over one."""
        return self.empty or (self.follows and not self.shorter)

    def note(self, size: int) -> None:
        self.empty = self.empty or size == 0
        self.least = min(self.least, size) if size > 1 else self.least
        if len(self.sizes) < 2:
            self.sizes.add(size)

    def bounds(self, size: int) -> tuple[int, ...]:
        """Return the ends that the range of a plan for `size` may have, the most general first."""
        power = 1 << (size - 1).bit_length()
        if self.grows:
            state = max(power, STATE, 4 * self.most if size > self.most else self.most)
            return state, state, power, size
        roomy = max(power, 4 * self.most) if self.most and size > self.most else power
        return max(roomy, self.most), max(power, self.most), power, size


_NONE: Mapping[str, int] = MappingProxyType({})


class DynamicDimensions:
    """The dynamic dimensions of one program's inputs.

    Attributes:
        fixed: dimensions whose number plans turned out to rely on, and why: they stay as they come.
    """

    def __init__(self, graph: Graph) -> None:
        self._declared = {v.name: v.type for v in graph.inputs}
        self._seen: dict[Key, _ObservedSizes] = {}
        self.fixed: dict[Key, str] = {}
        self._chances: Counter[Key] = Counter()
        self._avoided: list[tuple[dict[Key, int], str]] = []
        self._read: set[str] = set()

    def _keys(self, name: str, kind: TensorType) -> list[Key | None]:
        """What each dimension is called; None for those that the model fixes."""
        declared = self._declared.get(name)
        shape = declared.shape if isinstance(declared, DeclaredTensor) else None
        if shape is None or len(shape) != kind.rank:
            return [f"{name}[{axis}]" for axis in range(kind.rank)]
        return [f"{name}[{axis}]" if d is None else d if isinstance(d, str) else None for axis, d in enumerate(shape)]

    def fix(self, reasons: Mapping[Key, str]) -> None:
        """Plan these dimensions for each size that comes, from now on."""
        for key, reason in reasons.items():
            self.fixed.setdefault(key, reason)

    def avoid(self, sizes: Sizes, reason: str) -> None:
        """Combine no such sizes with ranges this long: without one, or with shorter ranges, plans may need no host."""
        self._avoided.append(({n: high for n, (_, high) in zip(sizes.names, sizes.ranges, strict=True)}, reason))

    def _is_avoided(self, sizes: Sizes) -> bool:
        ends = {n: high for n, (_, high) in zip(sizes.names, sizes.ranges, strict=True)}
        return any(all(ends.get(n, 0) >= high for n, high in longest.items()) for longest, _ in self._avoided)

    @property
    def reasons(self) -> dict[Key, str]:
        """Why dimensions are planned as they come, always or where they are long."""
        return {**{name: reason for longest, reason in self._avoided for name in longest}, **self.fixed}

    def learn(self, sizes: Sizes) -> None:
        """Fix what a plan needed the number of, and what too often equalled a number that it was compared with."""
        self.fix(sizes.specialized(by_chance=False))
        by_chance = sizes.specialized()
        self._chances.update(list(by_chance))
        self.fix({key: reason for key, reason in by_chance.items() if self._chances[key] >= CHANCES})

    def _sizes_in(self, types: Mapping[str, ValueType], numbers: Mapping[str, int]) -> Iterator[tuple[Key, int]]:
        """The sizes of dimensions without a declared size, and the numbers that are fed."""
        for name, kind in types.items():
            if isinstance(kind, TensorType):
                pairs = zip(self._keys(name, kind), kind.shape, strict=True)
                yield from ((key, size) for key, size in pairs if key is not None)
            if name in numbers:
                yield _value_of(name), numbers[name]

    def observe(self, types: Mapping[str, ValueType], numbers: Mapping[str, int] = _NONE) -> None:
        """Remember the sizes a run brings.

        Args:
            numbers: inputs of one integer.
        """
        for key, size in self._sizes_in(types, numbers):
            self._seen.setdefault(key, _ObservedSizes()).note(size)

    def sizes_of(self, types: Mapping[str, ValueType]) -> dict[Key, int]:
        """Return the sizes that a run of these types brings to dimensions without a declared size."""
        return dict(self._sizes_in(types, _NONE))

    def observe_reads(self, names: Iterable[str]) -> None:
        """Remember that a plan read the values of these inputs: those that are numbers are sizes."""
        self._read.update(names)

    def widen(
        self, types: Mapping[str, ValueType], tight: bool = False, numbers: Mapping[str, int] = _NONE
    ) -> tuple[dict[str, ValueType], Sizes | None]:
        """Replace dynamic dimensions by Dims; returns the types and their `Sizes`, None where there are none.

        Args:
            tight: ranges end at the next power of two.
            numbers: inputs of one integer; `Sizes.values` has those that are dynamic.
        """
        sizes, made = Sizes(), dict[str, ValueType]()
        numbers = {n: v for n, v in numbers.items() if n in self._read and 1 < v < LARGEST}
        self._note_growth(types, numbers)
        dims: dict[tuple[Key, int], int] = {}
        bounds = self._bounds(types, tight, numbers)
        for name, kind in types.items():
            made[name] = kind
            if not isinstance(kind, TensorType):
                continue
            shape = list(kind.shape)
            for axis, (key, size) in enumerate(zip(self._keys(name, kind), kind.shape, strict=True)):
                if key is None or key in self.fixed or size < 2 or len(self._seen[key].sizes) < 2:
                    continue
                if (key, size) not in dims:
                    bound = bounds[key, size]
                    dims[key, size] = sizes.add(key, size, 2, bound, self._seen[key].grows) if bound > 2 else size
                shape[axis] = dims[key, size]
            made[name] = replace(kind, shape=tuple(shape))
        for name, value in numbers.items():
            key = _value_of(name)
            if bounds.get((key, value), 0) > 2:
                sizes.values[name] = sizes.add(key, value, 2, bounds[key, value], self._seen[key].grows)
        return made, sizes if sizes.names and not self._is_avoided(sizes) else None

    def _bounds(
        self, types: Mapping[str, ValueType], tight: bool, numbers: Mapping[str, int]
    ) -> dict[tuple[Key, int], int]:
        """The ends of the ranges: those of earlier plans, where kernels for these are no waste."""
        found = [
            (key, size)
            for key, size in self._sizes_in(types, numbers)
            if key not in self.fixed and size > 1 and len(self._seen[key].sizes) > 1
        ]
        choices = [{(key, size): self._seen[key].bounds(size)[n] for key, size in found} for n in range(4)]
        choices = choices[2:] if tight else choices
        alone = sum(bound > SMALL // 4 and not self._seen[key].grows for (key, _), bound in choices[0].items()) <= 1
        general = [] if tight else choices[: 2 if alone else 0] or choices[1:2]
        made = next((c for c in general if self._waste(c, least=True) <= WASTE), None)
        made = made or next(c for c in choices if self._waste(c) <= WASTE)
        for (key, _), bound in made.items() if not tight else ():
            self._seen[key].most = max(self._seen[key].most, bound)
        return made

    def _waste(self, bounds: Mapping[tuple[Key, int], int], least: bool = False) -> float:
        """`scale` of ranges for the sizes they are made for, or for the least that have come."""
        sizes = Sizes()
        for (key, size), bound in bounds.items():
            sizes.add(key, size, 2, bound, self._seen[key].grows)
        return scale(sizes, tuple(min(size, self._seen[key].least) if least else size for key, size in bounds))

    def _note_growth(self, types: Mapping[str, ValueType], numbers: Mapping[str, int]) -> None:
        """What is always longer than a cache grows with it, and has its range: all of it is outgrown at once."""
        pairs = [(self._seen[key], size) for key, size in self._sizes_in(types, numbers)]
        caches = [size for seen, size in pairs if seen.empty and size > 1]
        for seen, size in pairs:
            if caches and not seen.empty:
                seen.follows, seen.shorter = True, seen.shorter or size <= min(caches)
        growing = [(seen, size) for seen, size in pairs if seen.grows and size > 1]
        together = max((seen.bounds(size)[0] for seen, size in growing), default=0)
        for seen, _ in pairs:
            if seen.grows:
                seen.most = max(seen.most, together)


def _value_of(name: str) -> Key:
    return f"the value of {name}"


def match_sizes(pattern: Mapping[str, ValueType], types: Mapping[str, ValueType], sizes: Sizes) -> list[int] | None:
    """Return the dynamic sizes of `types` in a plan for `pattern`, 0 for others; None where they do not fit."""
    values: dict[int, int] = {}
    if pattern.keys() != types.keys():
        return None
    for name, kind in pattern.items():
        given = types[name]
        if not isinstance(kind, TensorType) or not isinstance(given, TensorType):
            if kind != given:
                return None
            continue
        if kind.dtype is not given.dtype or len(kind.shape) != len(given.shape):
            return None
        for dim, size in zip(kind.shape, given.shape, strict=True):
            if not is_dim(dim):
                if dim != size:
                    return None
            elif values.setdefault(sizes.index(dim), size) != size:
                return None
    return [values.get(i, 0) for i in range(len(sizes.names))]


def scale(sizes: Sizes, values: tuple[int, ...]) -> float:
    """Return how many times larger than these sizes the kernels of a plan may take them to be."""
    times = LEAST_SCALE
    for (_, high), grows, value in zip(sizes.ranges, sizes.grows, values, strict=True):
        if not grows:
            times *= max(1.0, high / max(value, SMALL))
    return times


def sizes_data(sizes: Sizes) -> dict[str, Any]:
    """Return a plan's sizes as web/gpu/sizes.js reads them, without its expressions, patches and parameters."""
    return {
        "ranges": [list(map(int, r)) for r in sizes.ranges],
        "grows": list(sizes.grows),
        "values": {name: sizes.index(size) for name, size in sizes.values.items()},
        "guards": [[sizes.data(g.terms), g.comparison, bool(g.answer)] for g in sizes.guards.values()],
        "waste": WASTE,
    }
