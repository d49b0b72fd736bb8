"""From steps to commands: every value has its region, every kernel its text, what runs compute is an expression."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from pyruntime.compiler.lifetimes import Step
from pyruntime.compiler.memory import ALIGNMENT, Storage, round_up
from pyruntime.compiler.plan import (
    Access,
    Bounded,
    Command,
    GpuSegment,
    Kept,
    Numbers,
    Patch,
    Region,
    RunRows,
    Space,
    Transfer,
    Unread,
)
from pyruntime.compiler.repeated import Repeated
from pyruntime.ir import (
    Constant,
    Dim,
    Expression,
    InputBound,
    Rows,
    State,
    TensorType,
    TypedGraph,
    expression,
    hint,
    is_dim,
    upper,
)
from pyruntime.kernels.ir.dispatch import Repetition

__all__ = ["Emitter"]


class Emitter:
    """Turns steps into commands: regions for values, numbers for shaders, offsets for parameters.

    Args:
        constants: values that are constants.
        external: values in separate memory, each with its number.
        views: values that are the bytes of another one, with that.
        storage: where any other value is.
        read_only: kernels bind constants, those computed too, as memory that is only read.

    What the commands name by numbers, `shaders`, `constants`, `params`, `expressions` and `patches`, is complete when
    all are made.
    """

    def __init__(
        self,
        graph: TypedGraph,
        constants: Mapping[str, Constant],
        external: Mapping[str, int],
        views: Mapping[str, str],
        storage: Callable[[str], Storage],
        read_only: bool,
    ) -> None:
        self._graph, self._constants, self._external, self._views = graph, constants, external, views
        self._storage, self._read_only = storage, read_only
        self._computed = {external[name] for name in graph.computed}
        self.shaders: dict[str, int] = {}
        self.constants: list[Constant] = []
        self.params = bytearray()
        self.expressions: list[Expression] = []
        self.patches: list[Patch] = []
        self._constant_number: dict[Hashable, int] = {}
        self._params_at: dict[tuple[bytes, tuple[tuple[int, str, int], ...]], int] = {}
        self._expression_number: dict[str, int] = {}
        self._regions: dict[tuple[str, int], Region] = {}

    def segment(self, uploads: Sequence[str], steps: Sequence[Step], downloads: Sequence[str]) -> GpuSegment:
        """Return the uploads, commands and downloads of a GPU segment."""
        made = [n for n in uploads if n in self._graph.static]
        return GpuSegment(
            [self.transfer(n) for n in uploads if n not in made],
            [self._command(s) for s in steps],
            [self.transfer(n) for n in downloads],
            [self._numbers(n) for n in made],
            list(self._repeated(steps)),
        )

    def _repeated(self, steps: Sequence[Step]) -> Iterator[Repeated]:
        """The loops of these steps, by their first command."""
        members: dict[tuple[int, tuple[Repetition, ...]], list[int]] = {}
        for at, step in enumerate(steps):
            loops = step.dispatch.loops
            for depth in range(len(loops)):
                members.setdefault((step.node, loops[: depth + 1]), []).append(at)
        for (_, loops), commands in members.items():
            times = loops[-1].times
            scaled = self._expression(times) if is_dim(times) else -1
            yield Repeated(commands[0], len(commands), hint(times), scaled)

    def _numbers(self, name: str) -> Numbers:
        """Value `name`, which follows from dynamic dimensions."""
        values = self._graph.tensor(name).value().reshape(-1)
        found = tuple(self._expression(v) if is_dim(v) else -1 for v in values)
        return Numbers(self.transfer(name), tuple(map(hint, values)), found)

    def transfer(self, name: str) -> Transfer:
        """Value `name` and where it is."""
        kind = self._graph.tensor(name)
        most = self._most(name, kind)
        return Transfer(name, _seen(kind), self._region(name, most), most, self._scaled(kind.shape))

    def unread(self, name: str) -> Unread:
        """An input of which only the type counts."""
        kind = self._graph.tensor(name)
        return Unread(name, _seen(kind), self._scaled(kind.shape))

    def bounded(self, bound: InputBound) -> Bounded:
        """Integers that an input has to be."""
        least, most = (self._expression(n) if is_dim(n) else -1 for n in (bound.least, bound.most))
        return Bounded(bound.input, hint(bound.least), hint(bound.most), (least, most), bound.texts, bound.every)

    def state(self, state: State) -> Kept:
        """An output in the memory of an input."""
        kind = self._graph.tensor(state.output)
        sizes, given = self._graph.sizes, state.given
        scaled = self._scaled(kind.shape)
        if state.first is not None and state.end is not None:
            first, end = self._rows(state.first), self._rows(state.end)
            return Kept(state.output, _seen(kind), state.input, scaled, state.axis, first=first, end=end)
        if sizes is None or given is None:
            return Kept(state.output, _seen(kind), state.input, scaled)
        capacity, before = sizes.index(state.capacity), self._scaled(given.shape)
        return Kept(state.output, _seen(kind), state.input, scaled, state.axis, capacity, _seen(given), before)

    def _rows(self, rows: Rows) -> RunRows:
        number = self._expression(rows.offset) if is_dim(rows.offset) else -1
        return RunRows(rows.input, hint(rows.offset), number)

    def _scaled(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The numbers of the expressions among `numbers`, -1 for ints; empty where there are only ints."""
        if self._graph.sizes is None:
            return ()
        found = tuple(self._expression(n) if is_dim(n) else -1 for n in numbers)
        return found if any(n >= 0 for n in found) else ()

    def _expression(self, dim: Dim) -> int:
        text = repr(dim)
        if text not in self._expression_number:
            self._expression_number[text] = len(self.expressions)
            self.expressions.append(expression(dim))
        return self._expression_number[text]

    def _most(self, name: str, kind: TensorType) -> int:
        """The most bytes of value `name`: those of what it is a view of, where its own bound is further out."""
        nbytes = upper(kind.nbytes)
        while name in self._views:
            name = self._views[name]
            nbytes = min(nbytes, upper(self._graph.tensor(name).nbytes))
        return nbytes

    def _region(self, name: str, nbytes: int) -> Region:
        """Where value `name` is; `nbytes` is rounded up to what was reserved."""
        region = self._regions.get((name, nbytes))
        if region is None:
            region = self._regions[name, nbytes] = self._found(name, nbytes)
        return region

    def _found(self, name: str, nbytes: int) -> Region:
        if name in self._constants:
            return Region(Space.WEIGHTS, self._number(self._constants[name]), 0, round_up(nbytes))
        if name in self._external:
            return Region(Space.EXTERNAL, self._external[name], 0, round_up(nbytes))
        storage = self._storage(name)
        return Region(Space.ARENA, storage.arena, storage.offset, round_up(nbytes))

    def _number(self, constant: Constant) -> int:
        key = constant.key
        if key not in self._constant_number:
            self._constant_number[key] = len(self.constants)
            self.constants.append(constant)
        return self._constant_number[key]

    def _is_constant(self, region: Region) -> bool:
        """Whether kernels bind a region as memory that is only read: no command of this plan writes its buffer."""
        if region.space is Space.EXTERNAL:
            return self._read_only and region.index in self._computed
        return self._read_only and region.space is Space.WEIGHTS

    def _command(self, step: Step) -> Command:
        """The dispatch with operands that are one region bound once; constants may be bound several times."""
        x, y, z = step.dispatch.grid
        dispatch, regions, shared, accesses = step.dispatch, list[Region](), list[int](), list[Access]()
        kernel, is_open = dispatch.kernel, self._graph.sizes is not None
        sizes = [self._most(name, o.type) for name, o in zip(step.values, dispatch.operands, strict=True)]
        places = [self._region(name, nbytes) for name, nbytes in zip(step.values, sizes, strict=True)]
        constants = frozenset([i for i, region in enumerate(places) if self._is_constant(region)])
        apart = kernel.apart(constants)
        first: dict[tuple[Space, int, int, int], int] = {}
        for i, (name, region) in enumerate(zip(step.values, places, strict=True)):
            same = first.setdefault((region.space, region.index, region.offset, i if i in apart else -1), i)
            shared.append(same)
            number = len(regions) if same == i else accesses[same].region
            if same == i:
                parts = kernel.bindings[i].split(region.nbytes)
                regions += [Region(region.space, region.index, region.offset + at, nbytes) for at, nbytes in parts]
            scaled = self._scaled((dispatch.operands[i].type.nbytes,)) if is_open else ()
            accesses.append(Access(name, number, sizes[i], kernel.bindings[i].write, *scaled))
        source = kernel.wgsl(tuple(shared), constants)
        shader = self.shaders.setdefault(source, len(self.shaders))
        params = self._params(dispatch.params) if kernel.has_params else None
        return Command(
            shader,
            tuple(regions),
            params,
            (hint(x), hint(y), hint(z)),
            kernel.name,
            step.node,
            hint(dispatch.flops),
            tuple(accesses),
            dispatch.inplace,
            self._scaled(dispatch.grid),
        )

    def _params(self, data: bytes) -> tuple[int, int]:
        patches = tuple((at, kind, self._expression(dim)) for at, kind, dim in getattr(data, "patches", ()))
        key = bytes(data), patches
        if key not in self._params_at:
            start = self._params_at[key] = len(self.params)
            self.params += data + bytes(-len(data) % ALIGNMENT)
            self.patches += [Patch(start + at, kind, number) for at, kind, number in patches]
        return self._params_at[key], len(data)


def _seen(kind: TensorType) -> TensorType:
    """Return the type with dynamic dimensions as the sizes seen."""
    return TensorType(kind.dtype, tuple(map(hint, kind.shape)))
