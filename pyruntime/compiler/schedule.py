"""Schedule: the order nodes run in.

Without host steps the model's own order stands (exporters write depth-first orders that need little memory). With
them, everything the GPU can do is done before the host gets its turn, so that segments, submits and readbacks are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyruntime.compiler.placement import Placed

__all__ = ["schedule"]


def schedule(placed: Sequence[Placed], available: Iterable[str]) -> list[Placed]:
    """`placed` in an order that respects what each node reads; GPU nodes as early as possible, then host nodes."""
    if not any(p.where == "host" for p in placed):
        return list(placed)
    have = set(available)
    made = {n for p in placed for n in p.node.outputs}
    pending = list(placed)
    ordered: list[Placed] = []
    while pending:
        before = len(pending)
        for host in (False, True):
            progress = True
            while progress:
                ready = [p for p in pending if (p.where == "host") == host and _ready(p, have, made)]
                progress = bool(ready) and not host
                for node in ready:
                    ordered.append(node)
                    have.update(node.node.outputs)
                chosen = {id(p) for p in ready}
                pending = [p for p in pending if id(p) not in chosen]
        if len(pending) == before:
            raise AssertionError(f"no node of {[p.node for p in pending[:3]]} can run")
    return ordered


def _ready(placed: Placed, have: set[str], made: set[str]) -> bool:
    return all(name in have or name not in made for name in placed.reads)
