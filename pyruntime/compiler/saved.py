"""Compiled programs as files, which web/plans/plan.js runs without Python.

A file is, little endian:

    8 bytes   magic, `pyrtplan`; of plans for WebAssembly `pyrtwasm`
    u32       version of the format
    u32       bytes of the header as stored
    u32       bytes of the header inflated
    u32       bytes of the sections
    32 bytes  SHA-256 of everything after it
    header    JSON (UTF-8, sorted keys), deflated with a zlib wrapper
    sections  parameters and constants, each from a multiple of 16

What the header's keys hold is what `write` writes. A constant is bytes of the sections (file 0), of the model file (1)
or of one of the files that the model names as external data (2 is the first of `files`); all these are known by
`tree_hash`. What serves reports alone (types of nodes' outputs, memory by value) is not kept.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pyruntime.compiler.memory import MemoryReport
from pyruntime.compiler.plan import (
    Assignment,
    Patch,
    Plan,
)
from pyruntime.compiler.saved_plan import Sections, read_bounded, read_kept, read_segment, read_transfer, read_unread
from pyruntime.errors import InvalidArgument
from pyruntime.ir import Constant, DType, RawSource, TensorType
from pyruntime.target import SERIAL

__all__ = [
    "BLOCK",
    "FORMAT",
    "WASM_MAGIC",
    "ExternalFile",
    "ModelFile",
    "Saved",
    "SavedProgram",
    "open_plan",
    "read",
    "tree_hash",
    "write",
]

MAGIC = b"pyrtplan"
WASM_MAGIC = b"pyrtwasm"
FORMAT = 10
"""Version of the format: another one is not read."""

BLOCK = 4 << 20
"""Bytes of a model that are hashed together, so that it can be checked as it arrives."""

_HEAD = struct.Struct("<8sIIII32s")
_MOST_HEADER = 256 << 20
_Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The model file that constants are read from: its bytes, and `tree_hash` of them."""

    nbytes: int
    hash: str


@dataclass(frozen=True, slots=True)
class ExternalFile:
    """A file in which the model keeps weights: the path that the model names it by, its bytes, `tree_hash` of them."""

    path: str
    nbytes: int
    hash: str


@dataclass(slots=True)
class SavedProgram:
    """A plan, and what else it takes to run it.

    Attributes:
        sizes: what it leaves open, as web/gpu/sizes.js has it but for expressions, patches and params; None: nothing.
        computed: external tensors of the plan that are computed once: name, and number in `Saved.computed`.
        inputs: external tensors that runs bring on the GPU. outputs: those that stay there, in separate memory.
        values: raw_data of inputs on the host that the plan is for, and no other, by name.
        scalars: inputs of shape [] that runs may bring in shape [1] instead, all of them: the plan is the same.
    """

    plan: Plan
    sizes: dict[str, _Json] | None = None
    computed: dict[str, int] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    values: dict[str, bytes] = field(default_factory=dict)
    scalars: list[str] = field(default_factory=list)

    def data(self, sections: Sections) -> dict[str, _Json]:
        """Return the program as data for JSON, with the numbers of `Saved.computed`; bytes go to the sections."""
        return {
            "plan": sections.plan(self.plan, temporary=False),
            "sizes": self.sizes,
            "computed": self.computed,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "values": {name: sections.bytes(raw) for name, raw in self.values.items()},
            "scalars": self.scalars,
        }


@dataclass(slots=True)
class Saved:
    """A compiled model.

    Attributes:
        package: version of pyruntime that compiled it.
        model: the file that constants not inside are read from; what the plan was made of in any case.
        target: `limits` by name, `features`, `vendor` that it was compiled for.
        options: of the session that it takes the place of.
        inputs, outputs: as `ValueMetadata` of web/pyruntime.d.ts.
        computed: plans that make constants, each one external tensor.
        inside: constants are in the file, not in the model's.
        files: those that the model keeps weights in; the plan was made of them, too.
        decoder: what a text's writer has to know of a decoder, as `generate/facts.py` has it; None: not asked for.
    """

    package: str
    model: ModelFile
    target: dict[str, _Json]
    options: dict[str, _Json]
    inputs: list[_Json]
    outputs: list[_Json]
    programs: list[SavedProgram]
    computed: list[Plan] = field(default_factory=list)
    inside: bool = False
    files: list[ExternalFile] = field(default_factory=list)
    decoder: dict[str, _Json] | None = None


def tree_hash(source: RawSource, nbytes: int) -> str:
    """SHA-256, hexadecimal, of the SHA-256 of each block of `BLOCK` bytes."""
    whole = hashlib.sha256()
    for at in range(0, nbytes, BLOCK):
        whole.update(hashlib.sha256(source.read(at, min(BLOCK, nbytes - at))).digest())
    return whole.hexdigest()


def write(saved: Saved, source: RawSource | None = None, files: Sequence[RawSource] = ()) -> bytes:
    """The file.

    Args:
        source: the model file: constants that lie there are named by their place, unless `saved.inside`.
        files: what is in `saved.files`, in their order: constants there are named likewise.

    Raises:
        InvalidArgument: a plan that no player runs alone: host steps, outputs known without running, two segments.
    """
    sections = Sections([] if saved.inside else [source, *files])
    computed: list[_Json] = []
    renumbered: dict[int, int] = {}
    for number in sorted({n for p in saved.programs for n in p.computed.values()}):
        made = sections.plan(saved.computed[number], temporary=True)
        if made not in computed:
            computed.append(made)
        renumbered[number] = computed.index(made)
    programs: list[_Json] = [
        p.data(sections) | {"computed": {name: renumbered[number] for name, number in p.computed.items()}}
        for p in saved.programs
    ]
    header = {
        "package": saved.package,
        "model": {"nbytes": saved.model.nbytes, "hash": saved.model.hash, "inside": saved.inside},
        "files": [{"path": f.path, "nbytes": f.nbytes, "hash": f.hash} for f in saved.files],
        "target": saved.target,
        "options": saved.options,
        "inputs": saved.inputs,
        "outputs": saved.outputs,
        "decoder": saved.decoder,
        "programs": programs,
        "computed": computed,
        "shaders": list(sections.shaders),
        **sections.weights(),
    }
    magic = MAGIC
    if SERIAL in saved.target["features"]:
        from pyruntime.compiler.wasm_module import wasm_module  # pages write no such plans

        magic = WASM_MAGIC
        header["module"] = wasm_module(header, sections.data).data(sections.bytes)
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    packed = zlib.compress(text, 9)
    body = packed + sections.data
    return _HEAD.pack(magic, FORMAT, len(packed), len(text), len(sections.data), _digest(body)) + body


