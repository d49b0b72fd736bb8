"""Plans written down to be compared: equal ones are equal, what changed is told."""

from __future__ import annotations

import zlib
from dataclasses import replace

from pyruntime.kernels import Target
from tests.compiler.test_verify import last, residual_plan
from tests.recorded_plans import compared, written


def test_recorded_plans__one_shader_changed__is_told_with_its_test() -> None:
    target = Target(vendor="nvidia")
    plan, other = residual_plan(target), residual_plan(target)
    assert written(plan) == written(other)
    other.shaders[-1] += "// changed"
    segment, command = last(other)
    segment.commands[-1] = replace(command, grid=(9, 9, 9))
    before, after = ({"t": [zlib.compress(written(p).encode())]} for p in (plan, other))
    assert not list(compared(before, before))
    (told,) = compared(before, after)
    assert told.startswith("t, plan 0:") and "(9, 9, 9)" in told
    assert list(compared(before, {"t": []})) == ["t: 1 plans, now 0"]
    assert not list(compared(before, {"u": []})), "only tests of both"
