"""Topological sort of nodes."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from pyruntime.errors import Fail
from pyruntime.ir import Node

__all__ = ["ordered"]


def ordered(nodes: Sequence[Node]) -> list[Node]:
    """Sort nodes topologically; the order changes only where necessary. Linear time for sorted nodes.

    Raises:
        Fail: there is a cycle; the message names its nodes.
    """
    producer = {name: index for index, node in enumerate(nodes) for name in node.outputs if name}
    if all(producer.get(name, -1) < index for index, node in enumerate(nodes) for name in node.inputs):
        return list(nodes)
    needs = [{producer[name] for name in node.inputs if name in producer} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, sources in enumerate(needs):
        for source in sources:
            readers[source].append(index)
    waiting = [len(sources) for sources in needs]
    ready = [index for index, count in enumerate(waiting) if count == 0]
    result = []
    while ready:
        index = heapq.heappop(ready)
        result.append(nodes[index])
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(result) < len(nodes):
        raise Fail(f"the graph is not acyclic: {_cycle(nodes, needs, waiting)}; export the model again")
    return result


def _cycle(nodes: Sequence[Node], needs: Sequence[set[int]], waiting: Sequence[int]) -> str:
    """Return the labels of the nodes on a cycle among the nodes that could not be sorted."""
    at = next(index for index, count in enumerate(waiting) if count)
    path: dict[int, int] = {}
    while at not in path:
        path[at] = len(path)
        at = min(source for source in needs[at] if waiting[source])
    on_cycle = [index for index, position in path.items() if position >= path[at]]
    labels = [nodes[index].label for index in reversed(on_cycle)]
    shown = labels if len(labels) <= 8 else [*labels[:4], "...", *labels[-3:]]
    return " -> ".join([*shown, labels[0]])
