"""Devices as the lowering of a node is given them."""

from __future__ import annotations

from pyruntime.kernels.ir.node import NodeFacts, device_of, facts_of, for_node
from pyruntime.target import Target

DEVICE = Target(vendor="nvidia", disabled=frozenset({"matmul_split"}))


def test_for_node__other_facts__add_up_and_the_device_stays_equal() -> None:
    first = for_node(DEVICE, norm_follows=True)
    both = for_node(first, long_epilogue=True)
    assert facts_of(both) == NodeFacts(norm_follows=True, long_epilogue=True)
    assert first == both and hash(first) == hash(both)
    assert device_of(both) == DEVICE


def test_facts_of__device_alone__are_none() -> None:
    assert facts_of(DEVICE) == NodeFacts()
    assert device_of(DEVICE) is DEVICE
