"""The memory plan of a session as a chart: each tensor a bar over the steps it lives, at its offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.compiler.memory import MemoryReport, Storage
from pyruntime.device.base import Ledger
from pyruntime.session.markup import bytes_text, details, escape, page, table, text_table

__all__ = ["MemoryPlan", "allocated_bytes"]

_WIDTH, _HEIGHT, _LEFT, _TOP = 720, 260, 70, 16
_LETTER = 6.3, 14  # about the size of a letter
_BOUND = "lower bound"
_HUES = (210, 150, 30, 280, 340, 95, 185, 55)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory on the GPU, in bytes; a report of the activations for each stage of the plan used last.

    Prints as text, shows as a chart in notebooks.

    Attributes:
        peak: the arenas for activations, which the plans of a session share.
        weights: constants and computed constants of all plans.
        allocated: what all sessions have on the device now, as `allocated_bytes` gives it; empty where nothing runs.
    """

    stages: tuple[MemoryReport, ...]
    peak: int
    weights: int
    allocated: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def planned(cls, stages: Sequence[MemoryReport]) -> MemoryPlan:
        """The memory of a plan that is not on a device."""
        return cls(tuple(stages), sum(s.peak for s in stages), sum(s.weights for s in stages))

    @property
    def lower_bound(self) -> int:
        """Bytes that no plan of the same order can go below, for the plan used last."""
        return sum(s.lower_bound for s in self.stages)

    @property
    def total_without_reuse(self) -> int:
        """Bytes with a buffer for each tensor, for the plan used last."""
        return sum(s.total_without_reuse for s in self.stages)

    @property
    def tensors(self) -> list[Storage]:
        """All storages in order of stage, arena and offset."""
        return [s for stage in self.stages for s in stage.storages]

    def totals(self) -> dict[str, Any]:
        """Return the sums by name, and `allocated`."""
        sums = {n: getattr(self, n) for n in ("peak", "lower_bound", "total_without_reuse", "weights")}
        return {**sums, "allocated": dict(self.allocated)}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **self.totals(),
            "tensors": [
                {
                    "names": s.names,
                    "bytes": s.nbytes,
                    "first": s.first,
                    "last": s.last,
                    "arena": s.arena,
                    "offset": s.offset,
                }
                for s in self.tensors
            ],
        }

    def _rows(self) -> list[tuple[str, str, int, int, int]]:
        return [(", ".join(s.names), bytes_text(s.nbytes), s.offset, s.first, s.last) for s in self.tensors]

    def _headline(self) -> str:
        last = sum(s.peak for s in self.stages)
        planned = (
            f"activations: peak {bytes_text(last)}, lower bound {bytes_text(self.lower_bound)}, "
            f"{bytes_text(self.total_without_reuse)} without reuse; weights {bytes_text(self.weights)}"
        )
        if last != self.peak:
            planned += f"\nactivations of all plans, which share memory: {bytes_text(self.peak)}"
        if not self.allocated:
            return planned
        parts = ", ".join(f"{name.replace('_', ' ')} {bytes_text(n)}" for name, n in self.allocated.items() if n)
        return f"{planned}\nallocated on the device: {bytes_text(sum(self.allocated.values()))} ({parts})"

    def __str__(self) -> str:
        if not self.tensors:
            return self._headline()
        return f"{self._headline()}\n{text_table(('tensor', 'size', 'offset', 'first', 'last'), self._rows())}"

    __repr__ = __str__

    def svg(self) -> str:
        """Return the chart of every stage that has activations."""
        return "".join(_chart(stage) for stage in self.stages if stage.storages)

    def html(self) -> str:
        """Chart and table, without the style."""
        rows = table(("tensor", "size", "offset", "first step", "last step"), self._rows())
        chart = f'<div class="wide">{self.svg()}</div>'
        return f"<p>{escape(self._headline())}</p>{chart}{details('as a table', rows)}"

    def _repr_html_(self) -> str:
        return page(self.html())


