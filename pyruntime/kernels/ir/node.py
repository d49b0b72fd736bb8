"""What is known of the node that kernels are chosen for, besides its operands and the device."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from pyruntime.target import Target

__all__ = ["Chooser", "NodeFacts", "NodeTarget", "device_of", "facts_of", "for_node"]


class Chooser(Protocol):
    """What decides which of the kernels that a family ranked runs (`kernels.selection.candidates.Choices`)."""

    def take(self, family: Any, problem: Any, choice: Any) -> str:
        """Choose a candidate; returns its name."""
        ...


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the kernels of a node depend on besides the device and the operands.

    Attributes:
        norm_follows: the rows of what is lowered are normalised next, which the last of its dispatches may do.
        long_epilogue: the epilogue of each result is long: kernels of many results an invocation have it once, in a
            loop, and not once for each, which drivers take long to compile. No kernel is chosen by it.
        choices: records what is chosen, and prefers kernels that the plan has; None: the cheapest are chosen.
    """

    norm_follows: bool = False
    long_epilogue: bool = False
    choices: Chooser | None = None


@dataclass(frozen=True, slots=True)
class NodeTarget(Target):
    """A device, as the lowering of a node is given it. Two are equal where their devices are."""

    facts: NodeFacts = field(default=NodeFacts(), compare=False)


def for_node(target: Target, **facts: Any) -> NodeTarget:
    """The target with these facts of a node, and those that it has already."""
    return NodeTarget(**_device(target), facts=replace(facts_of(target), **facts))


def facts_of(target: Target) -> NodeFacts:
    """Return what a target says of the node whose kernels are chosen."""
    return target.facts if isinstance(target, NodeTarget) else NodeFacts()


def device_of(target: Target) -> Target:
    """Return the target without what is known of a node."""
    return Target(**_device(target)) if isinstance(target, NodeTarget) else target


def _device(target: Target) -> dict[str, Any]:
    return {f.name: getattr(target, f.name) for f in fields(Target)}
