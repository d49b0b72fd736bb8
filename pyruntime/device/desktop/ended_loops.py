"""Loops that Mesa's llvmpipe ends early, reported instead of returned as wrong numbers.

llvmpipe counts the trips of all loops of an invocation together. After 65,535 it ends each loop at its next trip,
without an error, and continues after it. Kernels on it check after each loop whether the loop had ended by itself, and
store their number in a buffer where it had not:

    for (var k = 0u; k < n; k++) { body }
    { var k = 0u; for (; k < n; k++) { body } if (k < n) { ended_loops = 7u; } }

Source: `LP_MAX_TGSI_LOOP_ITERATIONS` of Mesa's src/gallium/auxiliary/gallivm/lp_bld_limits.h.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

from pyruntime.device.base import Raw, Slice
from pyruntime.device.desktop.adapters import Adapter
from pyruntime.device.desktop.implementations import GpuObject, Implementation
from pyruntime.errors import EngineError
from pyruntime.kernels.wgsl.module import Module

__all__ = ["NBYTES", "EndedLoops", "checked"]

NBYTES = 4
"""Size of a report in bytes."""

_DECLARATION = "\n@group(1) @binding(0) var<storage, read_write> ended_loops: u32;"
_TOKEN = re.compile(r"\b(?:for|while|loop|switch|break)\b|[{}]")
_NAME = re.compile(r"^// (\w+)$", re.M)


class EndedLoops:
    """The buffer in which kernels of a device report loops that were ended early.

    Attributes:
        layout, group: bind group 1 of all pipelines. place: the buffer, which is read back with each run's outputs.
    """

    @staticmethod
    def of(implementation: Implementation, adapter: Adapter, device: GpuObject, number: int) -> EndedLoops | None:
        """Return the reports of a device; None where loops are not ended."""
        is_llvmpipe = adapter.kind == "software" and adapter.vendor == "mesa"
        return EndedLoops(implementation, device, number) if is_llvmpipe else None

    def __init__(self, implementation: Implementation, device: GpuObject, number: int) -> None:
        """Create the buffer. `number` is the device's number for it."""
        usage, visible = implementation.api.BufferUsage, implementation.api.ShaderStage.COMPUTE
        self.buffer: GpuObject = device.create_buffer(size=16, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)
        self.place = Slice(number, 0, NBYTES)
        entry = {"binding": 0, "visibility": visible, "buffer": {"type": "storage"}}
        self.layout: GpuObject = device.create_bind_group_layout(entries=[entry])
        resource = {"buffer": self.buffer, "offset": 0, "size": NBYTES}
        self.group: GpuObject = device.create_bind_group(
            layout=self.layout, entries=[{"binding": 0, "resource": resource}]
        )
        self._kernels: list[str] = []
        self._lock = threading.Lock()

    def source(self, wgsl: str) -> str:
        """Return WGSL that reports loops which are ended early."""
        named = _NAME.search(wgsl)
        with self._lock:
            self._kernels.append(named[1] if named else "shader")
            number = len(self._kernels)
        return checked(wgsl, number)

    def check(self, answer: Raw, forget: Callable[[], object]) -> None:
        """Raise EngineError if a kernel reported a loop, after `forget`, which clears the buffer.

        Args:
            answer: the buffer's bytes.
        """
        raw = answer if isinstance(answer, bytes | memoryview) else answer.read(0, NBYTES)
        if number := int.from_bytes(raw[:NBYTES], "little"):
            forget()
            raise EngineError(
                f"kernel {self._kernels[number - 1]}: the software adapter llvmpipe ended a loop early, in this run or "
                "in an earlier one whose outputs are on the GPU; it allows 65,535 trips of all loops of an invocation. "
                "The outputs are wrong and were not returned: use another adapter, or the CPUExecutionProvider"
            )


@dataclass(slots=True)
class _Block:
    """A block that is open: of a loop, a switch, or anything else.

    Attributes:
        kind: the keyword before it; '' for others. condition: that of the loop.
        start: where the loop's statement begins. body: where its block does. number: of the loop. breaks: whether it
            has a `break`.
    """

    kind: str = ""
    condition: str = ""
    start: int = 0
    body: int = 0
    number: int = 0
    breaks: bool = False