def read(data: bytes, source: RawSource | None = None, files: Sequence[RawSource] = ()) -> Saved:
    """The compiled model in a file.

    Args:
        source: the model file that has the constants outside of the plan. files: those of `Saved.files`, likewise.

    Raises:
        InvalidArgument: it is no plan, is damaged, or is of another version.
    """
    header, sections = open_plan(data)
    try:
        return _saved(header, sections, source, files)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(
            f"the plan is damaged ({type(error).__name__}: {error}); compile the model again"
        ) from None


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def open_plan(data: bytes) -> tuple[_Json, bytes]:
    """Header and sections of a file whose lengths and hash are right."""
    if len(data) < _HEAD.size:
        raise InvalidArgument(f"not a plan: {len(data)} bytes")
    magic, version, packed, inflated, sections, digest = _HEAD.unpack_from(data)
    if magic not in (MAGIC, WASM_MAGIC):
        raise InvalidArgument(
            "not a plan: it does not begin with 'pyrtplan'; make one with `python -m pyruntime compile`"
        )
    if version != FORMAT:
        raise InvalidArgument(f"a plan of format {version}, and this is for format {FORMAT}; compile the model again")
    if _HEAD.size + packed + sections != len(data) or inflated > _MOST_HEADER:
        raise InvalidArgument("the plan is cut off, or longer than it says; fetch or compile it again")
    body = data[_HEAD.size :]
    if _digest(body) != digest:
        raise InvalidArgument("the plan is damaged: its hash differs; fetch or compile it again")
    try:
        text = zlib.decompressobj().decompress(body[:packed], inflated + 1)
        if len(text) != inflated:
            raise ValueError("its header is not as long as it says")
        return json.loads(text), body[packed:]
    except (ValueError, zlib.error, RecursionError) as error:
        raise InvalidArgument(f"the plan is damaged: {error}; compile the model again") from None


def _saved(header: Mapping[str, _Json], sections: bytes, source: RawSource | None, given: Sequence[RawSource]) -> Saved:
    model, constants = header["model"], header["constants"]
    files = [ExternalFile(f["path"], f["nbytes"], f["hash"]) for f in header["files"]]
    absent = [_Absent()] * (len(files) - len(given))
    places: list[RawSource] = [_Inline(sections), source or _Absent(), *given, *absent]
    sizes = [len(sections), model["nbytes"], *(f.nbytes for f in files)]

    def constant(number: int, dtype: str, shape: list[int]) -> Constant:
        file, at, nbytes, _, _ = constants[number]
        kind = TensorType(DType.from_js_name(dtype), tuple(shape))
        if kind.nbytes != nbytes or file < 0 or at < 0 or at + nbytes > sizes[file]:
            raise ValueError(f"constant {number} is not within its file")
        return Constant(kind, places[file], at)

    def plan(data: Mapping[str, _Json]) -> Plan:
        shaders = [header["shaders"][n] for n in data["shaders"]]
        at, nbytes = data["params"]
        peak, bound, without, weights, steps = data["memory"]
        made = Plan(
            [read_segment(data)],
            shaders,
            [constant(*c) for c in data["constants"]],
            data["arenas"],
            sections[at : at + nbytes],
            MemoryReport(peak, bound, without, weights, (), steps),
            [Assignment(n, op, dom, where, why, tuple(used)) for n, op, dom, where, why, used in data["nodes"]],
            {},
            list(map(read_transfer, data["external"])),
            data["views"],
            data["sizes"],
            data["expressions"],
            [Patch(*p) for p in data["patches"]],
            list(map(read_kept, data["kept"])),
            list(map(read_unread, data["unread"])),
            list(map(read_bounded, data["bounds"])),
        )
        if len(made.params) != nbytes:
            raise ValueError("its parameters are not within it")
        return made

    def program(data: Mapping[str, _Json]) -> SavedProgram:
        values = {name: sections[at : at + nbytes] for name, (at, nbytes) in data["values"].items()}
        inputs, outputs, scalars = data["inputs"], data["outputs"], data["scalars"]
        return SavedProgram(plan(data["plan"]), data["sizes"], data["computed"], inputs, outputs, values, scalars)

    programs = list(map(program, header["programs"]))
    return Saved(
        header["package"],
        ModelFile(model["nbytes"], model["hash"]),
        header["target"],
        header["options"],
        header["inputs"],
        header["outputs"],
        programs,
        list(map(plan, header["computed"])),
        model["inside"],
        files,
        header["decoder"],
    )


class _Inline:
    """Sections of a plan file as a RawSource, for constants that are stored in the plan."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)

    def read(self, offset: int, length: int) -> memoryview:
        return self._data[offset : offset + length]


class _Absent:
    """A file of the model that the caller did not give."""

    def read(self, offset: int, length: int) -> bytes:
        raise InvalidArgument("the weights are in the model's files; give these to read them")
