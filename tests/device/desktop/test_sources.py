"""naga takes the kernels of ONNX's node tests and of com.microsoft's operators, for five kinds of devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from pyruntime.device.desktop.implementations import installed
from pyruntime.errors import OrtError
from pyruntime.ir import ValueNeeded
from pyruntime.kernels import Target
from pyruntime.kernels.legalize import legalize
from pyruntime.ops.base import Op, Unsupported
from pyruntime.target.named import read_target
from tests.contrib.case import draws, op_of
from tests.contrib.samples import sample
from tests.desktop import desktop_device
from tests.harness import node_tests, op_and_data, single_node, typed

SUBGROUPS = frozenset({"subgroups", "subgroup_size_32"})
TARGETS = {
    "every device": read_target("default"),
    "compatibility mode": read_target("compatibility"),
    "phone": read_target("mobile-mali"),
    "Apple": read_target("apple-m"),
    "NVIDIA": read_target("nvidia"),
}
MORE = {"Apple": SUBGROUPS | {"shader-f16"}, "NVIDIA": SUBGROUPS}
"""What such devices have and their profiles leave out."""


def nodes() -> Iterator[tuple[Op, list[Any]]]:
    """Operators with the types of their inputs."""
    for name, case in node_tests().items():
        node = single_node(case)
        if node is None or any(a.HasField("g") for a in node.attribute):
            continue
        op, data = op_and_data(name)
        if not any(isinstance(x, list) for x in data[0][0]):
            yield op, [typed(x) for x in data[0][0]]
    for op_type in draws():
        for number in range(4):
            drawn = sample(op_type, 0, number)
            yield op_of(drawn), [typed(x) for x in drawn.inputs]


def sources(target: Target) -> set[str]:
    """The distinct kernels of all nodes that the target has kernels for."""
    found: set[str] = set()
    for op, types in nodes():
        given: Any = types
        with suppress(Unsupported, OrtError, ValueNeeded):
            op.infer(*given)
            if op.alias(*given) is None:
                found |= {d.kernel.wgsl() for d in legalize(target, op.lower(target, *given)) if not d.is_empty}
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_sources__of_a_target__compile(name: str, desktop_gpu: None) -> None:
    target = TARGETS[name]
    features = target.features | MORE.get(name, frozenset())
    found = sources(replace(target, features=features, disabled=frozenset({"fallback_kernels"})))
    (wgpu,) = installed()
    gpu_device, wrong = desktop_device().gpu_device, dict[str, str]()
    for source in found:
        try:
            wgpu.module(gpu_device, source, False)
        except wgpu.errors as error:
            wrong[source] = str(error)
    assert not wrong, "\n".join(f"{error}\n{source}" for source, error in list(wrong.items())[:3])
    assert len(found) > 400