class _Marking:
    """Finds the loops of a source, and collects what replaces parts of it."""

    def __init__(self, wgsl: str, store: str) -> None:
        self._code = Module.of(wgsl).code
        self._store = store
        self._loops = 0
        self._open: list[_Block] = []
        self._next = _Block()
        self._begins: dict[int, tuple[int, str]] = {}
        self.edits: list[tuple[int, int, str]] = []

    def run(self) -> None:
        at = 0
        while (found := _TOKEN.search(self._code, at)) is not None:
            at = found.end()
            match found[0]:
                case "for" | "while" | "loop" as kind:
                    at = self._loop(kind, found.start(), at)
                case "switch":
                    self._next = _Block("switch")
                case "{":
                    self._next.body = at
                    self._open.append(self._next)
                    self._next = _Block()
                case "}":
                    self._close(self._open.pop(), at)
                case _:
                    self._break(found.start(), at)

    def _loop(self, kind: str, start: int, at: int) -> int:
        """Note a loop's head; return where its block begins."""
        head, end = "", at
        if kind != "loop":
            opened = self._code.index("(", at)
            end = _closing(self._code, opened)
            head = self._code[opened + 1 : end - 1]
        self._loops += 1
        if kind == "for":
            first, condition, _ = _parts(head)
            self._begins[self._loops] = opened + 1 + len(first), f"{first.strip()}; for (" if first.strip() else "for ("
        else:
            condition = head
            self._begins[self._loops] = start, ""
        self._next = _Block(kind, " ".join(condition.split()), start, number=self._loops)
        return end

    def _break(self, start: int, at: int) -> None:
        loop = next(block for block in reversed(self._open) if block.kind)
        if loop.kind == "switch":
            return
        end = self._code.index(";", at)
        loop.breaks = True
        if self._code[at:end].strip():  # `break if ...;` ends a continuing block
            self.edits.append((start, at, f"{_flag(loop)} = {self._code[at:end].strip()[2:].strip()}; break"))
        else:
            self.edits.append((start, end + 1, f"{{ {_flag(loop)} = true; break; }}"))

    def _close(self, block: _Block, at: int) -> None:
        is_loop = block.kind not in ("", "switch")
        if not is_loop or not (block.condition or block.breaks) or "atomic" in block.condition:
            return  # the last would count twice
        tests = [f"({block.condition})"] if block.condition else []
        tests += [f"!{_flag(block)}"] if block.breaks else []
        begin, moved = self._begins[block.number]
        declared = f"var {_flag(block)} = false; " if block.breaks else ""
        if not block.condition:
            # A compiler knows that a loop without a condition has ended by `break`: it gets one.
            declared += f"var trips_{block.number}_ = 0u; "
            counted = f" if (trips_{block.number}_ == 4294967295u) {{ break; }} trips_{block.number}_++;"
            self.edits.append((block.body, block.body, counted))
        self.edits.append((block.start, begin, f"{{ {declared}{moved}"))
        self.edits.append((at, at, f" if ({' && '.join(tests)}) {{ {self._store} }} }}"))


def checked(wgsl: str, number: int) -> str:
    """Return WGSL that stores `number` in `ended_loops` where a loop has ended though its condition holds.

    Lines keep their numbers.
    """
    marking = _Marking(wgsl, f"ended_loops = {number}u;")
    marking.run()
    made, at = list[str](), 0
    for start, end, text in sorted(marking.edits, key=lambda edit: edit[:2]):
        made += wgsl[at:start], text
        at = end
    return "".join((*made, wgsl[at:])) + (_DECLARATION if marking.edits else "")


def _flag(loop: _Block) -> str:
    return f"broke_{loop.number}_"


def _closing(code: str, opened: int) -> int:
    """Return the end of the parenthesis that opens at `opened`."""
    depth = 0
    for found in re.compile(r"[()]").finditer(code, opened):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return found.end()
    return len(code)


def _parts(head: str) -> tuple[str, str, str]:
    """Return the three parts of a `for` loop's head."""
    first, condition, step = head.split(";")
    return first, condition, step
