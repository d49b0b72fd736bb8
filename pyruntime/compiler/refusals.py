"""Plans that must not be used: what they would run, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyruntime.compiler.plan import Assignment, HostStep
from pyruntime.compiler.typing import Boundary
from pyruntime.errors import EPFail
from pyruntime.ir import TensorType, ValueType, lower
from pyruntime.ops.base import Op

__all__ = ["KNOWN_LIMIT", "TooEarly", "refuse_host", "refuse_too_early"]

KNOWN_LIMIT = 1024
"""Elements: fed tensors up to this size may be looked at while planning."""


class TooEarly(Exception):
    """A plan made before the first run ends, or puts a node on the host, for want of a value the run will bring."""


def refuse_too_early(steps: Sequence[HostStep], boundary: Boundary | None, fed: Mapping[str, ValueType]) -> None:
    """Raises TooEarly where a plan made before the first run hangs on a value that the run will bring."""
    small = {n for n, t in fed.items() if isinstance(t, TensorType) and lower(t.size) <= KNOWN_LIMIT}
    if boundary is not None and boundary.node is None and small & set(boundary.needed):
        raise TooEarly(f"the shapes of what follows depend on the values of {sorted(small & set(boundary.needed))}")
    hosted = [
        step.node.label
        for step in steps
        if isinstance(step.node.op, Op) and type(step.node.op).has_kernel() and small & set(step.node.inputs)
    ]
    if hosted:
        raise TooEarly(f"{', '.join(hosted[:10])} would run on the host, unless values tell otherwise")


def refuse_host(assignments: Sequence[Assignment], boundary: Boundary | None) -> None:
    """Raises EPFail where a node would run on the host, with each of them and why."""
    hosted = [a for a in assignments if a.placement == "host"]
    lines = [f"'{a.name}' ({a.op_type}): {a.reason}" for a in hosted]
    if boundary and boundary.node:
        lines.append(f"{boundary.node.label}: its output shape depends on values")
    if lines:
        raise EPFail(
            "session.disable_cpu_ep_fallback is set and these nodes would run on the host: "
            + "; ".join(lines[:10])
            + (f" and {len(lines) - 10} more" if len(lines) > 10 else "")
        )
