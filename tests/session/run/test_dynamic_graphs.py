"""Plans of random graphs, reused for other sizes: memory is proved for the largest of their ranges, and shapes agree.

PYRUNTIME_VERIFY is on in tests: a plan in which two live tensors overlap raises PlanError. Values are e2e's part.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings

from pyruntime.compiler.verify import checked
from pyruntime.device.null import NullDevice
from pyruntime.kernels import Limits, Target
from pyruntime.session import InferenceSession
from tests.open_graphs import drawn, graph_of
from tests.session.doubles import on_device

GPU = Target(Limits(storage_buffers=10, workgroup_bytes=49152, invocations=1024, workgroup_x=1024), vendor="nvidia")
SOFTWARE = Target(vendor="google")


@given(drawn)
@settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_random_graphs__of_dynamic_dimensions__have_sound_memory_and_the_shapes_of_concrete_plans(case: Any) -> None:
    assert checked()
    steps, shapes, gpu = case
    device, model = NullDevice(GPU if gpu else SOFTWARE), graph_of(steps)
    reference = InferenceSession(model, providers=["CPUExecutionProvider"])

    async def main() -> None:
        session = await InferenceSession.create(model)
        program = session._program
        assert program is not None
        for shape in (*shapes, *shapes[::-1]):
            x = np.ones(shape, np.float32)
            (y,) = await session.run_async(None, {"x": x})
            (wanted,) = reference.run(None, {"x": x})
            assert y.shape == wanted.shape, (shape, [s.sizes for s in program.roots])
        made = len(program.roots)
        for shape in shapes:
            await session.run_async(None, {"x": np.ones(shape, np.float32)})
        assert len(program.roots) == made, "sizes that have come need no plan"
        arenas = [s.executable.plan.arenas for s in program.roots if len(s.executable.plan.steps) == 1]
        assert program.cache.arenas.nbytes == sum(max(a) for a in itertools.zip_longest(*arenas, fillvalue=0))
        session.release()
        assert device.ledger.total == 0

    with on_device(device):
        asyncio.run(main())
