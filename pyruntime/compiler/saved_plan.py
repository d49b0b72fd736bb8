"""Plans as the JSON and the bytes that a file of compiled models has (`saved.py`), and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from pyruntime.compiler.memory import grouped, round_up
from pyruntime.compiler.plan import (
    Access,
    Bounded,
    Command,
    GpuSegment,
    HostStep,
    Kept,
    Numbers,
    Plan,
    Region,
    RunRows,
    Space,
    Transfer,
    Unread,
)
from pyruntime.compiler.repeated import Repeated
from pyruntime.errors import InvalidArgument
from pyruntime.ir import Constant, DType, RawSource, TensorType

__all__ = ["Sections", "read_bounded", "read_kept", "read_segment", "read_transfer", "read_unread"]

TEMPORARY = 1 << 20
"""Bytes of a buffer that constants share which leave when others are computed."""

_EXACT = 1 << 53
_SPACES = (Space.ARENA, Space.WEIGHTS, Space.EXTERNAL)
_Json: TypeAlias = Any
Raw: TypeAlias = bytes | memoryview


class Sections:
    """What plans share: shaders, constants, bytes.

    Args:
        files: constants that lie there are named by their place, with the file's number from 1.
    """

    def __init__(self, files: Sequence[RawSource | None]) -> None:
        self.data = bytearray()
        self.shaders: dict[str, int] = {}
        self._files = {id(file): number for number, file in enumerate(files, 1) if file is not None}
        self._constants: dict[Any, tuple[int, Constant]] = {}
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._put_at: dict[tuple[int, bytes], int] = {}
        self._places: list[_Json] = []
        self._kept: list[bool] = []

    def _put(self, raw: Raw) -> int:
        """Where these bytes are; equal ones are there once."""
        key = len(raw), hashlib.sha256(raw).digest()
        if key not in self._put_at:
            self.data += bytes(-len(self.data) % 16)
            self._put_at[key] = len(self.data)
            self.data += raw
        return self._put_at[key]

    def bytes(self, raw: bytes) -> list[int]:
        """Add bytes to the section; returns their offset and length."""
        return [self._put(raw), len(raw)]

    def _constant(self, constant: Constant, temporary: bool) -> int:
        """Its number; `temporary`: what is wanted of it is there once the computed constants are."""
        if constant.key not in self._constants:
            file = self._files.get(id(constant.source), 0)
            at = constant.offset if file else self._put(constant.raw())
            place = file, at, constant.nbytes
            if place not in self._numbers:
                self._numbers[place] = len(self._places)
                self._places.append(list(place))
                self._kept.append(False)
            self._constants[constant.key] = self._numbers[place], constant
        number, _ = self._constants[constant.key]
        self._kept[number] |= not temporary
        return number

    def weights(self) -> dict[str, _Json]:
        """Constants, each with its place on the GPU, and the buffers these are in: bytes, and whether they stay.

        Small ones share buffers: those that stay in the order of their size, others with what the file has next to
        them, so that they leave soon.
        """
        buffers: list[list[int]] = []
        places: dict[int, tuple[int, int]] = {}
        for kept in (True, False):
            chosen = [n for n, k in enumerate(self._kept) if k == kept]
            chosen.sort(key=lambda n: (-self._places[n][2], n) if kept else (*self._places[n][:2], n))
            for group in grouped(chosen, [self._places[n][2] for n in chosen], *(() if kept else (TEMPORARY,))):
                buffers.append([0, int(kept)])
                for number in group:
                    places[number] = len(buffers) - 1, buffers[-1][0]
                    buffers[-1][0] += round_up(self._places[number][2])
        return {"buffers": buffers, "constants": [[*p, *places[n]] for n, p in enumerate(self._places)]}

    def plan(self, plan: Plan, temporary: bool) -> dict[str, _Json]:
        """Return a plan as data for JSON; bytes go to the sections."""
        segment = plan.only_segment
        if segment is None or plan.host_values:
            steps = [s.node.label for s in plan.steps if isinstance(s, HostStep)]
            raise InvalidArgument(
                "the plan cannot be saved: "
                + (
                    f"these nodes run on the host: {', '.join(steps[:10])}"
                    if steps
                    else "an output follows from constants"
                )
                + "; create the session without a plan, Python runs it"
            )
        report = plan.memory
        shaders = [self.shaders.setdefault(text, len(self.shaders)) for text in plan.shaders]
        return {
            "shaders": shaders,
            "constants": [
                [self._constant(c, temporary), c.type.dtype.js_name, list(map(int, c.type.shape))]
                for c in plan.constants
            ],
            "arenas": list(plan.arenas),
            "params": self.bytes(plan.params),
            "uploads": list(map(_transfer, segment.uploads)),
            "downloads": list(map(_transfer, segment.downloads)),
            "external": list(map(_transfer, plan.external)),
            "kept": list(map(_kept, plan.kept)),
            "unread": [
                {
                    "name": u.name,
                    "type": u.type.dtype.js_name,
                    "dims": list(map(int, u.type.shape)),
                    "scaled": list(u.scaled),
                }
                for u in plan.unread
            ],
            "bounds": [asdict(b) for b in plan.bounds],
            "numbers": [
                {"transfer": _transfer(n.transfer), "elements": _exact(n.elements), "expressions": list(n.expressions)}
                for n in segment.numbers
            ],
            "commands": list(map(_command, segment.commands)),
            "repeated": [[r.first, r.count, r.times, r.scaled] for r in segment.repeated],
            "sizes": list(plan.sizes),
            "expressions": plan.expressions,
            "patches": [[p.offset, p.kind, p.expression] for p in plan.patches],
            "views": plan.views,
            "nodes": [[a.name, a.op_type, a.domain, a.placement, a.reason, list(a.kernels)] for a in plan.assignments],
            "memory": [report.peak, report.lower_bound, report.total_without_reuse, report.weights, report.steps],
        }


def _exact(numbers: Sequence[int]) -> list[int]:
    if any(abs(n) > _EXACT for n in numbers):
        raise InvalidArgument("the plan cannot be saved: a computed shape has a number above 2^53")
    return list(map(int, numbers))


def _region(region: Region) -> list[int]:
    return [_SPACES.index(region.space), region.index, region.offset, region.nbytes]


def _transfer(t: Transfer) -> dict[str, _Json]:
    return {
        "name": t.name,
        "type": t.type.dtype.js_name,
        "bits": t.type.dtype.bits,
        "dims": list(map(int, t.type.shape)),
        "region": _region(t.region),
        "most": t.most,
        "scaled": list(t.scaled),
    }


def _kept(k: Kept) -> dict[str, _Json]:
    return {
        "name": k.name,
        "type": k.type.dtype.js_name,
        "bits": k.type.dtype.bits,
        "dims": list(map(int, k.type.shape)),
        "scaled": list(k.scaled),
        "input": k.input,
        "axis": k.axis,
        "capacity": k.capacity,
        "given": {"dims": list(map(int, k.given.shape)), "scaled": list(k.given_scaled)} if k.given else None,
        "first": _rows(k.first),
        "end": _rows(k.end),
    }


def _rows(rows: RunRows | None) -> dict[str, _Json] | None:
    return {"input": rows.input, "offset": rows.offset, "expression": rows.expression} if rows else None


def _command(c: Command) -> dict[str, _Json]:
    return {
        "shader": c.shader,
        "regions": list(map(_region, c.regions)),
        "params": list(c.params) if c.params else None,
        "grid": list(map(int, c.grid)),
        "scaled": list(c.scaled),
        "about": [c.kernel, c.node, int(c.flops)],
        "accesses": [[a.value, a.region, a.nbytes, int(a.write), a.scaled] for a in c.accesses],
        "inplace": [list(pair) for pair in c.inplace],
    }


def read_segment(data: Mapping[str, _Json]) -> GpuSegment:
    numbers = [
        Numbers(read_transfer(n["transfer"]), tuple(n["elements"]), tuple(n["expressions"])) for n in data["numbers"]
    ]
    uploads, downloads = (list(map(read_transfer, data[name])) for name in ("uploads", "downloads"))
    repeated = [Repeated(*loop) for loop in data["repeated"]]
    return GpuSegment(uploads, list(map(_read_command, data["commands"])), downloads, numbers, repeated)


def _read_region(data: Sequence[int]) -> Region:
    space, index, offset, nbytes = data
    return Region(_SPACES[space], index, offset, nbytes)


def read_transfer(data: Mapping[str, _Json]) -> Transfer:
    kind = TensorType(DType.from_js_name(data["type"]), tuple(data["dims"]))
    return Transfer(data["name"], kind, _read_region(data["region"]), data["most"], tuple(data["scaled"]))


def read_unread(data: Mapping[str, _Json]) -> Unread:
    """An input that no step reads."""
    return Unread(
        data["name"], TensorType(DType.from_js_name(data["type"]), tuple(data["dims"])), tuple(data["scaled"])
    )


def read_bounded(data: Mapping[str, _Json]) -> Bounded:
    """Integers that an input has to be."""
    least, most = data["expressions"]
    before, between, after = data["texts"]
    first, distance = data["every"]
    texts = (before, between, after)
    return Bounded(data["input"], data["least"], data["most"], (least, most), texts, (first, distance))


def read_kept(data: Mapping[str, _Json]) -> Kept:
    """An output in the memory of an input."""
    dtype, given = DType.from_js_name(data["type"]), data["given"]
    return Kept(
        data["name"],
        TensorType(dtype, tuple(data["dims"])),
        data["input"],
        tuple(data["scaled"]),
        data["axis"],
        data["capacity"],
        TensorType(dtype, tuple(given["dims"])) if given else None,
        tuple(given["scaled"]) if given else (),
        _read_rows(data["first"]),
        _read_rows(data["end"]),
    )


def _read_rows(data: Mapping[str, _Json] | None) -> RunRows | None:
    return RunRows(data["input"], data["offset"], data["expression"]) if data else None


def _read_command(data: Mapping[str, _Json]) -> Command:
    kernel, node, flops = data["about"]
    x, y, z = data["grid"]
    return Command(
        data["shader"],
        tuple(map(_read_region, data["regions"])),
        (data["params"][0], data["params"][1]) if data["params"] else None,
        (x, y, z),
        kernel,
        node,
        flops,
        tuple(
            Access(value, region, n, bool(written), scaled) for value, region, n, written, scaled in data["accesses"]
        ),
        tuple((a, b) for a, b in data["inplace"]),
        tuple(data["scaled"]),
    )
