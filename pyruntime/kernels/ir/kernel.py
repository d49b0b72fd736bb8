"""Kernels: WGSL with named bindings, complete only when it is known which operands share memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache

from pyruntime.ir import DType
from pyruntime.kernels.wgsl import storage
from pyruntime.kernels.wgsl.library import link
from pyruntime.kernels.wgsl.module import Module

__all__ = ["Binding", "Kernel"]

EVERYWHERE = 8
"""Storage buffers that a shader may bind on every device."""

ALIGNMENT = 256
"""Bytes: WebGPU's strictest minStorageBufferOffsetAlignment."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A tensor a kernel binds, by the name its WGSL uses.

    Attributes:
        parts: storage buffers that it takes: several where it is larger than a device's binding. Each but the last has
            `part_bytes`.
    """

    name: str
    dtype: DType
    write: bool = False
    parts: int = 1
    part_bytes: int = 0

    def split(self, nbytes: int) -> Sequence[tuple[int, int]]:
        """First byte and bytes of each storage buffer that a region of `nbytes` is bound as."""
        if self.parts == 1:
            return ((0, nbytes),)
        return [(first, min(self.part_bytes, nbytes - first)) for first in range(0, nbytes, self.part_bytes)]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compute shader.

    Attributes:
        name: what profiles and `explain()` call it.
        body: WGSL without the storage bindings; it may declare `struct Params` and then read `params`.
        bindings: storage tensors in binding order.
        converts: float16 is read by the device's own conversion (`kernels.wgsl.storage`).
        halves: float16 tensors are declared as f16, so that single elements can be stored.
        atomics: they are stored by atomic operations on the word that two of them share.
    """

    name: str
    body: str
    bindings: tuple[Binding, ...]
    converts: bool = False
    halves: bool = False
    atomics: bool = False
    _texts: dict[tuple[tuple[int, ...], frozenset[int]], str] = field(
        init=False, compare=False, repr=False, default_factory=dict
    )

    @property
    def has_params(self) -> bool:
        """True where the kernel reads a uniform struct."""
        return self.module.has_params

    @property
    def module(self) -> Module:
        """What the body declares and mentions."""
        return Module.of(self.body)

    def accessors(self, name: str) -> Set[str]:
        """The accessors that the body uses tensor `name` with, such as 'load' and 'store4'."""
        return self.module.accessors.get(name, frozenset())

    @property
    def reads_float16(self) -> bool:
        """True where it reads elements of a float16 tensor as numbers."""
        floats = (b.name for b in self.bindings if b.dtype is DType.FLOAT16)
        return any(not self.accessors(name).isdisjoint(("load", "load4")) for name in floats)

    @property
    def stores_float16(self) -> bool:
        """True where it stores single elements of float16, and indexes no float16 tensor but by accessors."""
        floats = [b.name for b in self.bindings if b.dtype is DType.FLOAT16]
        return any("store" in self.accessors(n) for n in floats) and self.module.indexed.isdisjoint(floats)

    def with_dtype(self, name: str, dtype: DType) -> Kernel:
        """The same kernel with one tensor of another type."""
        return replace(self, bindings=tuple(replace(b, dtype=dtype) if b.name == name else b for b in self.bindings))

    def can_share(self, i: int, j: int) -> bool:
        """True where bindings i and j may be one array: same words, and neither indexed past its accessors."""
        a, b = self.bindings[i], self.bindings[j]
        words = [self._word_of(x) for x in (a, b)]
        return words[0] == words[1] and a.parts == b.parts and not any(self.is_indexed(x.name) for x in (a, b))

    def is_indexed(self, name: str) -> bool:
        """True where the body reads or writes the array of tensor `name` itself, and not by accessors."""
        return name in self.module.indexed

    def in_parts(self, limit: int, sizes: Sequence[int]) -> Kernel:
        """The same kernel for bindings of at most `limit` bytes.

        Args:
            sizes: bytes of each tensor, in the order of `bindings`. Those that the body indexes itself stay whole.
        """
        part = limit - limit % ALIGNMENT
        counts = [1 if self.is_indexed(b.name) else -(-n // part) for b, n in zip(self.bindings, sizes, strict=True)]
        made = (
            replace(b, parts=count, part_bytes=part) if count > 1 else b
            for b, count in zip(self.bindings, counts, strict=True)
        )
        return replace(self, bindings=tuple(made))

    def _word_of(self, binding: Binding) -> str:
        """The element type of a binding's array."""
        used = self.accessors(binding.name)
        if binding.name in self.module.addressed or self.stores_words(binding):
            return f"atomic<{storage.word_type(binding.dtype, used)}>"
        return storage.word_type(binding.dtype, used, self.halves)

    def stores_words(self, binding: Binding) -> bool:
        """True for a tensor whose single elements are stored by atomic operations on words."""
        return self.atomics and binding.dtype is DType.FLOAT16 and self.accessors(binding.name) == {"store"}

    def wgsl(self, shared: tuple[int, ...] | None = None, constants: frozenset[int] = frozenset()) -> str:
        """The whole shader.

        Args:
            shared: `shared[i]` is the binding whose array operand i uses (default: its own).
            constants: operands in memory that no dispatch writes; their bindings are `read`, all others `read_write`.
        """
        shared = shared or tuple(range(len(self.bindings)))
        text = self._texts.get((shared, constants))
        if text is None:
            text = self._texts[shared, constants] = _render(self, shared, self._read_only(shared, constants))
        return text

    def apart(self, constants: frozenset[int]) -> frozenset[int]:
        """The operands among `constants` that may be bound several times, though they are one memory: it is only read.

        So the text is the same whether a model has one constant in two places or two that are equal. Every device takes
        eight bindings (WebGPU, limits); of kernels that have more, what is bound was counted once.
        """
        few = sum(b.parts for b in self.bindings) <= EVERYWHERE
        return constants if few and not any(self._changes(i) for i in constants) else frozenset()

    def _read_only(self, shared: tuple[int, ...], constants: frozenset[int]) -> frozenset[int]:
        """The bindings that are `read`: those of `constants`."""
        others = {first for i, first in enumerate(shared) if i not in constants}
        # Constants share buffers, and WebGPU refuses a dispatch that binds one buffer both ways: all of them, or none.
        if any(shared[i] in others or self._changes(i) for i in constants):
            return frozenset()
        return frozenset(shared[i] for i in constants)

    def _changes(self, i: int) -> bool:
        """True where operand i is written, or addressed as atomics are, which are never read-only."""
        binding = self.bindings[i]
        return binding.write or binding.name in self.module.addressed


@lru_cache(maxsize=4096)
def _render(kernel: Kernel, shared: tuple[int, ...], read_only: frozenset[int]) -> str:
    declared: list[str] = []
    helpers: list[str] = []
    for i, binding in enumerate(kernel.bindings):
        var, used = kernel.bindings[shared[i]].name, kernel.accessors(binding.name)
        if shared[i] == i:
            access, words = "read" if i in read_only else "read_write", kernel._word_of(binding)
            for part in storage.part_names(var, binding.parts):
                slot = len(declared)
                declared.append(f"@group(0) @binding({slot}) var<storage, {access}> {part}: array<{words}>;")
        names = storage.part_names(binding.name, binding.parts)
        for name, array in zip(names, storage.part_names(var, binding.parts), strict=True):
            if kernel.stores_words(binding):
                helpers.append(storage.atomic_store(name, array))
            else:
                helpers.append(storage.accessors(name, array, binding.dtype, used, kernel.converts, kernel.halves))
        if binding.parts > 1:
            helpers.append(storage.selected(binding.name, names, binding.dtype, used, binding.part_bytes))
    if kernel.has_params:
        declared.append(f"@group(0) @binding({len(declared)}) var<uniform> params: Params;")
    head = "\n".join(declared)
    code = "\n".join(h for h in helpers if h)
    body = Module.of(kernel.body.strip())
    front = "\n\n".join(p for p in (f"// {kernel.name}", head, code) if p)
    extensions = dict.fromkeys((*body.extensions, *(("f16",) if kernel.halves else ())))
    enabled = "".join(f"enable {name};\n\n" for name in extensions)
    return enabled + link(Module(front), body.without_directives()) + "\n"


def bindings(reads: Mapping[str, DType], writes: Mapping[str, DType]) -> tuple[Binding, ...]:
    """Bindings of the tensors read, then those written."""
    return (
        *(Binding(name, dtype) for name, dtype in reads.items()),
        *(Binding(name, dtype, True) for name, dtype in writes.items()),
    )
