"""A compiled model as WebAssembly: one module for all of its plans, over one memory.

From low addresses on the memory has a reserved range, the buffers of constants, computed constants, and what the plans
share, as one runs at a time: activations, then arrays of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from pyruntime.compiler.repeated import Repeated, order_of
from pyruntime.errors import InvalidArgument
from pyruntime.kernels.wasm import RESERVED, Dispatch, Unsupported, compile_dispatch, module

__all__ = ["WasmModule", "wasm_module"]

PAGE = 1 << 16

MOST_PAGES = 1 << 16
"""Pages that 32-bit addresses reach."""

MOST_CALLS = 1 << 16
"""Dispatches of a run, which is a list of calls."""

_Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class WasmModule:
    """A module, and where in its memory everything is.

    Attributes:
        code: the module. It imports `env.memory`, and exports `computed`, which makes the computed constants, and a
            function for each program: `run0`, `run1` and so on.
        pages: of 64 KiB that the memory has.
        buffers, computed: addresses of the buffers of constants, and of computed constants.
        arenas: for each program the addresses of its arenas.
    """

    code: bytes
    pages: int
    buffers: list[int]
    computed: list[int]
    arenas: list[list[int]]

    def data(self, place: Callable[[bytes], list[int]]) -> dict[str, _Json]:
        """Return it as a plan's header has it; `place` puts the code into the sections."""
        return {**asdict(self), "code": place(self.code)}


class _Memory:
    """Addresses, in the order in which they are taken."""

    def __init__(self, start: int) -> None:
        self.end = start

    def take(self, nbytes: int) -> int:
        """Return the address of so many bytes, and at least as many to the next multiple of 256."""
        at = self.end
        self.end += (nbytes // 256 + 1) * 256
        return at


def wasm_module(header: Mapping[str, _Json], sections: bytes | bytearray) -> WasmModule:
    """Compile the plans in a header.

    Raises:
        InvalidArgument: a plan whose sizes are open, whose tensors stay on a device, or that has no WebAssembly.
    """
    memory = _Memory(RESERVED)
    buffers = [memory.take(nbytes) for nbytes, _ in header["buffers"]]
    computed = [memory.take(plan["external"][0]["region"][3]) for plan in header["computed"]]
    constants = [buffers[buffer] + place for *_, buffer, place in header["constants"]]
    first, ends = memory.end, list[int]()
    groups: list[tuple[str, list[bytes], list[int]]] = [("computed", [], [])]
    arenas = list[list[int]]()

    def add(plan: Mapping[str, _Json], external: Mapping[int, int], name: str) -> None:
        own = _Memory(first)
        arenas.append([own.take(nbytes) for nbytes in plan["arenas"]])
        spaces = arenas[-1], [constants[number] for number, *_ in plan["constants"]], external
        bodies, end = _bodies(plan, header["shaders"], sections, spaces, own.end)
        ends.append(end)
        order = _order(plan)
        if groups[-1][0] != name:
            groups.append((name, [], []))
        _, known, calls = groups[-1]
        calls += [len(known) + number for number in order]
        known += bodies

    for plan, at in zip(header["computed"], computed, strict=True):
        add(plan, {plan["external"][0]["region"][1]: at}, "computed")
    for number, program in enumerate(header["programs"]):
        _refuse_open(program)
        places = {t["region"][1]: computed[program["computed"][t["name"]]] for t in program["plan"]["external"]}
        add(program["plan"], places, f"run{number}")
    pages = max(ends, default=first) // PAGE + 2  # a page is left: kernels may read past a buffer
    if pages > MOST_PAGES:
        raise InvalidArgument(
            f"the model takes {pages * PAGE:,} bytes, more than WebAssembly has; compile it for a GPU"
        )
    return WasmModule(module(groups, pages), pages, buffers, computed, arenas[len(computed) :])


def _refuse_open(program: Mapping[str, _Json]) -> None:
    if program["sizes"] is not None:
        raise InvalidArgument("plans for WebAssembly have fixed sizes; compile a plan for each shape (--shape)")
    if program["inputs"] or program["outputs"] or program["plan"]["kept"]:
        raise InvalidArgument("plans for WebAssembly leave no tensor on a device; compile without --text")


def _order(plan: Mapping[str, _Json]) -> list[int]:
    """The numbers of a plan's commands in the order in which they run."""
    order = order_of(len(plan["commands"]), [Repeated(*loop) for loop in plan["repeated"]], lambda loop: loop.times)
    if len(order) > MOST_CALLS:
        raise InvalidArgument(f"a run has {len(order):,} dispatches, too many for WebAssembly; compile it for a GPU")
    return order


def _bodies(
    plan: Mapping[str, _Json],
    shaders: Sequence[str],
    sections: bytes | bytearray,
    spaces: Sequence[Sequence[int] | Mapping[int, int]],
    scratch: int,
) -> tuple[list[bytes], int]:
    """Return a function for each command of a plan, and the end of the memory that they take.

    Args:
        spaces: addresses by the kind of memory and the index of regions.
        scratch: the first address for arrays of kernels.
    """
    made, end = list[bytes](), scratch
    for command in plan["commands"]:
        buffers = [spaces[space][index] + offset for space, index, offset, _ in command["regions"]]
        at, nbytes = command["params"] or (0, 0)
        params = bytes(sections[plan["params"][0] + at :][:nbytes])
        text = shaders[plan["shaders"][command["shader"]]]
        x, y, z = command["grid"]
        try:
            compiled = compile_dispatch(Dispatch(text, buffers, params, (x, y, z), scratch))
        except Unsupported as error:
            raise InvalidArgument(
                f"{command['about'][0]} has no WebAssembly: {error}; compile the model for a GPU"
            ) from None
        made.append(compiled.body)
        end = max(end, compiled.end)
    return made, end