def allocated_bytes(ledger: Ledger) -> dict[str, int]:
    """What is allocated on a device, in bytes: each buffer once.

    Returns:
        weights: constants of the models. computed: constants that were computed once. parameters: of kernels. tensors:
        inputs, outputs and caches that stay on the device, and memory for the next of them. staging: what uploads and
        results pass through.
    """
    kinds = {"weights": "weights", "computed": "computed", "arena": "activations", "params": "parameters"}
    found = dict.fromkeys((*kinds.values(), "tensors", "staging"), 0)
    for label, nbytes in ledger.by_label.items():
        found[label if label == "staging" else kinds.get(label, "tensors")] += nbytes
    return found


def _chart(report: MemoryReport) -> str:
    """SVG: x is the step, y the address; the arenas one above the other."""
    bases = _bases(report.storages)
    steps = max(report.steps, 1, *(s.last + 1 for s in report.storages))
    span = max(report.peak, 1)

    def x(step: float) -> float:
        return _LEFT + step * (_WIDTH - _LEFT - 10) / steps

    def y(at: float) -> float:
        return _TOP + (1 - at / span) * (_HEIGHT - _TOP - 30)

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" font-size="11" fill="currentColor" '
        f'aria-label="memory over time: peak {report.peak} bytes, lower bound {report.lower_bound} bytes">'
    ]
    for number, s in enumerate(report.storages):
        at = bases[s.arena] + s.offset
        top, height = y(at + s.nbytes), y(at) - y(at + s.nbytes)
        title = f"{', '.join(s.names)}: {bytes_text(s.nbytes)}, steps {s.first} to {s.last}"
        width, height = max(2.0, x(s.last + 1) - x(s.first)), max(2.0, height)
        parts.append(
            f'<rect x="{x(s.first):.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'fill="hsl({_HUES[number % len(_HUES)]} 60% 52%)" fill-opacity=".6" '
            f'stroke="currentColor" stroke-width=".4"><title>{escape(title)}</title></rect>'
        )
        if height >= _LETTER[1] and (shown := _fitting(s.names[-1], width)):
            middle = f'x="{x(s.first) + width / 2:.1f}" y="{top + height / 2 + 4:.1f}"'
            parts.append(f'<text {middle} text-anchor="middle" pointer-events="none">{escape(shown)}</text>')
    for label, at, dash in _lines(report):
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y(at):.1f}" y2="{y(at):.1f}" stroke="currentColor"{dash}/>'
            f'<text x="{_WIDTH - 12}" y="{y(at) + (12 if label == _BOUND else -4):.1f}" text-anchor="end">'
            f"{label} {bytes_text(at)}</text>"
        )
    for at in (0, report.peak // 2, report.peak):
        place = f'x="{_LEFT - 6}" y="{y(at) + 4:.1f}" text-anchor="end" opacity=".7"'
        parts.append(f"<text {place}>{bytes_text(at) if at else 0}</text>")
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 8}">step 0</text>')
    parts.append(f'<text x="{_WIDTH - 10}" y="{_HEIGHT - 8}" text-anchor="end">step {steps}</text></svg>')
    return "".join(parts)


def _lines(report: MemoryReport) -> list[tuple[str, int, str]]:
    """Return label, height in bytes and dashes of the lines for peak and lower bound; one line if they are equal."""
    dashes = ' stroke-dasharray="5 4"'
    if report.peak == report.lower_bound:
        return [("peak = lower bound", report.peak, dashes)]
    return [("peak", report.peak, ""), (_BOUND, report.lower_bound, dashes)]


def _fitting(name: str, width: float) -> str:
    """Cut a name to what fits into a bar; empty if that is less than five letters."""
    letters = int((width - 6) / _LETTER[0])
    if len(name) <= letters:
        return name
    return f"{name[: letters - 1]}…" if letters >= 5 else ""


def _bases(storages: Sequence[Storage]) -> dict[int, int]:
    """Return the offset in bytes at which each arena begins in the chart, where arenas are stacked."""
    sizes: dict[int, int] = {}
    for s in storages:
        sizes[s.arena] = max(sizes.get(s.arena, 0), s.offset + s.nbytes)
    bases, total = {}, 0
    for arena in sorted(sizes):
        bases[arena] = total
        total += sizes[arena]
    return bases
