"""What a session does and why: nodes with their placement, kernels with their WGSL, memory, fusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.compiler.plan import Assignment, Plan
from pyruntime.kernels import Target
from pyruntime.kernels.selection.candidates import Choice
from pyruntime.session.inspect.memory_plan import MemoryPlan
from pyruntime.session.markup import counted, details, escape, highlight, page, table, text_table

__all__ = ["DynamicDimension", "Explanation", "KernelUse", "choices_of", "kernels_of"]


@dataclass(frozen=True, slots=True)
class KernelUse:
    """A shader of a plan.

    Attributes:
        count: dispatches that use it. nodes: for which nodes.
    """

    name: str
    wgsl: str
    count: int
    nodes: tuple[str, ...]
    grids: tuple[tuple[int, int, int], ...]


def kernels_of(plans: Sequence[Plan]) -> list[KernelUse]:
    """Return the distinct shaders of `plans`, in order of first use."""
    found: dict[str, list[Any]] = {}
    for plan in plans:
        for c in plan.commands:
            entry = found.setdefault(plan.shaders[c.shader], [c.kernel, 0, [], []])
            entry[1] += 1
            entry[2].append(plan.assignments[c.node].name)
            entry[3].append(c.grid)
    return [
        KernelUse(name, wgsl, count, tuple(dict.fromkeys(nodes)), tuple(dict.fromkeys(grids)))
        for wgsl, (name, count, nodes, grids) in found.items()
    ]


def choices_of(plans: Sequence[Plan], target: Target) -> tuple[tuple[str, Choice], ...]:
    """Return (node, candidates that were considered for it) of all plans."""
    return tuple((a.name, noted.rank(target)) for plan in plans for a in plan.assignments for noted in a.choices)


@dataclass(frozen=True, slots=True)
class DynamicDimension:
    """A dynamic dimension of a plan's inputs, from `low` to `high`; its name, or 'x[0]'."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """`InferenceSession.explain()`: prints as text, shows as HTML in notebooks.

    Attributes:
        nodes: where each node runs and why. kernels: the WGSL. fusions: nodes that were several in the model.
        model_nodes: nodes before the passes.
        dynamic_dimensions: dimensions of inputs that may differ from run to run without another plan.
        fixed_sizes: those that may not: (name, why), as 'batch' or 'x[0]'.
        choices: (node, which kernel was chosen, with the cost of it and of the others).
        precision: where the session wants float16, by node: why it computes in float32, empty where it does not; else
            None.
    """

    title: str
    nodes: tuple[Assignment, ...]
    kernels: tuple[KernelUse, ...]
    memory: MemoryPlan
    model_nodes: int
    dispatches: int
    dynamic_dimensions: tuple[DynamicDimension, ...] = ()
    fixed_sizes: tuple[tuple[str, str], ...] = ()
    choices: tuple[tuple[str, Choice], ...] = ()
    precision: Mapping[str, str] | None = None

    @property
    def fusions(self) -> list[str]:
        """What was fused: 'Conv + Relu (node)'."""
        return [f"{a.op_type} ({a.name})" for a in self.nodes if " + " in a.op_type]

    def _headline(self) -> str:
        places = Counter(a.placement for a in self.nodes)
        model, dispatches = counted(self.model_nodes, "node"), counted(self.dispatches, "dispatch", "es")
        after = "" if len(self.nodes) == self.model_nodes else f", {len(self.nodes):,} after fusion"
        return (
            f"{self.title}: {model} in the model{after}: {places['gpu']} on the GPU, {places['host']} on the host, "
            f"{places['none']} at no cost; {dispatches} of {counted(len(self.kernels), 'shader')}"
        )

    def _node_rows(self) -> list[tuple[str, str, str, str, str]]:
        return [(a.name, a.op_type, a.placement, a.reason, ", ".join(dict.fromkeys(a.kernels))) for a in self.nodes]

    def _sizes(self) -> list[str]:
        """Lines about the sizes that runs may bring."""
        lines = [f"{s.name}: any from {s.low:,} to {s.high:,}, one plan" for s in self.dynamic_dimensions]
        return lines + [f"{name}: a plan for each, because of {reason}" for name, reason in self.fixed_sizes]

    def _precision(self) -> list[str]:
        """Lines about the session option `precision`."""
        if self.precision is None:
            return []
        reasons: dict[str, list[str]] = {}
        for name, reason in self.precision.items():
            reasons.setdefault(reason, []).append(name)
        half = len(reasons.pop("", ()))
        lines = [f"{counted(half, 'node')} in float16, {len(self.precision) - half} in float32"]
        return lines + [f"float32, {reason}: {', '.join(names)}" for reason, names in reasons.items()]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "title": self.title,
            "model_nodes": self.model_nodes,
            "dispatches": self.dispatches,
            "fusions": self.fusions,
            "nodes": [
                {
                    "name": a.name,
                    "op_type": a.op_type,
                    "domain": a.domain,
                    "placement": a.placement,
                    "reason": a.reason,
                    "kernels": list(a.kernels),
                    "outputs": [str(t) for t in a.outputs],
                }
                for a in self.nodes
            ],
            "kernels": [
                {"name": k.name, "count": k.count, "nodes": list(k.nodes), "wgsl": k.wgsl} for k in self.kernels
            ],
            "memory": self.memory.to_dict(),
            "choices": [
                {
                    "node": node,
                    "problem": f"{c.family} {c.problem}",
                    "chosen": c.chosen,
                    "reason": c.reason,
                    "considered": [{"name": o.name, "cost": o.cost, "reason": o.reason} for o in c.others],
                }
                for node, c in self.choices
            ],
            "sizes": {
                "open": [{"name": s.name, "low": s.low, "high": s.high} for s in self.dynamic_dimensions],
                "fixed": [{"name": name, "reason": reason} for name, reason in self.fixed_sizes],
            },
            "precision": None if self.precision is None else dict(self.precision),
        }

    def __str__(self) -> str:
        head = ("node", "operator", "runs on", "why", "kernels")
        parts = [self._headline(), "", text_table(head, self._node_rows())]
        if self.fusions:
            parts += ["", "fused: " + "; ".join(self.fusions)]
        if self._sizes():
            parts += ["", "sizes: " + "; ".join(self._sizes())]
        if self._precision():
            parts += ["", "precision: " + "\n  ".join(self._precision())]
        if self.choices:
            parts += ["", "chosen by cost in microseconds:", *dict.fromkeys(f"  {c}" for _, c in self.choices)]
        if self.kernels:
            rows = [(k.name, k.count, len(k.wgsl.splitlines())) for k in self.kernels]
            parts += ["", text_table(("shader", "dispatches", "lines"), rows)]
        return "\n".join([*parts, "", str(self.memory)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """Return a page with all of it."""
        kernels = "".join(
            details(f"{k.name} · {counted(k.count, 'dispatch', 'es')}", highlight(k.wgsl)) for k in self.kernels
        )
        nodes = table(("node", "operator", "runs on", "why", "kernels"), self._node_rows())
        parts = [f"<p>{escape(self._headline())}</p>", details(f"nodes ({len(self.nodes)})", nodes, is_open=True)]
        sizes, chosen = self._sizes(), list(dict.fromkeys(str(c) for _, c in self.choices))
        lists = {f"fusions ({len(self.fusions)})": self.fusions, f"sizes ({len(sizes)})": sizes}
        lists |= {"precision": self._precision(), "chosen by cost": chosen}
        for title, lines in lists.items():
            if lines:
                parts.append(details(title, f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"))
        if kernels:
            parts.append(details(f"kernels ({len(self.kernels)})", kernels))
        parts.append(details("memory", self.memory.html(), is_open=bool(self.memory.tensors)))
        return page(*parts)
