"""Plans of tests written down, to compare two states of the code: what others rely on is that they stay as they are.

    PLANS=before.pickle python -m pytest -p tests.recorded_plans tests/compiler tests/contrib
    PLANS=after.pickle python -m pytest -p tests.recorded_plans tests/compiler tests/contrib     (in the other state)
    python -m tests.recorded_plans before.pickle after.pickle

A change that is to change no shader leaves cached plans and browsers' shader caches valid; this says whether it does.
"""

from __future__ import annotations

import difflib
import os
import pickle
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyruntime.compiler import build
from pyruntime.compiler.plan import Command, HostStep, Plan

__all__ = ["compared", "written"]

_DRAWN = ("test_plan__random_graph", "runs_of_random_sizes")
"""Parts of names of tests that draw other graphs or sizes each time."""


def written(plan: Plan) -> str:
    """A plan as text: what runs, in which memory, with which numbers; scratch tensors by their order alone."""
    names: dict[str, str] = {}

    def named(value: str) -> str:
        own = re.fullmatch(r":*\d+:(scratch|const)\d+", value)
        return names.setdefault(value, f"{own[1]}#{len(names)}") if own else value

    def command(c: Command) -> str:
        params = bytes(plan.params[c.params[0] : sum(c.params)]).hex() if c.params else "-"
        accesses = [(named(a.value), a.region, a.nbytes, a.write, a.scaled) for a in c.accesses]
        regions = [(r.space.value, r.index, r.offset, r.nbytes) for r in c.regions]
        shader = f"{zlib.crc32(plan.shaders[c.shader].encode()):08x}"
        return f"{c.kernel} {shader} {c.grid} {c.scaled} {params} {c.inplace} {c.flops} {accesses} {regions}"

    lines = [f"arenas {plan.arenas}, sizes {plan.sizes}, external {[t.name for t in plan.external]}"]
    for step in plan.steps:
        if isinstance(step, HostStep):
            lines.append(f"host {step.node.op.op_type} {step.node.inputs}")
            continue
        lines += [f"up {t}" for t in step.uploads] + [f"numbers {n}" for n in step.numbers]
        lines += [command(c) for c in step.commands] + [f"down {t}" for t in step.downloads]
    lines += [f"constant {c.type}" for c in plan.constants] + [f"{plan.patches} {plan.expressions}"]
    return re.sub(r" at 0x[0-9a-f]+", "", "\n".join([*lines, *(f"{s}" for s in plan.shaders)]))


class _Recorder:
    """Writes down every plan that is made while a test runs."""

    def __init__(self, path: Path) -> None:
        self.path, self.test = path, ""
        self.plans: dict[str, list[bytes]] = {}
        emit = build._emitted

        def emitted(made: Any, isolated: bool) -> Plan:
            plan = emit(made, isolated)
            self.plans.setdefault(self.test, []).append(zlib.compress(written(plan).encode(), 1))
            return plan

        build._emitted = emitted

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test = nodeid

    def pytest_sessionfinish(self) -> None:
        self.path.write_bytes(pickle.dumps(self.plans))


def pytest_configure(config: Any) -> None:
    """Registers the recorder where PLANS names a file."""
    if os.environ.get("PLANS"):
        config.pluginmanager.register(_Recorder(Path(os.environ["PLANS"]).absolute()))


def compared(before: dict[str, list[bytes]], after: dict[str, list[bytes]]) -> Iterator[str]:
    """What differs in plans of tests that ran in both states: a few lines each."""
    for test in sorted(before.keys() & after.keys()):
        if any(part in test for part in _DRAWN):
            continue
        pairs = before[test], after[test]
        if len(pairs[0]) != len(pairs[1]):
            yield f"{test}: {len(pairs[0])} plans, now {len(pairs[1])}"
            continue
        for number, (old, new) in enumerate(zip(*pairs, strict=True)):
            if old != new:
                was, now = (zlib.decompress(data).decode().splitlines() for data in (old, new))
                changed = [line[:300] for line in difflib.unified_diff(was, now, lineterm="", n=0)][3:9]
                yield "\n  ".join((f"{test}, plan {number}:", *changed))


if __name__ == "__main__":
    first, second = (pickle.loads(Path(path).read_bytes()) for path in sys.argv[1:3])
    found = list(compared(first, second))
    both = first.keys() & second.keys()
    print("\n".join(found[:20]))
    print(f"{len(both)} tests with {sum(len(first[t]) for t in both)} plans; {len(found)} differ")
    sys.exit(bool(found))
